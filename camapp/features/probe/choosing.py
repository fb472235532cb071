"""Choosing a setting of a probe: what each value scored on held-out pictures, and which one is taken."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from camapp.features.probe.splitting import stratified_folds

# Takes training features and targets, held-out features and targets; fits with each value of a setting in turn, and
# gives the classes predicted of the held-out pictures, (H,), and the loss of each, (H,).
Path = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], Iterable[tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class Trial:
    """One value of a setting, on pictures that were held out.

    Args:
        value: of the setting.
        accuracy: the share of the held-out pictures that it got right.
        loss: what the probe minimises, the mean over held-out pictures; NaN where it minimises nothing.
    """

    value: float
    accuracy: float
    loss: float = math.nan


@dataclass(frozen=True)
class Choice:
    """A setting's value, and how it was found.

    Args:
        name: of the setting, such as ``"C"``.
        value: the one taken.
        by: ``"given"``, ``"default"``, ``"5-fold cross-validation"`` or ``"leave-one-out"``.
        trials: of all values tried.
    """

    name: str
    value: float
    by: str
    trials: tuple[Trial, ...] = ()

    @classmethod
    def best(cls, name: str, by: str, trials: Sequence[Trial]) -> Choice:
        """The value of the greatest accuracy; of those alike that of the least loss, then the first."""
        best = min(trials, key=lambda one: (-one.accuracy, 0.0 if math.isnan(one.loss) else one.loss))
        return cls(name, best.value, by, tuple(trials))

    def facts(self) -> dict[str, Any]:
        """As settings of a probe, ready for JSON."""
        facts: dict[str, Any] = {self.name: self.value, "chosen_by": self.by}
        if self.trials:
            facts["cross_validated_accuracy"] = next(one.accuracy for one in self.trials if one.value == self.value)
            facts["tried"] = [
                {self.name: one.value, "accuracy": one.accuracy} | ({} if math.isnan(one.loss) else {"loss": one.loss})
                for one in self.trials
            ]
        return facts

    def notes(self, grid: Sequence[float] = ()) -> tuple[str, ...]:
        """What a user should know: that there was nothing to choose by, or that the best value lies at an end."""
        if self.by == "default":
            return (
                f"every class has one picture, so none could be held out to choose {self.name} by; it is "
                f"{self.value:g} by default",
            )
        accuracies = [one.accuracy for one in self.trials]
        if self.value in (*grid[:1], *grid[-1:]) and accuracies.count(max(accuracies, default=0.0)) == 1:
            return (f"{self.name} = {self.value:g} is at the end of the values tried; the best may lie beyond",)
        return ()


def cross_validated(
    name: str, grid: Sequence[float], path: Path, features: np.ndarray, targets: np.ndarray, folds: int, seed: int
) -> Choice | None:
    """The value that is best over stratified folds, each held out once; classes of one picture never are.

    Args:
        name: of the setting.
        grid: the values to try.
        path: what is predicted with each of them.
        features: (N, D).
        targets: (N,) the class of each row, from 0 up.
        folds: how many.
        seed: of the folds.

    Returns:
        The choice; None where every class has one picture, so that none can be held out.
    """
    fold = stratified_folds(targets, folds, seed)
    numbers = np.unique(fold[fold >= 0])
    if not len(numbers):
        return None
    correct, lost = np.zeros(len(grid)), np.zeros(len(grid))
    for number in numbers:
        held = fold == number
        outcomes = path(features[~held], targets[~held], features[held], targets[held])
        for place, (predicted, loss) in enumerate(outcomes):
            correct[place] += (predicted == targets[held]).sum()
            lost[place] += loss.sum()
    count = int((fold >= 0).sum())
    trials = [
        Trial(value, float(right / count), float(loss / count))
        for value, right, loss in zip(grid, correct, lost, strict=True)
    ]
    return Choice.best(name, f"{len(numbers)}-fold cross-validation", trials)
