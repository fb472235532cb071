"""SESS."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice, Method
from camapp.cam.evidence import SIDES, Evidence
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.methods.wrapper import Wrapper
from camapp.cam.passes import Passes
from camapp.cam.result import normalised_maps
from camapp.cam.targets.classes import ClassProbability, ClassScore
from camapp.cam.targets.output import How
from camapp.cam.targets.plan import Aims
from camapp.cam.targets.target import Target
from camapp.errors import TargetError, UsageError

_INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}

# The smoothing of the fused map, in pixels, as in the authors' code.
BLUR, SIGMA = 11, 5.0


class SESS(Wrapper):
    r"""SESS: windows that slide over the enlarged picture are explained one by one, and their maps put back together.

    The picture is enlarged to ``scales`` sizes, each ``step`` larger than the one before. On each a window of the
    input's own size slides by its whole size, the last one pulled back to the border. Of each window :math:`i` the
    base's map :math:`M_i`, its positive part stretched to [0, 1], counts as much as the class is seen there,
    :math:`p_i / \max_j p_j` with its probability :math:`p_i`, and is put back where the window was:

    .. math:: L = \frac{\sum_i \tilde{M}_i}{\sum_i [\tilde{M}_i > \theta]}, \qquad
              \tilde{M}_i = \operatorname{place}_i \left( \frac{p_i}{\max_j p_j} M_i \right) ,

    a mean at each place over the windows that hold something there; then it is blurred. Small objects and several of
    them are found better, by windows in which they are large. The maps do not add up to a score, and a place that only
    one window holds counts as if all did.

    For a target that is no class the window's score, or 0 where it is negative, takes the probability's place. The
    model must give a vector for each picture; a region or a box is lost in a window. ``sign="negative"`` puts together
    what speaks against the class in each window. Cost: with 12 scales 122 windows a picture, each one forward for its
    score, and the base's cost for its map.

    Args:
        model: as for every method.
        layer: as for every method.
        base: the method asked about each window, a class or a name.
        scales: how many sizes, the picture's own included.
        step: by how much of its own size the picture grows from one to the next.
        prefilter: the part of the windows, those of the lowest scores, that is not explained at all, 0 up to 1.
        theta: the value above which a window counts at a place.
        pool: "mean", or "max" for the greatest value of any window.
        blur: whether the fused map is blurred, over 11 pixels.
        batch_size: how many windows the model is given at once.
        base_options: what the base's constructor takes.
        output: as for every method.
        fuse: as for every method.

    Raises:
        UsageError: options that cannot be meant.

    Source: Tursun et al., "SESS: Saliency Enhancing with Scaling and Sliding", ECCV 2022, section 3; sizes and blur as
    in the authors' code.
    """

    name = "sess"
    title = "SESS"
    cost = "a forward and a backward for each of about a hundred windows"
    runs_many = True
    differentiable = False

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        base: type[Method] | str = GradCAM,
        scales: int = 12,
        step: float = 2 / 7,
        prefilter: float = 0.0,
        theta: float = 0.0,
        pool: str = "mean",
        blur: bool = True,
        batch_size: int = 16,
        base_options: Mapping[str, Any] | None = None,
        output: How = None,
        fuse: str | None = None,
    ) -> None:
        super().__init__(model, layer, base=base, base_options=base_options, output=output, fuse=fuse)
        for option, value in (("scales", scales), ("batch_size", batch_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"{option} = {value!r} is no positive whole number.")
        if not 0 < step < math.inf:
            raise UsageError(
                f"step = {step} does not enlarge the picture: give a part of its size above 0, such as 2/7."
            )
        if not 0 <= prefilter < 1:
            raise UsageError(f"prefilter = {prefilter} leaves no window: give a part from 0 up to, but not, 1.")
        if not 0 <= theta < 1:
            raise UsageError(f"theta = {theta} is above every value: maps lie between 0 and 1.")
        if pool not in ("mean", "max"):
            raise UsageError(f'pool={pool!r}; use "mean" or "max".')
        self.scales, self.step = scales, step
        self.prefilter, self.theta = prefilter, theta
        self.pool, self.blur, self.batch_size = pool, blur, batch_size

    def evidence(self, passes: Passes) -> Evidence:
        """One picture after another, its windows in chunks."""
        shot = passes.at().activations(lambda seen: ())
        if not isinstance(shot.output, torch.Tensor) or shot.output.dim() != 2:
            raise TargetError(
                "SESS explains windows of the picture, where regions, boxes and scores of places mean something else. "
                "It needs a model that gives a vector for each picture, such as class scores."
            )
        asked = passes.aiming(shot.aims)
        windows = self._windows(tuple(passes.inputs.shape[2:]))
        passes.watch.expect(2 * len(windows) * len(passes.inputs))
        found = [self._of_picture(asked, row, windows) for row in range(len(passes.inputs))]
        speaks_for, against = (torch.cat(each) for each in zip(*found, strict=True))
        return Evidence({"": speaks_for}, {}, shot, against={"": -against})

    def _windows(self, size: tuple[int, ...]) -> list[_Window]:
        found = []
        for number in range(self.scales):
            large = tuple(side + number * max(round(side * self.step), 1) for side in size)
            starts = [[*range(0, long - side, side), long - side] for long, side in zip(large, size, strict=True)]
            found += [_Window(size, large, start) for start in product(*starts)]
        return found

    def _of_picture(self, passes: Passes, row: int, windows: list[_Window]) -> tuple[torch.Tensor, torch.Tensor]:
        """What speaks for and against each of the K targets of one picture, (K, *size) each."""
        picture, size = passes.inputs[row : row + 1], tuple(passes.inputs.shape[2:])
        targets = (passes.plan.targets or ())[row]
        seen = Aims((tuple(_probability(one) for one in targets),))
        scores = torch.cat([passes.scores(_windows_of(picture, some), seen, 0) for some in self._chunks(windows)])
        weights = _weights(scores.float(), self.prefilter)  # (windows, K)
        explained = [number for number, kept in enumerate((weights > 0).any(1).tolist()) if kept]
        passes.watch.step(len(windows) - len(explained))
        sums = [_Sum(self.theta, self.pool, weights.new_zeros(len(targets), *size)) for _ in SIDES]
        for chunk in self._chunks(explained):
            some = [windows[number] for number in chunk]
            plan = replace(passes.plan, targets=(targets,) * len(some))
            run = replace(passes, inputs=_windows_of(picture, some), plan=plan)
            evidence = self.base.evidence(run)
            for sign, total in zip(SIDES, sums, strict=True):
                maps = normalised_maps(evidence.one_map(size, sign, self.base.fuse)[0], size, sign)[0]
                maps = maps.unflatten(0, (len(some), -1)) * weights[chunk].view(len(some), -1, *[1] * len(size))
                for one, window in zip(maps, some, strict=True):
                    total.add(window.put_back(one))
            passes.watch.step(len(some))
        speaks_for, against = (_blurred(total.value()) if self.blur else total.value() for total in sums)
        return speaks_for, against

    def _chunks(self, windows: list[Any]) -> list[list[Any]]:
        return [windows[start : start + self.batch_size] for start in range(0, len(windows), self.batch_size)]


@dataclass(frozen=True)
class _Window:
    """A part of the enlarged picture, as large as the picture itself.

    Args:
        size: the picture's size.
        large: the enlarged picture's.
        start: where the window begins in it.
    """

    size: tuple[int, ...]
    large: tuple[int, ...]
    start: tuple[int, ...]

    @property
    def place(self) -> tuple[Any, ...]:
        """What picks the window out of the enlarged picture."""
        return (..., *(slice(at, at + side) for at, side in zip(self.start, self.size, strict=True)))

    def cut(self, enlarged: torch.Tensor) -> torch.Tensor:
        """The window of an enlarged picture (1, C, *large)."""
        return enlarged[self.place]

    def put_back(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps (K, *size) of the window as maps of the picture, 0 around the window."""
        canvas = maps.new_zeros(len(maps), *self.large)
        canvas[self.place] = maps
        return _resized(canvas[:, None], self.size)[:, 0]


