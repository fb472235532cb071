"""fit_probe: what it takes, what it refuses, and that it does the same twice."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch

from camapp.errors import UsageError
from camapp.features.probe import KINDS, fit_probe
from tests.features.probe.clouds import clouds


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bits_twice(kind: str) -> None:
    features, labels = clouds(3, 15, 80, apart=0.3)
    first, second = (fit_probe(features, labels, kind=kind, seed=5) for _ in range(2))
    assert first.facts() == second.facts()
    for name, tensor in first.tensors().items():
        assert torch.equal(tensor, second.tensors()[name])


def test_another_seed_deals_other_folds() -> None:
    features, labels = clouds(3, 15, 10, apart=0.3)
    first, second = (fit_probe(features, labels, seed=seed).settings["tried"] for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize("kind", KINDS)
def test_classes_are_in_sorted_order_whatever_the_order_of_pictures(kind: str) -> None:
    features, labels = clouds(3, 12, 20, apart=4)
    names = {"class 0": "zebra", "class 1": "Ape", "class 2": "mole"}
    probe = fit_probe(features, [names[label] for label in labels], kind=kind)
    assert probe.classes == ("Ape", "mole", "zebra")
    assert probe.predict(features) == [names[label] for label in labels]


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_any_precision_and_arrays_give_the_same_probe(kind: str) -> None:
    features, labels = clouds(3, 12)
    exact = np.round(features)  # the same number in all types
    wanted = fit_probe(exact, labels, kind=kind).tensors()
    for given in (
        torch.from_numpy(exact).bfloat16().requires_grad_(),
        torch.from_numpy(exact).half(),
        exact.astype(np.int16),
        np.asfortranarray(exact.astype(np.float64)),
    ):
        for name, tensor in fit_probe(given, np.array(labels), kind=kind).tensors().items():
            assert torch.equal(tensor, wanted[name])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_is_left_as_it_was(kind: str) -> None:
    features = clouds(3, 12)[0].astype(np.float64)
    before = features.copy()
    fit_probe(features, clouds(3, 12)[1], kind=kind)
    np.testing.assert_array_equal(features, before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_of_one_picture_is_trained_on_and_never_held_out(kind: str) -> None:
    features, labels = clouds(3, 8, 6, apart=5)
    features, labels = np.concatenate([features, features[:1] + 100]), [*labels, "rare"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe = fit_probe(features, labels, kind=kind)
    assert "rare" in probe.classes
    assert any('one picture only of "rare"' in note for note in probe.notes)
    assert probe.settings["tried"][0]["accuracy"] * 24 == pytest.approx(
        round(probe.settings["tried"][0]["accuracy"] * 24)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_where_every_class_has_one_picture_the_setting_is_a_default_and_a_note_says_so(kind: str) -> None:
    probe = fit_probe(np.eye(4), ["a", "b", "c", "d"], kind=kind)
    assert probe.settings["chosen_by"] == "default"
    assert "cross_validated_accuracy" not in probe.settings
    assert any(f"choose {KINDS[kind]} by" in note for note in probe.notes)
    assert probe.predict(np.eye(4)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("kind", KINDS)
def test_two_pictures_are_enough(kind: str) -> None:
    assert fit_probe(np.array([[0.0, 1.0], [1.0, 0.0]]), ["a", "b"], kind=kind).classes == ("a", "b")


def test_few_pictures_of_a_class_are_held_out_in_as_many_folds() -> None:
    probe = fit_probe(np.eye(4), ["a", "a", "b", "b"], folds=10)
    assert probe.settings["chosen_by"] == "4-fold cross-validation"


def test_the_best_at_the_end_of_the_grid_is_noted() -> None:
    from camapp.features.probe.choosing import Choice, Trial

    trials = [Trial(1.0, 0.5), Trial(10.0, 0.6), Trial(100.0, 0.7)]
    (note,) = Choice.best("C", "5-fold cross-validation", trials).notes((1.0, 10.0, 100.0))
    assert "C = 100 is at the end" in note
    level = [*trials[:1], Trial(10.0, 0.7, 0.2), Trial(100.0, 0.7, 0.1)]
    assert Choice.best("C", "5-fold cross-validation", level).notes((1.0, 10.0, 100.0)) == ()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((0, 4)), "empty, of shape \\(0, 4\\)"),
        (np.zeros((4, 0)), "empty, of shape \\(4, 0\\)"),
        (np.zeros(4), "shape \\(4,\\).*\\(N, D\\)"),
        (torch.zeros(4, 8, 7, 7), "shape \\(4, 8, 7, 7\\).*Pool maps"),
        (np.array([["a"]] * 4), "real numbers"),
        (np.zeros((4, 2), complex), "real numbers"),
        (np.array([[0.0], [math.nan], [1.0], [math.inf]]), "NaN or infinity .* in 2 of 4 rows: 1, 3"),
        (np.array([[0.0], [1e39], [1.0], [2.0]]), "in float32.* in 1 of 4 rows: 1"),
    ],
)
def test_features_that_no_probe_can_be_fitted_on(features: np.ndarray | torch.Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit_probe(features, ["a", "a", "b", "b"])


def test_many_bad_rows_are_counted_and_not_listed() -> None:
    with pytest.raises(UsageError, match="in 9 of 9 rows: 0, 1, 2, 3, 4 and 4 more"):
        fit_probe(np.full((9, 2), math.nan), ["a"] * 9)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b", "a"], "3 labels for 4 rows"),
        (["a"] * 4, 'one class, "a"'),
        ("abab", "labels = 'abab'; give a sequence"),
        (None, "labels = None; give a sequence"),
        ([], "There are no labels"),
        (["a", "b", 3, "b"], r"labels\[2\] = 3 is no name"),
        (["a", "b", None, "b"], r"labels\[2\] = None is no name"),
        (["a", "", "a", "b"], r"labels\[1\] = '' is no name"),
    ],
)
def test_labels_that_cannot_be_meant(labels: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit_probe(np.eye(4), labels)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "lineal"}, 'No kind of probe "lineal". Did you mean linear'),
        ({"kind": "knn", "C": 1.0}, 'C = 1.0 is a setting of kind="linear"; a knn probe has k'),
        ({"kind": "linear", "k": 3}, 'k = 3 is a setting of kind="knn"; a linear probe has C'),
        ({"folds": 1}, "folds = 1; .*2 and up"),
        ({"folds": 2.5}, "folds = 2.5"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": "x"}, "seed = 'x'"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fit_probe(np.eye(4), ["a", "a", "b", "b"], **settings)


def test_a_thousand_pictures_of_a_large_backbone_take_seconds() -> None:
    """Measured: 3 s on one core. A loop that forgets the row space, or fits each C anew, takes over half a minute."""
    import time

    features, labels = clouds(10, 100, 2048, apart=0.05)
    began = time.process_time()
    probe = fit_probe(features, labels)
    assert len(probe.settings["tried"]) == 9
    assert time.process_time() - began < 25
