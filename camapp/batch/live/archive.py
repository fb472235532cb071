"""The results of a small batch as one .zip: maps, a table of all inputs, and what is needed to make them again."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.map_files import OUTPUTS, MapFiles, Output, check_outputs
from camapp.batch.ledger.names import Stems
from camapp.batch.live.explaining import Outcome
from camapp.batch.records import Item
from camapp.batch.settings import weights_of
from camapp.errors import UsageError
from camapp.explanation import versions
from camapp.files import whole_file
from camapp.images.render import ALPHA, checked_paint

TABLE, SETTINGS = "results.csv", "settings.json"
COLUMNS = (
    *("name", "status", "reason", "label", "index", "probability", "logit"),
    *("layer", "method", "seconds", "files"),
)
# The first day that a .zip can name: the same results give the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
_READ_BY_ALL = 0o100644 << 16
# JPEG and PNG do not get smaller.
_PACKED = (".npy", ".csv", ".json")


class ResultsArchive:
    """Writes a .zip picture by picture, holding the files of one at a time; it is there whole or not at all.

    ``overlays/``, ``heatmaps/`` (16-bit PNG) and ``raw/`` (.npy) hold a file a picture, ``results.csv`` a row an input,
    and ``settings.json`` what is needed to repeat it. The bytes depend on the results alone; ``seconds`` in the table
    is the only figure that differs from run to run.

    Use it as a context manager; where the block raises, nothing is left::

        with ResultsArchive("maps.zip", settings=settings_of_batch(model, explainer)) as archive:
            archive.add(outcome)

    Args:
        path: of the .zip; its folder exists.
        outputs: of ``OUTPUTS``.
        alpha: opacity of overlays where a map is hottest.
        colormap: one of ``camapp.images.render.COLORMAPS``.
        settings: what ``settings.json`` says, next to outputs, looks and versions.

    Raises:
        UsageError: an output or a look that cannot be meant.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        outputs: Sequence[Output] = OUTPUTS,
        alpha: float = ALPHA,
        colormap: str = "viridis",
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        check_outputs(outputs)
        checked_paint(alpha, colormap, 0.0)
        self.path = Path(path)
        self._make = MapFiles(tuple(one for one in OUTPUTS if one in outputs), alpha=alpha, colormap=colormap)
        self._settings = dict(settings or {})
        self._stems = Stems()
        self._rows: list[list[str]] = []
        self._open = ExitStack()
        self._zip: zipfile.ZipFile | None = None

    def __enter__(self) -> ResultsArchive:
        part = self._open.enter_context(whole_file(self.path))
        self._zip = self._open.enter_context(zipfile.ZipFile(part, "w", allowZip64=True))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._write(TABLE, table_text(self._rows).encode())
                self._write(SETTINGS, json.dumps(self._all_settings(), indent=2, ensure_ascii=False).encode())
        except BaseException as raised:
            self._open.__exit__(type(raised), raised, raised.__traceback__)
            raise
        self._open.__exit__(kind, error, trace)

    def add(self, outcome: Outcome, files: Iterable[tuple[str, bytes]] | None = None) -> list[str]:
        """Take in one outcome: its files, and its row of the table.

        Args:
            outcome: of one input.
            files: as ``files_of`` made them elsewhere; made here by default.

        Returns:
            The names of the files.
        """
        made = self.files_of(outcome, self.stem(outcome.item)) if files is None else files
        names = []
        for name, content in made:
            self._write(name, content)
            names.append(name)
        self._rows.append(row_of(outcome, names))
        return names

    def stem(self, item: Item) -> str:
        """How the names of an input's files begin: safe, and unlike all before, ignoring case; asked for once each."""
        return self._stems.stem(item.name)

    def files_of(self, outcome: Outcome, stem: str) -> Iterable[tuple[str, bytes]]:
        """The names and contents of an outcome's files; may be called in another thread than ``add``."""
        return () if outcome.explanation is None else self._make.of(outcome.explanation, stem)

    def _write(self, name: str, content: bytes) -> None:
        if self._zip is None:
            raise UsageError("This archive is not open: add to it inside of its with block.")
        info = zipfile.ZipInfo(name, _DATE)
        info.create_system, info.external_attr = 3, _READ_BY_ALL
        info.compress_type = zipfile.ZIP_DEFLATED if name.endswith(_PACKED) else zipfile.ZIP_STORED
        self._zip.writestr(info, content)

    def _all_settings(self) -> dict[str, Any]:
        look = {"overlay_format": self._make.overlay_format, "quality": self._make.quality}
        look |= {"alpha": self._make.alpha, "colormap": self._make.colormap}
        return {**self._settings, "outputs": list(self._make.outputs), **look, "versions": versions()}


def settings_of_batch(model: LoadedModel, explaining: Mapping[str, Any], inputs: Iterable[Item]) -> dict[str, Any]:
    """What ``settings.json`` says of a batch: all that decides on its maps.

    Args:
        model: that explained it.
        explaining: of ``PictureExplainer.settings``.
        inputs: the pictures, in order.
    """
    own = model.card.input.model_dump(mode="json")
    return {
        "model": model.name,
        "weights": weights_of(model),
        "input": {**own, "fit": explaining.get("fit") or model.card.preprocessing.fit},
        **explaining,
        "inputs": [item.name for item in inputs],
    }


def row_of(outcome: Outcome, files: Sequence[str]) -> list[str]:
    """An outcome as a row of the table, in the order of ``COLUMNS``; numbers as they are, text made safe."""
    found = outcome.explanation
    start = [safe_cell(outcome.item.name), outcome.status, safe_cell(outcome.reason)]
    if found is None:
        explained = [""] * 6
    else:
        one = found.classes[0]
        numbers = [str(one.index), _number(one.probability), _number(one.logit)]
        explained = [safe_cell(one.label), *numbers, safe_cell(found.layer), safe_cell(found.method)]
    return [*start, *explained, f"{outcome.seconds:.3f}", safe_cell("; ".join(files))]


def table_text(rows: Iterable[Sequence[str]]) -> str:
    """The table as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    return text.getvalue()


def safe_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula: ``'`` stands before ``= + - @``, tab and line ends."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def _number(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else ""
