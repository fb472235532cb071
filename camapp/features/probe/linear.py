"""Linear probes: multinomial logistic regression and ridge regression on standardised features, by scikit-learn."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np
import torch

from camapp.errors import UsageError
from camapp.features.probe.choosing import Choice, cross_validated
from camapp.features.probe.fitted import Fitted
from camapp.features.probe.rowspace import RowSpace

# The settings to choose from, the strongest penalty first; alpha is 1 / C.
C_GRID = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
ALPHA_GRID = (1e6, 1e5, 1e4, 1e3, 1e2, 10.0, 1.0, 1e-1, 1e-2)
# Where nothing can be held out to choose by.
DEFAULT_C, DEFAULT_ALPHA = 1e-2, 1e2

# The greatest slope of the mean loss at which a fit ends, and its most rounds: to choose C by, and of the probe itself.
_ROUGH = {"tol": 1e-6, "max_iter": 1000}
_EXACT = {"tol": 1e-9, "max_iter": 10_000}


def fit_logistic(features: np.ndarray, targets: np.ndarray, C: float | None, folds: int, seed: int) -> Fitted:  # noqa: N803
    r"""Minimise :math:`C \sum_i -\log p(y_i \mid x_i) + \frac12 \lVert W \rVert^2` by L-BFGS.

    With two classes there is one row of weights and one score :math:`z`, as in scikit-learn, and the probability of the
    second class is :math:`1 / (1 + e^{-z})`. It becomes the two rows :math:`-z/2, z/2`: their softmax is the same, and
    the score of either class has a gradient.

    Args:
        features: (N, D) float64.
        targets: (N,) the class of each row, from 0 up, all there.
        C: the inverse strength of the penalty; None has it chosen by cross-validation.
        folds: of the cross-validation.
        seed: of the folds.

    Raises:
        UsageError: a C that cannot be meant.
    """
    choice = _given("C", C) or cross_validated("C", C_GRID, _logistic_path, features, targets, folds, seed)
    choice = choice or Choice("C", DEFAULT_C, "default")
    space = RowSpace.of(features)
    model = _logistic(C=choice.value, **_EXACT)
    rounds, converged = _fit(model, space.coordinates(features), targets)
    weight, bias = model.coef_, model.intercept_
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight / 2, weight / 2]), np.concatenate([-bias / 2, bias / 2])
    notes = choice.notes(C_GRID)
    if not converged:
        notes += (f"the fit did not converge in {rounds} rounds of L-BFGS; a smaller C converges sooner",)
    settings = choice.facts() | {"rounds": rounds, "scikit-learn": _version()}
    return Fitted(_tensors(space, weight, bias), settings, notes)


def fit_ridge(features: np.ndarray, targets: np.ndarray, alpha: float | None, folds: int, seed: int) -> Fitted:
    r"""Minimise :math:`\lVert X w + b - t \rVert^2 + \alpha \lVert w \rVert^2` for each class, :math:`t` being 1 or -1.

    With two classes scikit-learn fits the second only. Its score :math:`z` becomes the two rows :math:`-z, z`, which
    are what two fits would give.

    Args:
        features: (N, D) float64.
        targets: (N,) the class of each row, from 0 up, all there.
        alpha: the strength of the penalty; None has it chosen by cross-validation.
        folds: of the cross-validation.
        seed: of the folds.

    Raises:
        UsageError: an alpha that cannot be meant.
    """
    choice = _given("alpha", alpha) or cross_validated("alpha", ALPHA_GRID, _ridge_path, features, targets, folds, seed)
    choice = choice or Choice("alpha", DEFAULT_ALPHA, "default")
    space = RowSpace.of(features)
    weight, bias = _ridge(space.coordinates(features), targets, choice.value)
    settings = choice.facts() | {"scikit-learn": _version()}
    return Fitted(_tensors(space, weight, bias), settings, choice.notes(ALPHA_GRID))


def _given(name: str, value: float | None) -> Choice | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real) or not 1e-12 <= value <= 1e12:
        raise UsageError(
            f"{name} = {value!r}; it is a number from 1e-12 to 1e12. Leave it out to have it chosen by "
            "cross-validation."
        )
    return Choice(name, float(value), "given")


def _logistic_path(
    features: np.ndarray, targets: np.ndarray, held_out: np.ndarray, answers: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each C: what is predicted of held-out pictures, and the log loss. A fit begins where the last one ended."""
    space = RowSpace.of(features)
    rows, held = space.coordinates(features), space.coordinates(held_out)
    model = _logistic(warm_start=True, **_ROUGH)
    for strength in C_GRID:
        _fit(model.set_params(C=strength), rows, targets)
        scores = model.predict_log_proba(held)
        yield scores.argmax(1), -scores[np.arange(len(held)), answers]


def _ridge_path(
    features: np.ndarray, targets: np.ndarray, held_out: np.ndarray, answers: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each alpha: what is predicted of held-out pictures, and the mean squared error of the scores."""
    space = RowSpace.of(features)
    rows, held = space.coordinates(features), space.coordinates(held_out)
    for strength in ALPHA_GRID:
        weight, bias = _ridge(rows, targets, strength)
        scores = held @ weight.T + bias
        wanted = np.where(np.arange(scores.shape[1]) == answers[:, None], 1.0, -1.0)
        yield scores.argmax(1), np.square(scores - wanted).mean(1)


def _logistic(**settings: Any) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(solver="lbfgs", **settings)


def _fit(model: Any, rows: np.ndarray, targets: np.ndarray) -> tuple[int, bool]:
    """Fit a logistic regression; how many rounds it took, and whether it converged."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows, targets)
    return int(np.max(model.n_iter_)), not any(issubclass(one.category, ConvergenceWarning) for one in caught)


def _ridge(rows: np.ndarray, targets: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights (classes, R) and biases (classes,)."""
    from sklearn.linear_model import RidgeClassifier

    model = RidgeClassifier(alpha=alpha).fit(rows, targets)
    weight, bias = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    if len(weight) == 1:
        return np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
    return weight, bias


def _tensors(space: RowSpace, weight: np.ndarray, bias: np.ndarray) -> dict[str, torch.Tensor]:
    weight, bias = space.folded(weight, bias)
    return {"weight": torch.from_numpy(weight).contiguous(), "bias": torch.from_numpy(bias)}


def _version() -> str:
    import sklearn

    return sklearn.__version__
