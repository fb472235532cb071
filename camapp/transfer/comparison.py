"""compare_features: which backbone and which of its layers tell the user's classes best, and at what cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from camapp.backbones.load import LoadedModel
from camapp.errors import UsageError
from camapp.features.extractor import FeatureExtractor
from camapp.features.probe import compare
from camapp.features.probe.fitting import check_settings
from camapp.features.probe.markdown import percent, table
from camapp.images.geometry import Fit
from camapp.sources.pictures import Source
from camapp.transfer.extraction import Progress, opened
from camapp.transfer.training import Parts, learn_and_try

_TIMED_PICTURES, _TIMED_ROUNDS = 8, 3


@dataclass(frozen=True)
class Candidate:
    """How well the features of one layer tell the classes.

    Args:
        model: the backbone's name.
        layer: the layer's name, as asked for.
        pool: how it was pooled.
        size: D, numbers a picture.
        accuracy: the share of test pictures told right.
        balanced_accuracy: the mean recall of the classes.
        milliseconds: of the backbone up to that layer, a picture, in a batch of 8 on the device used.
        seconds: to fit the probe, the choice of its setting included.
    """

    model: str
    layer: str
    pool: str
    size: int
    accuracy: float
    balanced_accuracy: float
    milliseconds: float
    seconds: float


@dataclass(frozen=True)
class FeatureComparison:
    """Candidates, the best first; of those alike the one with the smallest features.

    Args:
        rows: one a candidate.
        kind: of the probes.
        trained: how many pictures they were trained on.
        tested: how many they were tried on.
        failures: pictures that could not be read: name and reason.
    """

    rows: tuple[Candidate, ...]
    kind: str
    trained: int
    tested: int
    failures: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return asdict(self)

    def to_markdown(self) -> str:
        """The candidates as a table."""
        header = ("model", "layer", "pool", "size", "accuracy", "balanced accuracy", "ms a picture", "s to fit")
        return table(header, [_cells(row) for row in self.rows])

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def compare_features(
    models: str | LoadedModel | Sequence[str | LoadedModel],
    train: Source,
    test: Source | None = None,
    *,
    layers: Sequence[str] = ("penultimate",),
    pool: str = "auto",
    normalize: bool = False,
    kind: str = "linear",
    test_share: float = 0.25,
    seed: int = 0,
    fit: Fit | None = None,
    batch_size: int = 32,
    workers: int | None = None,
    progress: Progress = iter,
) -> FeatureComparison:
    """Train one probe for each layer of each backbone, and compare them.

    The layers of one backbone come from one pass over the pictures.

    Args:
        models: one or several, as for ``extract_features``.
        train: as for ``train_probe``.
        test: as for ``train_probe``.
        layers: the candidates of each backbone; names, patterns and aliases of ``FeatureExtractor``.
        pool: one of ``camapp.features.POOLS``.
        normalize: scale each picture's features of a layer to length 1 (L2).
        kind: of the probes.
        test_share: the share of ``train`` kept apart, where there is no ``test``.
        seed: of the split and the cross-validation.
        fit: "crop", "letterbox" or "stretch"; each model card's own way by default.
        batch_size: pictures in one forward.
        workers: threads that decode pictures.
        progress: wraps the pictures' names, to show how far it is.

    Raises:
        UsageError, LayerError, ModelError, WeightsError, DecodeError: as ``train_probe``.

    Example:
        >>> table = camapp.compare_features(["efficientnet_lite0", "efficientnet_lite2"], "train", "test")
        >>> table.rows[0].model, table.rows[0].accuracy
    """
    given = list(models) if isinstance(models, list | tuple) else [models]
    if not given:
        raise UsageError("No model is named. Name one or more.")
    options = {
        "layers": layers,
        "pool": pool,
        "normalize": normalize,
        "fit": fit,
        "batch_size": batch_size,
        "workers": workers,
        "progress": progress,
    }
    check_settings(kind, {})
    rows: list[Candidate] = []
    for one in given:
        loaded = opened(one)  # type: ignore[arg-type]
        parts = learn_and_try(loaded, train, test, test_share, seed, options)
        rows += _of_one_backbone(loaded, parts, pool, kind, seed)
    rows.sort(key=lambda row: (-row.accuracy, row.size))
    return FeatureComparison(tuple(rows), kind, len(parts.learnt), len(parts.tried or ()), parts.failures)


def _of_one_backbone(model: LoadedModel, parts: Parts, pool: str, kind: str, seed: int) -> Iterator[Candidate]:
    learnt, tried = parts.learnt, parts.tried
    if tried is None:
        raise UsageError(
            "test_share = 0 leaves no picture to compare the candidates on. Give test pictures, or a share."
        )
    rows = np.arange(len(learnt) + len(tried))
    for layer in learnt.layers:
        both = np.concatenate([learnt.flat(layer), tried.flat(layer)])
        labels = (*(learnt.labels or ()), *(tried.labels or ()))
        compared = compare({layer: both}, labels, rows[: len(learnt)], rows[len(learnt) :], kind=kind, seed=seed)
        (found,) = compared.rows
        yield Candidate(
            model.name,
            layer,
            learnt.info[layer].pool,
            found.size,
            found.accuracy,
            found.balanced_accuracy,
            _milliseconds(model, layer, pool),
            found.seconds,
        )


def _milliseconds(model: LoadedModel, layer: str, pool: str) -> float:
    """What the forward up to a layer takes, a picture: the median of a few batches after one to warm up."""
    extractor = FeatureExtractor(model, layer, pool, channels_last=True)
    inputs = torch.zeros(_TIMED_PICTURES, 3, *model.card.input.size, device=model.device)
    taken = []
    for _ in range(_TIMED_ROUNDS + 1):
        start = time.perf_counter()
        extractor(inputs)[layer].sum().item()  # waits for a GPU
        taken.append(time.perf_counter() - start)
    return 1000 * statistics.median(taken[1:]) / _TIMED_PICTURES


def _cells(row: Candidate) -> tuple[object, ...]:
    shares = percent(row.accuracy), percent(row.balanced_accuracy)
    return row.model, row.layer, row.pool, row.size, *shares, f"{row.milliseconds:.1f}", f"{row.seconds:.1f}"
