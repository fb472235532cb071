"""What every engine sends to its workers, how a worker begins with it, and when workers are given up."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import torch

from camapp.batch.jobs.job import Job
from camapp.batch.lane import Lane, Shards
from camapp.errors import CamappError, UsageError

# A shard that ended so many workers is not given to another one.
MOST_DEATHS = 3


class WorkersLost(CamappError):  # noqa: N818 - says what happened
    """Workers died again and again on one shard."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and OpenCV compute in one thread: with several the last digits depend on how many there are.

    What several processors are for is several workers, which share nothing and wait for nothing.
    """
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


@dataclass(frozen=True)
class Orders:
    """What every worker is sent when it begins.

    Args:
        packed: the job and its shards, pickled.
        out: the folder of the export.
        threads: of each worker, for decoding and writing beside the model.
    """

    packed: bytes
    out: Path
    threads: int

    @classmethod
    def pack(
        cls, job: Job, shards: Shards, out: Path, threads: int, dumps: Callable[[Any], bytes] = pickle.dumps
    ) -> Orders:
        """Pickle a job, with ``dumps``.

        Raises:
            UsageError: it cannot be sent to other processes.
        """
        try:
            return cls(dumps((job, shards)), out, threads)
        except Exception as error:  # what a user's model may raise here is anything
            raise UsageError(
                f"This model cannot be sent to other processes: {error}. Give workers=1 of the local engine, or a "
                "card's name instead of a loaded model."
            ) from error

    def lane(self, gpu: int | None = None) -> Lane:
        """A lane in this process, which from now on computes in one thread, so that all give the same bytes.

        Args:
            gpu: which one is meant by "cuda" from now on, in this thread.
        """
        torch.set_num_threads(1)
        cv2.setNumThreads(1)
        if gpu is not None:
            torch.cuda.set_device(gpu)
        job, shards = pickle.loads(self.packed)
        return Lane(job, shards, self.out, threads=self.threads)


def sendable(error: Exception) -> Exception:
    """The error, or its text where it does not survive the way to another process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
