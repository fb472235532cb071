"""Batches that a GPU or a network cannot take whole run in parts, and no picture is lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
import torch

from camapp.batch.jobs.job import Parts
from camapp.errors import ModelError, TargetError


class SmallGPU:
    """Doubles numbers, so many at a time as its memory takes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked: list[int] = []

    def __call__(self, batch: Sequence[int]) -> list[int]:
        self.asked.append(len(batch))
        if len(batch) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return [2 * one for one in batch]


def test_a_batch_that_does_not_fit_is_halved_and_the_next_ones_begin_with_what_fits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu, parts = SmallGPU(3), Parts()
    with caplog.at_level(logging.WARNING, "camapp"):
        assert parts.run(gpu, range(8)) == [0, 2, 4, 6, 8, 10, 12, 14]
        assert gpu.asked == [8, 4, 2, 2, 2, 2]
        assert parts.run(gpu, range(5)) == [0, 2, 4, 6, 8]
    assert gpu.asked[6:] == [2, 2, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "The GPU has not enough memory for 8 pictures at once: 4 from now on.",
        "The GPU has not enough memory for 4 pictures at once: 2 from now on.",
    ]


def test_a_picture_too_large_for_the_gpu_fails_alone() -> None:
    (only,) = Parts().run(SmallGPU(0), [1])
    assert isinstance(only, ModelError)
    assert "not enough memory" in str(only)


def test_a_batch_that_ends_with_an_error_runs_one_by_one() -> None:
    def picky(batch: Sequence[int]) -> list[int]:
        if 13 in batch:
            raise TargetError("no 13")
        return list(batch)

    parts = Parts()
    results = parts.run(picky, [11, 12, 13, 14])
    assert [result for result in results if isinstance(result, int)] == [11, 12, 14]
    assert str(results[2]) == "no 13"
    assert parts.most is None  # the next batch is tried whole
