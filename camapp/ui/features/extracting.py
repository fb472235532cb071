"""From choices that nobody vouches for to features and classifiers: the one way that page and API take."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from camapp.backbones.load import LoadedModel
from camapp.backbones.pooling import POOLS
from camapp.batch.sources.gathered import gather, inert
from camapp.errors import LayerError, UsageError, did_you_mean
from camapp.features.analysis.overview import Overview, overview
from camapp.features.probe.fitting import check_settings
from camapp.features.table import FeatureTable
from camapp.files import safe_stem
from camapp.sources.thumbnails import read_thumbnails
from camapp.transfer import TrainedProbe, extract_features, train_probe
from camapp.transfer.extraction import counting
from camapp.transfer.typed_labels import check_length, with_typed_labels
from camapp.ui.environment import private_folder
from camapp.ui.features.deadline import Deadline
from camapp.ui.frame.calls import CalledModel
from camapp.ui.frame.models import ModelPool

MOST_LAYERS = 8
# Of the features of one extraction: 500 pictures of 65,536 values each.
MOST_BYTES = 128 * 2**20
_MOST_TEXT = 200_000
# Few pictures a forward, so that Stop is heard within a second or two.
_BATCH = 16
# Without numbers of the visitor's choice: spp(9999) would take all memory.
POOL_NAMES = tuple(name.partition("(")[0] for name in POOLS)
# Names that stand for a layer in every model.
ALIASES = ("penultimate", "last")


@dataclass(frozen=True)
class Request:
    """What features are wanted of which pictures.

    Args:
        files: paths of uploads.
        model: one of the models on offer.
        layers: of it, or ``ALIASES``.
        pool: how they are pooled.
        normalize: whether they are scaled to length 1.
    """

    files: tuple[str, ...]
    model: str
    layers: tuple[str, ...] = ("penultimate",)
    pool: str = "auto"
    normalize: bool = False


@dataclass(frozen=True, eq=False)
class Extraction:
    """What was found.

    Args:
        request: what was wanted.
        table: the features; layers are called as the request calls them.
        overviews: by layer.
        thumbnails: of each row of the table; None where there is none.
        stem: what files of it are called.
        seconds: that it took.
        model: that took them, as calls name it.
    """

    request: Request
    table: FeatureTable
    overviews: dict[str, Overview]
    thumbnails: list[np.ndarray | None]
    stem: str
    seconds: float
    model: CalledModel

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        held = sum(self.table[layer].nbytes for layer in self.table.layers)
        return held + sum(one.nbytes for one in self.thumbnails if one is not None)


def checked_request(pool: ModelPool, request: Request) -> Request:
    """The request, if each of its parts can be meant.

    Raises:
        UsageError, LayerError, ModelError: what is wrong with which.
    """
    if not request.files:
        raise UsageError("There are no pictures yet. Drop some, or a .zip with one folder a class, into the box.")
    known = {layer.name for layer in pool.layers(request.model)} | set(ALIASES)
    if not request.layers:
        raise UsageError("No layer is chosen. Choose one, such as penultimate.")
    if len(request.layers) > MOST_LAYERS:
        raise UsageError(f"{len(request.layers)} layers are more than {MOST_LAYERS}. Choose fewer.")
    for layer in request.layers:
        if layer not in known:
            raise LayerError(f'{request.model} has no layer "{layer[:80]}".{did_you_mean(layer[:80], sorted(known))}')
    if request.pool not in POOL_NAMES:
        near = did_you_mean(request.pool[:80], POOL_NAMES)
        raise UsageError(f'No pooling "{request.pool[:80]}".{near} There are {", ".join(POOL_NAMES)}.')
    return request


def extract(
    pool: ModelPool, request: Request, *, progress: Callable[[int, int], None], cancel: Callable[[], bool]
) -> Extraction:
    """Take features of uploads, and look at them.

    Args:
        pool: the models on offer.
        request: what is wanted.
        progress: called with the pictures done and their number.
        cancel: whether nobody waits any more.

    Raises:
        CamappError: what is wrong with the request, or the pictures; or that the time is over.
    """
    start = time.perf_counter()
    request = checked_request(pool, request)
    model = pool.load(request.model, slow=True)
    with (
        tempfile.TemporaryDirectory(dir=private_folder(), prefix="pictures-") as folder,
        Deadline(cancel) as in_time,
    ):
        gathered = gather(request.files, folder)
        table = extract_features(
            model,
            gathered.pictures,
            layers=request.layers,
            pool=request.pool,
            normalize=request.normalize,
            batch_size=_BATCH,
            max_bytes=MOST_BYTES,
            progress=counting(progress),
            cancel=in_time,
        )
        by_name = {one.name: one for one in gathered.pictures}
        thumbnails = read_thumbnails([by_name[name] for name in table.names])
    table = _with_failures(table, gathered.failures)
    overviews = {layer: overview(table.flat(layer)) for layer in table.layers}
    stem = safe_stem(Path(request.files[0]).name) if len(request.files) == 1 else "pictures"
    seconds = time.perf_counter() - start
    return Extraction(request, table, overviews, thumbnails, stem, seconds, CalledModel.of(model))


def labelled(table: FeatureTable, typed: str) -> FeatureTable:
    """The pictures of a table that have a label: typed ones, where any are typed, else those of the folders.

    Raises:
        UsageError: there are none, what was typed cannot be meant, or one is too long.
    """
    if len(typed) > _MOST_TEXT:
        raise UsageError(f"{len(typed):,} characters are too many for labels. Type at most {_MOST_TEXT:,}.")
    if has_labels(typed):
        table = with_typed_labels(table, typed)
        return table.with_labels([inert(label) for label in table.labels or ()])
    if table.labels is None:
        raise UsageError(
            "These pictures have no labels. Send a .zip with one folder a class, or type the labels under Labels, a "
            "line a picture: name,label."
        )
    for name, label in zip(table.names, table.labels, strict=True):
        check_length(label, name)
    return table


def has_labels(typed: str) -> bool:
    """Whether a text holds more than names that wait for their labels."""
    lines = [line.strip() for line in typed.splitlines()]
    return any(line and not line.startswith("#") and not line.endswith(",") for line in lines)


def names_to_label(table: FeatureTable) -> str:
    """A text with each picture's name, behind which its label is typed."""
    return "\n".join(f"{_quoted(name)}," for name in table.names)


