"""What a job takes out of pictures is what the extractor gives for each, in one file a shard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import camapp
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.job import ModelChoice, Work
from camapp.batch.records import Item, Row
from camapp.errors import LayerError, UsageError

ASSETS = Path(__file__).resolve().parents[3] / "assets"
PICTURES = ("chelsea.jpg", "coffee.jpg", "rocket.jpg")


@pytest.fixture(scope="module")
def model() -> Any:
    return camapp.load_model("efficientnet_lite0", device="cpu")


@pytest.mark.parametrize("kind", ["parquet", "npz", "safetensors"])
def test_a_shard_is_one_file_whose_rows_are_those_of_the_extractor(model: Any, tmp_path: Path, kind: str) -> None:
    layers = ("blocks.5", "penultimate")
    job = FeatureJob(ModelChoice(model), layers, format=kind)
    job.open(tmp_path)
    works = [Work(10 + n, Item(name, str(ASSETS / name), label="x"), name, 7) for n, name in enumerate(PICTURES)]
    ready = [job.prepare((ASSETS / one.item.name).read_bytes(), one) for one in works]
    results = [*job.run(ready[:2]), *job.run(ready[2:])]
    rows = [job.write(result, one) for result, one in zip(results, works, strict=True)][::-1]
    lost = Row(13, Item("broken.jpg", "broken.jpg"), "failed", "why", shard=7)
    rows = sorted([*rows, lost], key=lambda row: row.number)
    ended = job.end_shard(7, rows)
    (path,) = (tmp_path / "features").iterdir()
    assert [row.files for row in ended] == [(f"features/{path.name}",)] * 3 + [()]
    table = camapp.load_features(path)
    assert table.names == PICTURES
    assert table.labels == ("x",) * 3
    extractor = camapp.FeatureExtractor(model, list(layers))
    for number, name in enumerate(PICTURES):
        inputs, *_ = model.prepare(camapp.decode(ASSETS / name))
        for layer, features in extractor(inputs).items():
            np.testing.assert_allclose(table[layer][number], features[0].numpy(), rtol=1e-4, atol=1e-5)
    assert (ended[0].width, ended[0].height) == (451, 300)


def test_a_shard_of_which_nothing_could_be_read_has_no_file(model: Any, tmp_path: Path) -> None:
    job = FeatureJob(ModelChoice(model))
    job.open(tmp_path)
    lost = [Row(0, Item("broken.jpg", "broken.jpg"), "failed", "why")]
    assert job.end_shard(0, lost) == lost
    assert list(tmp_path.iterdir()) == []


def test_options_that_cannot_be_meant_are_found_when_the_job_is_opened(model: Any, tmp_path: Path) -> None:
    for options, error, message in (
        ({"format": "npy"}, UsageError, "format is one of"),
        ({"layers": ("blocks.99",)}, LayerError, "blocks.99"),
        ({"pool": "mean"}, UsageError, "mean"),
        ({"fit": "zoom"}, UsageError, "zoom"),
    ):
        with pytest.raises(error, match=message):
            FeatureJob(ModelChoice(model), **options).open(tmp_path)  # type: ignore[arg-type]
