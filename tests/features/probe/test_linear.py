"""Linear probes: the optima of scikit-learn's own classifiers, on features as they are."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from camapp.errors import UsageError
from camapp.features.probe import fit_probe, linear
from tests.features.probe.clouds import clouds


@pytest.mark.parametrize("strength", [1e-4, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize(
    ("classes", "each", "size"), [(2, 30, 5), (2, 10, 60), (5, 20, 8), (5, 6, 90)], ids=lambda value: str(value)
)
def test_probabilities_are_those_of_scikit_learns_pipeline(classes: int, each: int, size: int, strength: float) -> None:
    features, labels = clouds(classes, each, size)
    others, _ = clouds(classes, each, size, seed=1)
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=strength, tol=1e-10, max_iter=100_000))
    theirs.fit(features.astype(np.float64), labels)
    ours = fit_probe(features, labels, C=strength)
    for pictures in (features, others):
        np.testing.assert_allclose(
            ours.probabilities(pictures), theirs.predict_proba(pictures.astype(np.float64)), atol=1e-5
        )
    assert ours.predict(others) == theirs.predict(others.astype(np.float64)).tolist()


@pytest.mark.parametrize("alpha", [1e-2, 1.0, 1e4])
@pytest.mark.parametrize(("classes", "each", "size"), [(2, 30, 5), (2, 10, 60), (5, 20, 8), (5, 6, 90)])
def test_ridge_scores_are_scikit_learns_decision_values(classes: int, each: int, size: int, alpha: float) -> None:
    features, labels = clouds(classes, each, size)
    others = clouds(classes, each, size, seed=1)[0].astype(np.float64)
    theirs = make_pipeline(StandardScaler(), RidgeClassifier(alpha=alpha)).fit(features.astype(np.float64), labels)
    ours = fit_probe(features, labels, kind="ridge", alpha=alpha)
    decision = theirs.decision_function(others)
    wanted = np.stack([-decision, decision], 1) if classes == 2 else decision
    np.testing.assert_allclose(ours.scores(others), wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert ours.predict(others) == theirs.predict(others).tolist()


def test_ridge_by_hand() -> None:
    """Points 0 and 2 of one class, 4 and 6 of the other: standardised (x - 3) / sqrt(5), targets -1 and 1.

    X'X = (9 + 1 + 1 + 9) / 5 = 4 and X't = (3 + 1 + 1 + 3) / sqrt(5) = 8 / sqrt(5), so w = 8 / (sqrt(5) (4 + alpha)),
    and the slope on x itself is w / sqrt(5) = 8 / (5 (4 + alpha)): for alpha = 4, 0.2.
    """
    features = np.array([[0.0], [2.0], [4.0], [6.0]])
    probe = fit_probe(features, ["a", "a", "b", "b"], kind="ridge", alpha=4)
    np.testing.assert_allclose(probe.parameters["weight"], [[-0.2], [0.2]], rtol=1e-6)
    np.testing.assert_allclose(probe.parameters["bias"], [0.6, -0.6], rtol=1e-6)


def test_logistic_regression_by_hand() -> None:
    """Two points in the plane, standardised to (-1, -1) and (1, 1): by symmetry w = (v, v), and no bias.

    The loss is 2 C log(1 + e^(-2v)) + v^2, least where v = 2 C / (1 + e^(2v)).
    """
    v = brentq(lambda v: v - 2 * 0.7 / (1 + math.exp(2 * v)), 0, 2, xtol=1e-14)
    probe = fit_probe(np.array([[0.0, 10.0], [4.0, 30.0]]), ["left", "right"], C=0.7)
    z = np.array([[v / 2, v / 10]])  # spreads of 2 and 10
    np.testing.assert_allclose(probe.parameters["weight"], np.concatenate([-z / 2, z / 2]), rtol=1e-5)
    given = probe.probabilities(np.array([[2.0, 20.0], [4.0, 20.0]]))
    np.testing.assert_allclose(given[:, 1], [0.5, 1 / (1 + math.exp(-v))], atol=1e-6)


def test_two_classes_have_a_row_each_and_both_have_a_gradient() -> None:
    features, labels = clouds(2)
    weight = fit_probe(features, labels, C=1).parameters["weight"]
    np.testing.assert_array_equal(weight[0], -weight[1])
    assert weight.abs().min() > 0


@pytest.mark.parametrize("size", [4, 40], ids=["fewer features than pictures", "more"])
def test_constant_features_change_nothing(size: int) -> None:
    features, labels = clouds(3, 8, size)
    constant = np.concatenate([np.full((len(features), 3), [0.1, 1e30, 0.0], np.float32), features], 1)
    for kind in ("linear", "ridge"):
        with_them, without = fit_probe(constant, labels, kind=kind), fit_probe(features, labels, kind=kind)
        np.testing.assert_allclose(with_them.scores(constant), without.scores(features), atol=1e-5)


def test_features_that_barely_vary_give_no_infinite_weight() -> None:
    features, labels = clouds(3, 8, 4)
    features[:, 0] = np.linspace(0, 1e-42, len(features), dtype=np.float32)
    assert fit_probe(features, labels, C=100).parameters["weight"].isfinite().all()


@pytest.mark.parametrize("kind", ["linear", "ridge"])
def test_the_setting_chosen_is_the_best_of_those_tried(kind: str) -> None:
    features, labels = clouds(4, 15, 30, apart=0.5)
    settings = fit_probe(features, labels, kind=kind).settings
    tried = {trial["C" if kind == "linear" else "alpha"]: trial for trial in settings["tried"]}
    best = max(trial["accuracy"] for trial in tried.values())
    chosen = tried[settings["C" if kind == "linear" else "alpha"]]
    assert len(tried) == 9
    assert chosen["accuracy"] == best == settings["cross_validated_accuracy"]
    assert chosen["loss"] == min(trial["loss"] for trial in tried.values() if trial["accuracy"] == best)
    assert settings["chosen_by"] == "5-fold cross-validation"


def test_cross_validation_is_that_of_scikit_learn_on_the_same_folds() -> None:
    from camapp.features.probe.splitting import stratified_folds

    features, labels = clouds(3, 14, 50, apart=0.4)
    features, targets = features.astype(np.float64), np.unique(labels, return_inverse=True)[1]
    fold = stratified_folds(targets, 4, 7)
    for trial in fit_probe(features, labels, folds=4, seed=7).settings["tried"]:
        right = 0
        for number in range(4):
            held = fold == number
            model = make_pipeline(StandardScaler(), LogisticRegression(C=trial["C"], tol=1e-8, max_iter=10_000))
            right += (model.fit(features[~held], targets[~held]).predict(features[held]) == targets[held]).sum()
        assert abs(trial["accuracy"] - right / len(targets)) < 1e-9


def test_a_fit_that_does_not_converge_says_so_in_a_note_and_not_in_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = clouds(3)
    monkeypatch.setitem(linear._EXACT, "max_iter", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (note,) = fit_probe(features, labels, C=1).notes
    assert "did not converge in 2 rounds" in note


def test_penalties_of_numpys_types_are_taken() -> None:
    features, labels = clouds()
    assert fit_probe(features, labels, C=np.float32(0.5)).settings["C"] == 0.5
    assert fit_probe(features, labels, kind="ridge", alpha=np.int64(2)).settings["alpha"] == 2


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, 1e-13, "1", True])
def test_a_penalty_that_cannot_be_meant_is_refused(value: object) -> None:
    features, labels = clouds()
    with pytest.raises(UsageError, match=r"C = .*1e-12 to 1e12"):
        fit_probe(features, labels, C=value)
    with pytest.raises(UsageError, match=r"alpha = .*1e-12 to 1e12"):
        fit_probe(features, labels, kind="ridge", alpha=value)
