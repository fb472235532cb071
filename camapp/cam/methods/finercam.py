"""Finer-CAM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import Evidence
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.methods.wrapper import Wrapper
from camapp.cam.passes import Passes
from camapp.cam.targets.classes import ClassDifference, ClassScore
from camapp.cam.targets.output import How, Output
from camapp.cam.targets.plan import Aims, Plan
from camapp.cam.targets.target import ClassName, Target, plain_index
from camapp.errors import TargetError, UsageError


class FinerCAM(Wrapper):
    r"""Finer-CAM: what speaks for a class rather than for the classes that it is easily taken for.

    Any base method, asked not about the logit :math:`y^c` but about its lead over :math:`T` other classes :math:`d_t`,

    .. math:: y^c - \gamma \, \frac{1}{T} \sum_{t=1}^{T} y^{d_t} .

    Features that all of them share cancel out; the larger :math:`\gamma`, the more. The others are those of the nearest
    scores on the unaltered picture, unless named. Only classes can be explained so. The result's ``scores`` are the
    differences. Cost: the base's.

    The authors' code has also weighed the others by their probabilities, through which gradients flow too; that is
    another score than the mean above, and is not done here.

    Args:
        model: as for every method.
        layer: as for every method.
        base: the method asked, a class or a name; one that looks at the scores.
        others: the class or classes to tell each explained class from, which is itself left out; by default the
            ``nearest`` ones.
        gamma: how much the others count, 0 and up.
        nearest: how many others to take when none are named.
        base_options: what the base's constructor takes.
        output: as for every method.
        fuse: as for every method.

    Raises:
        UsageError: a base that looks at no class.
        TargetError: options of the difference that cannot be meant.

    Source: Zhang et al., "Finer-CAM: Spotting the Difference Reveals Finer Details for Visual Explanation", CVPR 2025,
    section 3.
    """

    name = "finercam"
    title = "Finer-CAM"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        base: type[Method] | str = GradCAM,
        others: ClassName | Sequence[ClassName] | None = None,
        gamma: float = 0.6,
        nearest: int = 3,
        base_options: Mapping[str, Any] | None = None,
        output: How = None,
        fuse: str | None = None,
    ) -> None:
        super().__init__(model, layer, base=base, base_options=base_options, output=output, fuse=fuse)
        if not self.base.class_specific:
            raise UsageError(
                f"base={base!r}: {self.base.title}{_over(self.base)} looks at no class, so it shows no difference of "
                "two. Give a base that does, such as GradCAM."
            )
        wanted = ClassDifference(0, others, gamma, nearest)  # raises for what cannot be meant
        class_index = self._loaded.class_index if self._loaded else plain_index
        self._wanted = replace(wanted, others=tuple(map(class_index, wanted.compared)) or None)

    def evidence(self, passes: Passes) -> Evidence:
        """The base's, of the differences."""
        return self.base.evidence(replace(passes, plan=_Differences(**vars(passes.plan), wanted=self._wanted)))


def _over(method: Method) -> str:
    """What a base itself is over, in words."""
    return f" over {method.base.title}{_over(method.base)}" if isinstance(method, Wrapper) else ""


@dataclass(frozen=True)
class _Differences(Plan):
    """A plan whose classes become differences once they are settled."""

    wanted: ClassDifference

    def settle(self, output: Output) -> Aims:
        rows = super().settle(output).targets
        return Aims(
            tuple(tuple(self._difference(one, output[row]) for one in targets) for row, targets in enumerate(rows))
        )

    def _difference(self, one: Target, row: Any) -> Target:
        if isinstance(one, ClassDifference):
            return one
        if type(one) is not ClassScore:
            raise TargetError(f"Finer-CAM tells classes apart; {one} is no class score. Give class indices or names.")
        others = None
        if self.wanted.others is not None:
            others = tuple(other for other in self.wanted.compared if other != one.target)
            if not others:
                raise TargetError(
                    f"others={list(self.wanted.compared)} is {one} itself: name another class to tell it from."
                )
        return replace(self.wanted, target=one.target, others=others).settled(row)
