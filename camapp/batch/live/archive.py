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
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.map_files import OUTPUTS, MapFiles, Output, check_outputs
from camapp.batch.ledger.names import Stems
from camapp.batch.live.explaining import NO_MEMORY, Outcome
from camapp.batch.records import Item
from camapp.batch.settings import weights_of
from camapp.errors import CamappError, UsageError
from camapp.files import whole_file
from camapp.images.render import ALPHA, checked_paint
from camapp.version import versions

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


@dataclass(frozen=True, eq=False)
class Encoded:
    """An outcome with its files, ready to be written.

    Args:
        outcome: of one input.
        files: names and contents.
    """

    outcome: Outcome
    files: tuple[tuple[str, bytes], ...]


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
        self._rows: list[dict[str, Any]] = []
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

    def add(self, outcome: Outcome) -> dict[str, Any]:
        """Take in one outcome: its files, and its row of the table.

        Returns:
            The row, by ``COLUMNS``, before its text is made safe for spreadsheets.
        """
        return self.add_encoded(self.encoded(outcome, self.stem(outcome.item)))

    def add_encoded(self, made: Encoded) -> dict[str, Any]:
        """The same for an outcome whose files were made elsewhere."""
        for name, content in made.files:
            self._write(name, content)
        row = record_of(made.outcome, [name for name, _ in made.files])
        self._rows.append(row)
        return row

    @property
    def size(self) -> int:
        """How many bytes were written so far."""
        return 0 if self._zip is None or self._zip.fp is None else self._zip.fp.tell()

    def stem(self, item: Item) -> str:
        """How the names of an input's files begin: safe, and unlike all before, ignoring case; asked for once each."""
        return self._stems.stem(item.name)

    def encoded(self, outcome: Outcome, stem: str) -> Encoded:
        """An outcome with its files; may be called in another thread than ``add_encoded``.

        Where a file cannot be made, the outcome has failed.
        """
        if outcome.explanation is None:
            return Encoded(outcome, ())
        try:
            return Encoded(outcome, tuple(self._make.of(outcome.explanation, stem)))
        except CamappError as error:
            reason = str(error)
        except MemoryError:
            reason = NO_MEMORY
        return Encoded(replace(outcome, status="failed", explanation=None, reason=reason), ())

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


def record_of(outcome: Outcome, files: Sequence[str] = ()) -> dict[str, Any]:
    """An outcome as a row by ``COLUMNS``, fit for JSON; None stands for what there is not."""
    found = outcome.explanation
    one = None if found is None else found.classes[0]
    return {
        "name": outcome.item.name,
        "status": outcome.status,
        "reason": outcome.reason,
        "label": None if one is None else one.label,
        "index": None if one is None else one.index,
        "probability": None if one is None else _finite(one.probability),
        "logit": None if one is None else _finite(one.logit),
        "layer": None if found is None else found.layer,
        "method": None if found is None else found.method,
        "seconds": round(outcome.seconds, 3),
        "files": list(files),
    }


def table_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows as CSV: numbers as they are, text made safe for spreadsheets."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [COLUMNS, *([_cell(row[name]) for name in COLUMNS] for row in rows)]
    )
    return text.getvalue()


def safe_cell(text: str) -> str:
    """Text that no spreadsheet takes for a formula: ``'`` stands before ``= + - @``, tab and line ends."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text


def _cell(value: Any) -> str:
    if isinstance(value, int | float):
        return repr(value)
    return safe_cell("; ".join(value) if isinstance(value, list) else value or "")


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
