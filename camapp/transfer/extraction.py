"""extract_features: the features of all pictures of a source, as one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from camapp.backbones.load import LoadedModel
from camapp.errors import DecodeError, StoppedError, UsageError
from camapp.features.extractor import FeatureExtractor
from camapp.features.features import Features
from camapp.features.info import FeatureInfo
from camapp.features.table import FeatureTable
from camapp.hooks.selection import Pattern
from camapp.images.geometry import Fit, checked_fit
from camapp.loading import load_model
from camapp.sources.batches import load_batches
from camapp.sources.pictures import PictureFile, Source, find_pictures
from camapp.version import versions

# Wraps the pictures' names, to show how far it is.
Progress = Callable[[list[str]], Iterable[str]]


def extract_features(
    model: str | Path | LoadedModel,
    source: Source,
    *,
    layers: Pattern | Sequence[Pattern] = "penultimate",
    pool: str = "auto",
    normalize: bool = False,
    dtype: str = "float32",
    fit: Fit | None = None,
    batch_size: int = 32,
    workers: int | None = None,
    limit: int | None = None,
    channels_last: bool = True,
    max_bytes: int | None = None,
    progress: Progress = iter,
    cancel: Any | None = None,
) -> FeatureTable:
    """Take the features of pictures out of a backbone.

    Args:
        model: the name of a model card, the path of a card or of a ``.camapp`` file, or a ``LoadedModel``.
        source: a folder, whose subfolders are the labels; a picture, a pattern, a list of files, a table (.csv) of
            paths and labels, or a sequence of these; see ``find_pictures``.
        layers: as for ``FeatureExtractor``.
        pool: one of ``camapp.features.POOLS``.
        normalize: scale each picture's features of a layer to length 1 (L2).
        dtype: ``"float32"`` or ``"float16"``.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.
        batch_size: pictures in one forward; the features do not depend on it but by rounding.
        workers: threads that decode pictures; as many as there are processors, up to 8, by default.
        limit: take only the first so many pictures.
        channels_last: as for ``FeatureExtractor``.
        max_bytes: refuse features that take more memory than that, once the first batch tells their size.
        progress: wraps the pictures' names, to show how far it is; ``counting`` makes one of a function of numbers.
        cancel: anything with ``is_set()`` (a ``threading.Event``) or a function; asked before each batch, it stops the
            call once it is true.

    Returns:
        One row for each picture that could be read, in the order of the source. Labels where every row has one. The
        others are in its ``failures``, with the reason.

    Raises:
        UsageError: no such source, or an option that cannot be meant.
        LayerError: a layer that does not exist, never runs, or cannot be pooled as asked.
        ModelError, WeightsError: a model that cannot be loaded.
        DecodeError: not one of the pictures can be read.
        StoppedError: ``cancel`` says so.

    Example:
        >>> table = camapp.extract_features("efficientnet_lite0", "photos", layers=["blocks.5", "penultimate"])
        >>> table["penultimate"].shape, table.labels[:2]
        >>> table.save("photos.parquet")
    """
    loaded = opened(model)
    how = None if fit is None else checked_fit(fit)
    extractor = FeatureExtractor(loaded, layers, pool, normalize=normalize, dtype=dtype, channels_last=channels_last)
    pictures = find_pictures(source, limit)
    gathered = _Gathered(pictures, max_bytes)
    names = iter(progress([picture.name for picture in pictures]))
    for batch in load_batches(loaded, pictures, batch_size=batch_size, workers=workers, fit=how):
        if is_cancelled(cancel):
            done = len(gathered.rows) + len(gathered.failures)
            raise StoppedError(f"Stopped as asked, after {done} of {len(pictures)} pictures. The model is as it was.")
        gathered.failures += [(pictures[row].name, reason) for row, reason in batch.failures]
        if batch.rows:
            gathered.add(batch.rows, extractor(batch.inputs))
        for _ in range(len(batch.rows) + len(batch.failures)):
            next(names, None)
    next(names, None)  # lets a bar finish
    return gathered.table(provenance_of(loaded, extractor, how))


def counting(step: Callable[[int, int], None]) -> Progress:
    """A ``progress`` that calls a function with the number of pictures done and that of all."""

    def wrapped(names: list[str]) -> Iterator[str]:
        for done, name in enumerate(names, 1):
            yield name
            step(done, len(names))

    return wrapped


def is_cancelled(cancel: Any | None) -> bool:
    """Whether a ``cancel`` of ``extract_features`` says so."""
    return cancel is not None and bool(getattr(cancel, "is_set", cancel)())


def opened(model: str | Path | LoadedModel) -> LoadedModel:
    """The model that is meant.

    Raises:
        UsageError: something that is no model.
        ModelError, WeightsError: one that cannot be loaded.
    """
    loaded = load_model(model) if isinstance(model, str | Path) else model
    if not isinstance(loaded, LoadedModel):
        raise UsageError(
            f"model is a {type(model).__name__}; needed is a card's name or a LoadedModel, such as camapp.wrap_model "
            "makes of any nn.Module."
        )
    return loaded


@dataclass
class _Gathered:
    """The features of the pictures so far, in arrays for all of them, filled row by row."""

    pictures: list[PictureFile]
    max_bytes: int | None = None
    rows: list[int] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    info: dict[str, FeatureInfo] = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def add(self, rows: tuple[int, ...], features: Features) -> None:
        values = features.numpy()
        if not self.arrays:
            self.info = dict(features.info)
            self._check_memory(values)
            self.arrays = {
                name: np.empty((len(self.pictures), *array.shape[1:]), array.dtype) for name, array in values.items()
            }
        filled = slice(len(self.rows), len(self.rows) + len(rows))
        for name, array in values.items():
            self.arrays[name][filled] = array
        self.rows += rows

    def _check_memory(self, values: dict[str, np.ndarray]) -> None:
        needed = len(self.pictures) * sum(array[0].nbytes for array in values.values())
        if self.max_bytes is not None and needed > self.max_bytes:
            largest = max(values, key=lambda name: values[name][0].nbytes)
            size = values[largest][0].size
            raise UsageError(
                f"The features of {len(self.pictures)} pictures take {needed / 2**20:,.0f} MB, more than the "
                f"{self.max_bytes / 2**20:,.0f} MB allowed; most of it is {largest}, {size:,} values a picture. "
                'Pool the maps (pool="avg"), or take fewer layers or pictures.'
            )

    def table(self, provenance: dict[str, Any]) -> FeatureTable:
        if not self.rows:
            name, reason = self.failures[0]
            raise DecodeError(f"None of {len(self.pictures)} picture(s) can be read. The first, {name}: {reason}")
        read = [self.pictures[row] for row in self.rows]
        labels = [picture.label for picture in read]
        return FeatureTable(
            names=tuple(picture.name for picture in read),
            features={name: array[: len(read)] for name, array in self.arrays.items()},
            info=self.info,
            labels=None if None in labels else tuple(map(str, labels)),
            provenance=provenance,
            failures=tuple(self.failures),
        )


def provenance_of(model: LoadedModel, extractor: FeatureExtractor, fit: Fit | None) -> dict[str, Any]:
    """What the features come from: enough to make them again."""
    return {
        "model": model.name,
        "weights": {
            "source": model.weights.source,
            "sha256": model.weights.sha256,
            "random": model.weights.random,
        },
        "input": {**model.card.input.model_dump(mode="json"), "fit": fit or model.card.preprocessing.fit},
        "layers": [str(layer) for layer in extractor.layers],
        "pool": extractor.pool,
        "normalize": extractor.normalize,
        "dtype": extractor.dtype,
        "channels_last": extractor.channels_last,
        "device": str(model.device),
        "versions": versions(),
    }
