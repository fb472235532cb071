"""fit_probe: from features and labels to a Probe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from camapp.errors import UsageError, did_you_mean
from camapp.features.probe.fitted import Fitted
from camapp.features.probe.knn import fit_knn
from camapp.features.probe.linear import fit_logistic, fit_ridge
from camapp.features.probe.probe import Probe
from camapp.features.probe.reading import (
    Features,
    check_seed,
    class_names,
    feature_matrix,
    indices,
    label_names,
    quoted,
)

# The kinds of probe, and the setting of each.
KINDS = {"linear": "C", "ridge": "alpha", "knn": "k"}

# Up to so many numbers, one thread fits them.
_FEW_NUMBERS = 2**22


def fit_probe(
    features: Features,
    labels: Sequence[str],
    *,
    kind: str = "linear",
    C: float | None = None,  # noqa: N803
    alpha: float | None = None,
    k: int | None = None,
    folds: int = 5,
    seed: int = 0,
) -> Probe:
    """Fit a classifier on features of a frozen model.

    A setting that is not given is the one of greatest accuracy on held-out pictures: C and alpha by stratified
    cross-validation, k by leaving out each picture in turn. Classes of one picture are then always trained on and never
    held out; a class with fewer pictures than folds is held out in as many. The same features, labels and seed give
    the same probe.

    Args:
        features: (N, D), a NumPy array or a tensor.
        labels: N names of classes.
        kind: ``"linear"``, multinomial logistic regression on standardised features; ``"ridge"``, ridge regression on
            them, against 1 and -1; ``"knn"``, the most similar training pictures, by cosine, vote.
        C: of a linear probe, the inverse strength of the L2 penalty as scikit-learn defines it, 1e-12 to 1e12.
        alpha: of a ridge probe, the strength of the penalty, 1e-12 to 1e12.
        k: of a kNN probe, how many neighbours vote, 1 to N.
        folds: of the cross-validation, 2 and up.
        seed: of the folds, 0 and up.

    Raises:
        UsageError: no features, or some that are not finite; one class only; lengths that differ; no such kind, or a
            setting that the kind does not have or that cannot be meant.

    Example:
        >>> train, test = split(labels)
        >>> probe = fit_probe(features[train], [labels[row] for row in train])
        >>> print(evaluate_probe(probe, features[test], [labels[row] for row in test]).to_markdown())
    """
    check_settings(kind, {"C": C, "alpha": alpha, "k": k})
    if isinstance(folds, bool) or not isinstance(folds, (int, np.integer)) or folds < 2:
        raise UsageError(f"folds = {folds!r}; cross-validation takes a whole number of folds, 2 and up.")
    seed = check_seed(seed)
    matrix = feature_matrix(features)
    names = label_names(labels, len(matrix))
    classes = class_names(names)
    targets = indices(names, classes)
    with _threads(matrix.size):
        if kind == "linear":
            fitted = fit_logistic(matrix, targets, C, int(folds), seed)
        elif kind == "ridge":
            fitted = fit_ridge(matrix, targets, alpha, int(folds), seed)
        else:
            fitted = fit_knn(matrix, targets, k)
    notes = _never_held_out(targets, classes, fitted) + fitted.notes
    return Probe(classes, kind, fitted.tensors, fitted.settings | {"seed": seed, "pictures": len(matrix)}, notes)


def check_settings(kind: str, settings: Mapping[str, float | None]) -> None:
    """Refuse a kind that there is not, or a setting that it does not have, before features are taken for it.

    Args:
        kind: as for ``fit_probe``.
        settings: C, alpha and k by name; None for those not given.

    Raises:
        UsageError: they cannot be meant together.
    """
    if kind not in KINDS:
        raise UsageError(f'No kind of probe "{kind}".{did_you_mean(str(kind), KINDS)} There are {", ".join(KINDS)}.')
    for name, value in settings.items():
        if value is not None and KINDS[kind] != name:
            owner = next(other for other, setting in KINDS.items() if setting == name)
            raise UsageError(
                f'{name} = {value!r} is a setting of kind="{owner}"; a {kind} probe has {KINDS[kind]}. Leave it out, '
                "or choose the other kind."
            )


def _threads(numbers: int) -> AbstractContextManager[object]:
    """Small products of matrices on one thread; on a busy machine several wait for each other, 15 times as long."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, user_api="blas") if numbers <= _FEW_NUMBERS else nullcontext()


def _never_held_out(targets: np.ndarray, classes: Sequence[str], fitted: Fitted) -> tuple[str, ...]:
    single = [classes[place] for place in np.flatnonzero(np.bincount(targets) == 1).tolist()]
    if not single or "tried" not in fitted.settings:
        return ()
    return (f"one picture only of {quoted(single)}, which was never held out: the accuracy tells nothing of it",)