def _windows_of(picture: torch.Tensor, windows: list[_Window]) -> torch.Tensor:
    """The windows (n, C, *size) of one picture (1, C, *size)."""
    enlarged = {large: _resized(picture, large) for large in {window.large for window in windows}}
    return torch.cat([window.cut(enlarged[window.large]) for window in windows])


def _resized(tensor: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    return F.interpolate(tensor, size=size, mode=_INTERPOLATION[len(size)], align_corners=False)


class _Sum:
    """The windows of one picture put together, one by one, so that memory does not grow with them."""

    def __init__(self, theta: float, pool: str, zeros: torch.Tensor) -> None:
        self.theta, self.pool = theta, pool
        self.total, self.count = zeros, torch.zeros_like(zeros)

    def add(self, placed: torch.Tensor) -> None:
        if self.pool == "max":
            self.total = torch.maximum(self.total, placed)
            return
        counts = placed > self.theta
        self.total = self.total + torch.where(counts, placed, 0.0)
        self.count = self.count + counts

    def value(self) -> torch.Tensor:
        return self.total / self.count.clamp(min=1)


def _probability(one: Target) -> Target:
    """How much of a target there is in a window, where it is a class."""
    return ClassProbability(one.target) if type(one) is ClassScore else one


def _weights(scores: torch.Tensor, prefilter: float) -> torch.Tensor:
    """Scores (windows, K) as weights from 0 to 1, those of the lowest ``prefilter`` part 0."""
    weights = scores.clamp(min=0)
    highest = weights.amax(0)
    weights = torch.where(highest > 0, weights / torch.where(highest > 0, highest, 1.0), 1.0)
    lowest = scores.argsort(dim=0, stable=True)[: int(len(scores) * prefilter)]
    return weights.scatter(0, lowest, 0.0)


def _blurred(maps: torch.Tensor) -> torch.Tensor:
    """Maps (K, *size) under a Gaussian, one axis after another, mirrored at the borders."""
    places = torch.arange(BLUR, device=maps.device, dtype=maps.dtype) - BLUR // 2
    kernel = (-(places**2) / (2 * SIGMA**2)).exp()
    kernel = kernel / kernel.sum()
    for axis in range(1, maps.dim()):
        lines = maps.movedim(axis, -1)
        mode = "reflect" if lines.shape[-1] > BLUR // 2 else "replicate"
        padded = F.pad(lines.reshape(-1, 1, lines.shape[-1]), (BLUR // 2, BLUR // 2), mode=mode)
        maps = F.conv1d(padded, kernel.view(1, 1, -1)).view(lines.shape).movedim(-1, axis)
    return maps
