"""The check of one map: curves by hand, verdicts, and refusals."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.backbones.wrap import wrap_model
from camapp.cam.metrics import Deletion, Insertion, Sample, class_probability
from camapp.errors import StoppedError, UsageError
from camapp.explainer import explain
from camapp.explanation import Explanation
from camapp.faithfulness import Faithfulness, check_faithfulness


class _LeftIsBright(nn.Module):
    """Class 0 where the left half is bright; class 1 has a score of 0."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 1, 1, bias=False)
        nn.init.constant_(self.features.weight, 1 / 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        bright = self.features(inputs)[..., : inputs.shape[-1] // 2].mean((1, 2, 3))
        return torch.stack([8 * bright - 2, torch.zeros_like(bright)], 1)


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return wrap_model(_LeftIsBright(), size=32, mean=(0, 0, 0), std=(1, 1, 1), labels=["left", "none"])


@pytest.fixture(scope="module")
def explanation(model: LoadedModel) -> Explanation:
    return explain(model, np.full((32, 32, 3), 200, np.uint8), targets="left", layer="features")


def marking(explanation: Explanation, columns: slice) -> Explanation:
    """The explanation with a map that marks some columns."""
    marked = np.zeros((1, 32, 32), np.float32)
    marked[..., columns] = 1
    return replace(explanation, model_maps=marked, reasons=(None,))


def test_the_curves_are_those_of_the_metrics(model: LoadedModel, explanation: Explanation) -> None:
    left = marking(explanation, slice(0, 16))
    found = check_faithfulness(model, left, steps=8, random_maps=2, seed=3)
    inputs, _, _ = model.prepare(left.picture)
    sample = Sample(class_probability(model), inputs, torch.tensor([0]), torch.from_numpy(left.model_maps))
    for metric, curve, area in (
        (Insertion(128, seed=3), found.insertion, found.insertion_auc),
        (Deletion(128, seed=3), found.deletion, found.deletion_auc),
    ):
        assert float(metric.update(sample)) == pytest.approx(area, abs=1e-6)
        shares, scores = metric.curve() or ([], [])
        np.testing.assert_allclose(curve, scores, atol=1e-6)
        np.testing.assert_allclose(found.shares, shares)
    assert found.shares[0] == 0
    assert found.shares[-1] == 1
    assert len(found.random_deletion) == len(found.random_insertion) == 2


def test_a_map_of_what_counts_beats_chance_and_a_map_of_the_rest_does_not(
    model: LoadedModel, explanation: Explanation
) -> None:
    good = check_faithfulness(model, marking(explanation, slice(0, 16)), steps=8)
    bad = check_faithfulness(model, marking(explanation, slice(16, 32)), steps=8)
    assert good.deletion_auc < good.random_deletion_auc
    assert bad.deletion_auc > bad.random_deletion_auc
    # by hand: after half of the pixels nothing bright is left on the left, and the probability is that of a score of -2
    assert good.deletion[4] == pytest.approx(1 / (1 + np.exp(2)), abs=1e-5)
    assert bad.deletion[4] == pytest.approx(bad.deletion[0], abs=1e-5)


@pytest.mark.parametrize(
    ("insertion", "deletion", "words"),
    [(0.9, 0.1, "Better than chance both ways"), (0.9, 0.9, "Mixed"), (0.1, 0.1, "Mixed"), (0.1, 0.9, "No better")],
)
def test_the_verdict_says_what_the_areas_say(insertion: float, deletion: float, words: str) -> None:
    flat: Any = lambda value: (value, value)  # noqa: E731
    found = Faithfulness("cat", (0.0, 1.0), flat(insertion), flat(deletion), (flat(0.5),), (flat(0.5),))
    assert found.verdict.startswith(words)
    assert found.to_dict()["insertion_auc"] == pytest.approx(insertion)
    assert found.random_deletion_auc == pytest.approx(0.5)


def test_a_map_has_to_beat_each_random_map_and_not_their_mean() -> None:
    flat: Any = lambda value: (value, value)  # noqa: E731
    found = Faithfulness("cat", (0.0, 1.0), flat(0.6), flat(0.4), (flat(0.1), flat(0.7)), (flat(0.9), flat(0.3)))
    assert found.insertion_auc > found.random_insertion_auc
    assert found.verdict.startswith("No better than chance")


def test_forwards_are_counted_and_can_be_stopped(model: LoadedModel, explanation: Explanation) -> None:
    told: list[tuple[int, int]] = []
    left = marking(explanation, slice(0, 16))
    check_faithfulness(model, left, steps=8, random_maps=1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (2 * 2 * 9, 2 * 2 * 9)
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        check_faithfulness(model, left, cancel=stop)


def test_what_cannot_be_checked_is_refused(model: LoadedModel, explanation: Explanation) -> None:
    blank = replace(explanation, reasons=("no positive evidence",))
    with pytest.raises(UsageError, match="blank, so there is nothing to check: no positive evidence"):
        check_faithfulness(model, blank)
    against = replace(marking(explanation, slice(0, 16)), sign="negative")
    with pytest.raises(UsageError, match="what speaks against the class"):
        check_faithfulness(model, against)
    with pytest.raises(UsageError, match="The explanation is of other"):
        check_faithfulness(model, replace(marking(explanation, slice(0, 16)), model="other"))
    with pytest.raises(UsageError, match="k = 1 is out of range"):
        check_faithfulness(model, explanation, 1)
    with pytest.raises(UsageError, match="steps = 0"):
        check_faithfulness(model, explanation, steps=0)


def test_of_a_class_that_the_model_never_sees_nothing_is_judged() -> None:
    flat: Any = lambda value: (value, value)  # noqa: E731
    found = Faithfulness("cat", (0.0, 1.0), flat(0.002), flat(0.0005), (flat(0.001),), (flat(0.001),))
    assert found.verdict.startswith("Nothing to judge: the model never gives cat 1%")
