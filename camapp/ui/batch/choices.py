"""What a visitor asks of a batch, and the one way from there to an explainer of its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.map_files import OUTPUTS, Output
from camapp.batch.live import ClassTable, Given, PictureExplainer, pictures_given
from camapp.batch.live.class_table import TableClasses
from camapp.cam.methods import find_method
from camapp.errors import UsageError, did_you_mean
from camapp.ui.batch.files import NamedFile
from camapp.ui.frame.choices import check_layer_count, own_layers
from camapp.ui.frame.classes import TOP_PREDICTION, is_top
from camapp.ui.frame.models import ModelPool

# Seconds for a whole batch, so that others get their turn on the day as well as in the queue.
DEADLINE = 600.0


@dataclass(frozen=True)
class BatchChoices:
    """What is to be explained, and how; as a visitor sent it.

    Args:
        files: pictures, or one .zip.
        model: one of the models on offer.
        layers: some of its layers; none for the method's own.
        method: one of ``METHODS``.
        target: class index or name for all; -1 or empty for each picture's top prediction.
        table: of each file's own class, which then counts instead of ``target``; None for none.
        column: which of its columns holds the classes; None or empty for the first that may.
        outputs: of ``OUTPUTS``.
        exact: whether the recommended layer means itself; see ``own_layers``.
    """

    files: Sequence[NamedFile]
    model: str
    layers: Sequence[str] = ()
    method: str = "gradcam"
    target: int | str | None = TOP_PREDICTION
    table: NamedFile | None = None
    column: str | None = None
    outputs: Sequence[str] = OUTPUTS
    exact: bool = False

    def given(self) -> Given:
        """The pictures.

        Raises:
            UsageError: there is none, or more than may be.
        """
        return pictures_given([(file.path, file.name) for file in self.files])

    def classes(self, given: Given) -> TableClasses | None:
        """What the table says of the pictures; None where there is no table.

        Raises:
            UsageError: it is no such table, or names none of the pictures.
        """
        if self.table is None:
            return None
        read = ClassTable.read(self.table.path.read_bytes(), self.table.name)
        found = read.classes(given.called, self.column or None)
        if not found.classes:
            first, row = next(iter(given.called.values())), read.files[0]
            raise UsageError(
                f'The table {self.table.name} has a class for none of the pictures: its column "{read.file_column}" '
                f'begins with "{row}", the pictures with "{first}". Check the names, or the column of classes.'
            )
        return found

    def checked_outputs(self) -> tuple[Output, ...]:
        """The outputs, in their own order.

        Raises:
            UsageError: none, or unknown ones.
        """
        unknown = [one for one in self.outputs if one not in OUTPUTS]
        if unknown:
            raise UsageError(f'There is no output "{unknown[0]}".{did_you_mean(str(unknown[0]), OUTPUTS)}')
        if not self.outputs:
            raise UsageError("Nothing is to go into the archive. Choose overlays, heatmaps or raw maps.")
        return cast("tuple[Output, ...]", tuple(one for one in OUTPUTS if one in self.outputs))

    def explainer(self, pool: ModelPool, classes: TableClasses | None) -> tuple[LoadedModel, PictureExplainer]:
        """The model, and what explains the pictures with it; its time begins now.

        Raises:
            CamappError: a model, layer, method or class that does not exist.
        """
        check_layer_count(self.layers)
        kind = find_method(self.method)
        model = pool.load(self.model, slow=True)
        own = not kind.takes_layer or own_layers(self.layers, pool.layers(self.model), exact=self.exact)
        targets: Any = (None if is_top(self.target) else self.target) if classes is None else classes.classes
        layer = None if own else list(self.layers)
        return model, PictureExplainer(model, method=kind.name, layer=layer, targets=targets, deadline=DEADLINE)