def train(
    model: LoadedModel,
    table: FeatureTable,
    kind: str,
    test_share: float,
    *,
    cancel: Callable[[], bool] = lambda: False,
) -> TrainedProbe:
    """Train a classifier on labelled features.

    Args:
        model: that took them.
        table: with labels.
        kind: of probe.
        test_share: of the pictures kept apart, 0.1 to 0.5.
        cancel: whether nobody waits any more.

    Raises:
        UsageError: a kind or a share that cannot be meant, one class only, a class of one picture, or the time is over.
    """
    check_settings(kind, {})
    if isinstance(test_share, bool) or not isinstance(test_share, int | float) or not 0.1 <= test_share <= 0.5:
        raise UsageError(f"The test share is {str(test_share)[:20]}; it is from 0.1 to 0.5, such as 0.25.")
    with Deadline(cancel) as in_time:
        return train_probe(model, table, kind=kind, test_share=float(test_share), cancel=in_time)


def as_layers(layers: Sequence[str] | str | None) -> tuple[str, ...]:
    """Layers as a control gives them: a list, or a text with commas."""
    parts = layers.split(",") if isinstance(layers, str) else layers or ()
    return tuple(dict.fromkeys(part.strip() for part in map(str, parts) if part.strip()))


def _with_failures(table: FeatureTable, more: Sequence[tuple[str, str]]) -> FeatureTable:
    if not more:
        return table
    return FeatureTable(
        table.names, table.features, table.info, table.labels, table.provenance, (*more, *table.failures)
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(sign in name for sign in ',"') or name.startswith("#") else name
