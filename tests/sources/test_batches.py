"""Batches of pictures: in order, whole, and without those that cannot be read."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import camapp
from camapp.backbones.load import LoadedModel
from camapp.errors import UsageError
from camapp.images.decode import decode
from camapp.sources.batches import load_batches
from camapp.sources.pictures import find_pictures


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    network = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    return camapp.wrap_model(network, size=24)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for number in range(7):
        Image.fromarray(random.integers(0, 256, (30, 40, 3), np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "3.png").write_bytes(b"not a picture")
    return tmp_path


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_picture_comes_once_in_order_or_with_its_reason(
    model: LoadedModel, folder: Path, batch_size: int, workers: int
) -> None:
    pictures = find_pictures(folder)
    rows: list[int] = []
    failed: list[int] = []
    for batch in load_batches(model, pictures, batch_size=batch_size, workers=workers):
        assert len(batch.rows) + len(batch.failures) <= batch_size
        for row, one in zip(batch.rows, batch.inputs, strict=True):
            expected = model.prepare(decode(pictures[row].path))[0][0]
            assert torch.equal(one, expected)
        rows += batch.rows
        failed += [row for row, _ in batch.failures]
    assert (rows, failed) == ([0, 1, 2, 4, 5, 6], [3])


def test_a_batch_of_nothing_but_broken_pictures_has_no_rows(model: LoadedModel, folder: Path) -> None:
    for path in folder.iterdir():
        path.write_bytes(b"")
    (batch,) = load_batches(model, find_pictures(folder), batch_size=10)
    assert batch.rows == ()
    assert batch.inputs.shape == (0, 3, 24, 24)
    assert len(batch.failures) == 7


def test_a_generator_that_is_closed_half_way_leaves_no_thread(model: LoadedModel, folder: Path) -> None:
    before = set(threading.enumerate())
    batches = load_batches(model, find_pictures(folder), batch_size=1, workers=4)
    next(batches)
    batches.close()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"workers": 0}, {"batch_size": 2.5}])
def test_numbers_that_cannot_be_meant_are_refused(model: LoadedModel, folder: Path, options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="cannot be meant"):
        next(load_batches(model, find_pictures(folder), **options))
