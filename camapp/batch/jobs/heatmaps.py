"""Heatmaps of many pictures: overlays, 16-bit heatmaps and raw maps of each."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.job import ModelChoice, Parts, Work, at_precision, check_precision
from camapp.batch.jobs.map_files import FORMATS, OUTPUTS, MapFiles, Output, check_outputs
from camapp.batch.jobs.raw_maps import RawMaps
from camapp.batch.records import Guess, Item, Row
from camapp.cam.engine import Method
from camapp.cam.methods import find_method
from camapp.cam.targets import TopClasses
from camapp.errors import CamappError, TargetError, UsageError
from camapp.explainer import Look, Prepared, checked_paintable, explain_prepared
from camapp.explanation import Explanation
from camapp.files import write_atomically
from camapp.images.decode import decode
from camapp.images.geometry import Fit, checked_fit
from camapp.images.render import ALPHA, checked_paint
from camapp.sources.pictures import check_count

RAW_FORMATS = ("npy", "parquet")
LABEL, COLUMN = "label", "column"

_log = logging.getLogger("camapp")


@dataclass(frozen=True, eq=False)
class ReadyPicture:
    """A picture that is ready, and the classes to explain in it.

    Args:
        prepared: the picture.
        targets: the classes; None for the likeliest.
    """

    prepared: Prepared
    targets: tuple[int, ...] | None


@dataclass
class HeatmapJob:
    """Explains pictures and writes what is asked for of each.

    Files lie in ``overlays``, ``heatmaps`` and ``raw``, under the names and folders that the pictures have in the
    source; of several classes each file bears its number.

    Args:
        choice: the model.
        method: a method's name.
        layer: the layer, or several to be joined; the card's own by default.
        targets: class names or indices, the same for every picture; ``"label"`` for each picture's label, ``"column"``
            for the class that the table names for it; None for the likeliest.
        top_k: how many of the likeliest.
        outputs: of ``OUTPUTS``.
        overlay_format: of ``FORMATS``.
        quality: of JPEG and WebP, 1 to 100.
        max_side: the longest side of overlays and heatmaps in pixels; the picture's own by default.
        alpha: opacity where a map is hottest.
        colormap: one of ``camapp.images.render.COLORMAPS``.
        hide_below: leave the picture as it is where the map is below this.
        sign: "positive" or "negative".
        normalize: "minmax", "max" or "shared".
        fit: "crop", "letterbox" or "stretch"; the card's own way by default.
        batch_size: pictures in one forward.
        precision: of ``PRECISIONS``: what the network computes in; maps are float32.
        draft: decode JPEGs at a fraction of their size where that is twice what the model wants, or more, and no less
            than ``max_side``.
        raw_format: of ``RAW_FORMATS``: a file a picture, float32, or a file a shard, as ``RawMaps`` writes it.
    """

    choice: ModelChoice
    method: str = "gradcam"
    layer: str | tuple[str, ...] | None = None
    targets: str | tuple[str | int, ...] | None = None
    top_k: int = 1
    outputs: tuple[Output, ...] = OUTPUTS
    overlay_format: str = "jpeg"
    quality: int = 90
    max_side: int | None = None
    alpha: float = ALPHA
    colormap: str = "viridis"
    hide_below: float = 0.0
    sign: str = "positive"
    normalize: str = "minmax"
    fit: Fit | None = None
    batch_size: int = 8
    precision: str = "float32"
    draft: bool = False
    raw_format: str = "npy"
    _parts: Parts = field(default_factory=Parts, repr=False, compare=False)
    _raw_maps: RawMaps = field(default_factory=RawMaps, repr=False, compare=False)
    _opened: _Opened | None = field(default=None, repr=False, compare=False)

    def open(self, out: Path) -> None:
        """Load the model and make the method, once all options are known to be meant."""
        look = self.checked()
        model = self.choice.load()
        layer = list(self.layer) if isinstance(self.layer, tuple) else self.layer
        engine = find_method(self.method)(model, layer)
        fixed = None
        if isinstance(self.targets, tuple):
            fixed = tuple(model.class_index(one) for one in self.targets)
        if self.top_k > len(model.labels):
            raise TargetError(f"top_k = {self.top_k}, but {model.name} has only {len(model.labels)} classes.")
        self._opened = _Opened(out, model, engine, look, fixed)

    def checked(self) -> Look:
        """How maps are made of signed values, once the options are known to be meant.

        Raises:
            UsageError: an option that cannot be meant.
        """
        check_outputs(self.outputs)
        if self.overlay_format not in FORMATS:
            raise UsageError(f"overlay_format is one of {', '.join(FORMATS)}, not {self.overlay_format!r}.")
        if self.raw_format not in RAW_FORMATS:
            raise UsageError(f"raw_format is one of {', '.join(RAW_FORMATS)}, not {self.raw_format!r}.")
        if self.raw_format != "npy" and "raw" not in self.outputs:
            raise UsageError(
                f"raw_format={self.raw_format!r}, but raw is not among the outputs ({', '.join(self.outputs)}). Add it."
            )
        check_count("quality", self.quality, 1, 100)
        check_count("top_k", self.top_k, 1)
        if self.targets is not None and self.top_k != 1:
            raise UsageError("targets and top_k exclude each other: give the classes, or how many of the likeliest.")
        if isinstance(self.targets, tuple) and {LABEL, COLUMN}.intersection(map(str, self.targets)):
            raise UsageError(f'targets are classes, or "{LABEL}" or "{COLUMN}" alone: not {list(self.targets)}.')
        if self.targets == ():
            raise UsageError("targets is empty. Name one class or more, or leave it out for the likeliest.")
        if self.max_side is not None:
            check_count("max_side", self.max_side, 16)
        checked_paint(self.alpha, self.colormap, self.hide_below)
        if self.fit is not None:
            checked_fit(self.fit)
        check_precision(self.precision)
        if self.draft and self.max_side is None and self.outputs != ("raw",):
            raise UsageError(
                "draft decodes pictures at a fraction of their size, and overlays and heatmaps are of the whole "
                "size. Give a max_side, or only raw as outputs."
            )
        return checked_paintable(self.sign, self.normalize)

    def checked_items(self, items: Iterable[Item]) -> Iterator[Item]:
        """The inputs as they come; where each is to name its class, one of them must.

        Raises:
            UsageError: none does.
        """
        named = not isinstance(self.targets, str)
        unheeded = self.targets == LABEL or not isinstance(self.targets, str)
        for item in items:
            named = named or bool(self._class_named(item))
            if unheeded and item.target:
                _log.warning('The table names classes to explain, which only targets="column" heeds (--target column).')
                unheeded = False
            yield item
        if not named:
            what, where = ("label", "subfolders or a label column")
            if self.targets == COLUMN:
                what, where = ("class", "a class column")
            raise UsageError(
                f"targets are to be each picture's own {what}, but no input of the source has one. Give a source with "
                f"{where} (of a table, name the column), or name the classes."
            )

    def prepare(self, data: bytes, work: Work) -> ReadyPicture:
        """Decode a picture and find the classes to explain in it."""
        opened = self._in_use
        targets = self._targets_of(work, opened)
        at_least = opened.model.sides_for_draft(self.max_side or 0) if self.draft else None
        picture = decode(data, name=work.item.name, at_least=at_least)
        placed = opened.model.place(picture, self.fit)
        if self.max_side is not None:
            picture = picture.no_larger_than(self.max_side)
            placed = replace(placed, geometry=placed.geometry.scaled_to(picture.size))
        return ReadyPicture(Prepared(picture, placed), targets)

    def run(self, batch: Sequence[ReadyPicture]) -> list[Explanation | CamappError]:
        """Explain several pictures in one go; those that it ends with an error for, one by one."""
        return self._parts.run(self._explained, batch)

    def write(self, result: Explanation, work: Work) -> Row:
        """Write overlay, heatmap and raw map of each class."""
        files = [self._write(name, content) for name, content in self._files.of(result, work.stem)]
        if "raw" in self.outputs and self.raw_format == "parquet":
            self._raw_maps.add(work.shard, work.number, result.raw)
        blank = [f"{result.classes[k].label}: {reason}" for k, reason in enumerate(result.reasons) if reason]
        width, height = result.picture.full_size
        return Row(
            number=work.number,
            item=work.item,
            status="done",
            width=width,
            height=height,
            notes=(*result.notes, *blank),
            predictions=tuple(Guess(one.index, one.label, one.probability) for one in result.predictions),
            explained=tuple(one.label for one in result.classes),
            files=tuple(files),
            shard=work.shard,
        )

    def end_shard(self, shard: int, rows: Sequence[Row]) -> Sequence[Row]:
        """Write the raw maps of a shard as one file, where they are wanted so; the rest belongs to one picture each."""
        file = self._raw_maps.write(self._in_use.out, shard, rows)
        if file is None:
            return rows
        return [replace(row, files=(*row.files, file)) if row.status == "done" else row for row in rows]

    @property
    def _in_use(self) -> _Opened:
        if self._opened is None:
            raise UsageError("This job has not been opened.")
        return self._opened

    @property
    def _files(self) -> MapFiles:
        beside = [one for one in self.outputs if one != "raw" or self.raw_format == "npy"]
        return MapFiles(beside, self.overlay_format, self.quality, self.alpha, self.colormap, self.hide_below)

    def _targets_of(self, work: Work, opened: _Opened) -> tuple[int, ...] | None:
        if not isinstance(self.targets, str):
            return opened.fixed
        name = self._class_named(work.item)
        if not name:
            raise TargetError(f"There is no {'label' if self.targets == LABEL else 'target class'} for it.")
        return (opened.model.class_index(name),)

    def _class_named(self, item: Item) -> str | None:
        return item.label if self.targets == LABEL else item.target

    def _explained(self, batch: Sequence[ReadyPicture]) -> list[Explanation]:
        opened = self._in_use
        targets: Any = TopClasses(self.top_k)
        if batch[0].targets is not None:
            targets = [list(one.targets or ()) for one in batch]
        prepared = [one.prepared for one in batch]
        with at_precision(self.precision, opened.model.device):
            return explain_prepared(opened.model, opened.engine, prepared, targets, opened.look)

    def _write(self, name: str, content: bytes) -> str:
        path = self._in_use.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
        return name


@dataclass(frozen=True)
class _Opened:
    """What a job has in its worker."""

    out: Path
    model: LoadedModel
    engine: Method
    look: Look
    fixed: tuple[int, ...] | None
