"""check_faithfulness: does the model depend on what a heatmap marks? One picture's curves, beside those of chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from camapp.backbones.load import LoadedModel
from camapp.cam.metrics import Deletion, Insertion, Sample, baseline_maps, class_probability
from camapp.cam.metrics.sample import check_positive
from camapp.cam.watch import Progress, Watch
from camapp.errors import UsageError
from camapp.explanation import Explanation

STEPS, RANDOM_MAPS = 20, 5

# A class whose probability never comes to this is not seen at all: its curves are noise.
LEAST = 0.01


@dataclass(frozen=True)
class Faithfulness:
    """The probability of a class while pixels come and go in the order of a heatmap, and in the order of random maps.

    Args:
        label: the class.
        shares: the share of pixels changed at each point of a curve, 0 to 1.
        insertion: the probability while the blurred picture becomes sharp, hottest pixels first.
        deletion: the probability while pixels are replaced by the mean colour, hottest first.
        random_insertion: the same for each random map.
        random_deletion: the same for each random map.
    """

    label: str
    shares: tuple[float, ...]
    insertion: tuple[float, ...]
    deletion: tuple[float, ...]
    random_insertion: tuple[tuple[float, ...], ...]
    random_deletion: tuple[tuple[float, ...], ...]

    @property
    def insertion_auc(self) -> float:
        """The area under ``insertion``, 0 to 1; higher is better."""
        return self._area(self.insertion)

    @property
    def deletion_auc(self) -> float:
        """The area under ``deletion``, 0 to 1; lower is better."""
        return self._area(self.deletion)

    @property
    def random_insertion_auc(self) -> float:
        """The mean area of the random maps."""
        return float(np.mean([self._area(curve) for curve in self.random_insertion]))

    @property
    def random_deletion_auc(self) -> float:
        """The mean area of the random maps."""
        return float(np.mean([self._area(curve) for curve in self.random_deletion]))

    @property
    def verdict(self) -> str:
        """What the curves say, in one sentence; better than chance is better than each of the random maps."""
        if max(*self.insertion, *self.deletion) < LEAST:
            return (
                f"Nothing to judge: the model never gives {self.label} {LEAST:.0%}, whatever is shown. Explain a class "
                "that it sees."
            )
        inserts = self.insertion_auc > max(map(self._area, self.random_insertion))
        deletes = self.deletion_auc < min(map(self._area, self.random_deletion))
        if inserts and deletes:
            return "Better than chance both ways: the model depends on what the map marks."
        if inserts:
            return (
                "Mixed: what the map marks is enough for the class, but taking it away hurts no more than taking away "
                "parts by chance. The model may see the class elsewhere too."
            )
        if deletes:
            return "Mixed: taking away what the map marks hurts the class, but it is not enough for the class alone."
        return "No better than chance: do not rely on this map."

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            **vars(self),
            "insertion_auc": self.insertion_auc,
            "deletion_auc": self.deletion_auc,
            "random_insertion_auc": self.random_insertion_auc,
            "random_deletion_auc": self.random_deletion_auc,
            "verdict": self.verdict,
        }

    def _area(self, curve: tuple[float, ...]) -> float:
        return float(torch.trapezoid(torch.tensor(curve, dtype=torch.float64), torch.tensor(self.shares).double()))


def check_faithfulness(
    model: LoadedModel,
    explanation: Explanation,
    k: int = 0,
    *,
    steps: int = STEPS,
    random_maps: int = RANDOM_MAPS,
    seed: int = 0,
    progress: Progress | None = None,
    deadline: float | None = None,
    cancel: Any | None = None,
) -> Faithfulness:
    """Insert and delete the pixels of a picture in the order of its heatmap, beside the orders of random maps.

    Cost: ``2 * (steps + 1) * (1 + random_maps)`` forwards. What a single picture says is a hint; ``camapp.evaluate``
    judges a method on many.

    Args:
        model: which made the explanation.
        explanation: its ``k``-th class is checked.
        k: which class.
        steps: how many times pixels change; each time an equal share of them.
        random_maps: how many random maps stand beside it.
        seed: of the random maps, and of the order of equal pixels.
        progress: called with the forwards done and expected.
        deadline: seconds after which it gives up.
        cancel: a ``threading.Event`` or a function; it stops once that is set.

    Raises:
        UsageError: a blank map or one of what speaks against the class, a target that is no class, another model's
            explanation, or a count below 1.
        StoppedError: the deadline passed, or ``cancel`` was set.

    Source: Petsiuk et al., "RISE", BMVC 2018, section 3.3.

    Example:
        >>> model = camapp.load_model("efficientnet_lite0")
        >>> print(camapp.check_faithfulness(model, camapp.explain(model, "cat.jpg")).verdict)
    """
    check_positive("steps", steps)
    check_positive("random_maps", random_maps)
    _check_judged(model, explanation, k)
    inputs = model.inputs([model.place(explanation.picture, explanation.geometry.fit)])
    size = (int(inputs.shape[-2]), int(inputs.shape[-1]))
    own = torch.from_numpy(explanation.model_maps[k])[None]
    maps = torch.cat([own, baseline_maps("random", random_maps, size, seed=seed)])
    watch = Watch(progress, deadline, cancel)
    watch.expect(2 * len(maps) * (steps + 1))
    score = _watched(class_probability(model), watch)
    target = torch.tensor([explanation.classes[k].index])
    pixels = -(-size[0] * size[1] // steps)
    inserted: list[tuple[float, ...]] = []
    deleted: list[tuple[float, ...]] = []
    shares: list[float] = []
    for one in maps:
        sample = Sample(score, inputs, target, one[None])
        for metric, curves in ((Insertion(pixels, seed=seed), inserted), (Deletion(pixels, seed=seed), deleted)):
            metric.update(sample)
            shares, scores = metric.curve() or ([], [])
            curves.append(tuple(scores))
    return Faithfulness(
        label=explanation.classes[k].label,
        shares=tuple(shares),
        insertion=inserted[0],
        deletion=deleted[0],
        random_insertion=tuple(inserted[1:]),
        random_deletion=tuple(deleted[1:]),
    )


def _check_judged(model: LoadedModel, explanation: Explanation, k: int) -> None:
    if explanation.model != model.name:
        raise UsageError(f"The explanation is of {explanation.model}, and the model given is {model.name}.")
    if not 0 <= k < len(explanation):
        raise UsageError(f"k = {k} is out of range: {len(explanation)} class(es) were explained.")
    if explanation.classes[k].index < 0:
        raise UsageError(f'"{explanation.classes[k].label}" is no class: only maps of classes can be checked so.')
    if explanation.sign != "positive":
        raise UsageError(
            "The map shows what speaks against the class: taking that away raises the score, which these curves do not "
            "judge. Check the map of what supports it."
        )
    if explanation.reasons[k]:
        raise UsageError(f"The map is blank, so there is nothing to check: {explanation.reasons[k]}")


def _watched(score: Callable[[Tensor, Tensor], Tensor], watch: Watch) -> Callable[[Tensor, Tensor], Tensor]:
    """The score in small pieces, each of them counted."""

    def counted(inputs: Tensor, targets: Tensor) -> Tensor:
        pieces = []
        for start in range(0, len(inputs), 8):
            pieces.append(score(inputs[start : start + 8], targets[start : start + 8]))
            watch.step(len(pieces[-1]))
        return torch.cat(pieces)

    return counted
