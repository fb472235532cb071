"""Batches of pictures for a model, decoded by threads while the model runs; one that cannot be read stops no other."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from camapp.backbones.load import LoadedModel
from camapp.errors import CamappError
from camapp.images.decode import decode
from camapp.images.geometry import Fit, Placed
from camapp.sources.pictures import PictureFile, check_count

# Decoding scales with threads (Pillow lets go of the interpreter), up to what one process can feed a model with.
MOST_WORKERS = 8


@dataclass(frozen=True)
class Batch:
    """Some pictures of a source, ready for the model, and those on the way that cannot be read.

    Args:
        rows: the number of each picture in the source.
        inputs: (len(rows), 3, h, w) on the model's device; of no rows where none of the pictures can be read.
        failures: the number of each other picture, and why.
    """

    rows: tuple[int, ...]
    inputs: torch.Tensor
    failures: tuple[tuple[int, str], ...]


def default_workers() -> int:
    """As many threads as this process has processors, within ``MOST_WORKERS``."""
    return min(MOST_WORKERS, processors())


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_batches(
    model: LoadedModel,
    pictures: Sequence[PictureFile],
    *,
    batch_size: int = 32,
    workers: int | None = None,
    fit: Fit | None = None,
) -> Iterator[Batch]:
    """The pictures of a source in their order, as batches that the model takes.

    At most three batches are held at once, however many pictures there are.

    Args:
        model: whose preprocessing and device.
        pictures: from ``find_pictures``.
        batch_size: pictures a batch; the last may have fewer.
        workers: threads that decode; ``default_workers()`` by default.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.

    Raises:
        UsageError: a number that cannot be meant.
    """
    check_count("batch_size", batch_size, 1)
    threads = default_workers() if workers is None else workers
    check_count("workers", threads, 1)

    def read(picture: PictureFile) -> Placed | str:
        try:
            return model.place(decode(picture.path), fit)
        except CamappError as error:
            return str(error)

    pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
    waiting: deque[Future[Placed | str]] = deque()
    ahead = iter(pictures)
    try:
        for start in range(0, len(pictures), batch_size):
            while len(waiting) < 2 * batch_size and (picture := next(ahead, None)) is not None:
                waiting.append(pool.submit(read, picture))
            count = min(batch_size, len(pictures) - start)
            yield _batch(model, start, [waiting.popleft().result() for _ in range(count)])
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _batch(model: LoadedModel, start: int, read: list[Placed | str]) -> Batch:
    placed = {start + index: one for index, one in enumerate(read) if isinstance(one, Placed)}
    failures = tuple((start + index, one) for index, one in enumerate(read) if isinstance(one, str))
    none = torch.zeros(0, 3, *model.card.input.size, device=model.device)
    return Batch(tuple(placed), model.inputs(list(placed.values())) if placed else none, failures)
