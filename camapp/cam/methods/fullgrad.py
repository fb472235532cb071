"""FullGrad."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch

from camapp.backbones.layouts import find_layout
from camapp.cam.engine import Method
from camapp.cam.evidence import Evidence
from camapp.cam.from_input import FromInput, any_gradient, backward_each, from_input
from camapp.cam.passes import Passes
from camapp.cam.result import resize
from camapp.cam.targets.plan import Targets
from camapp.cam.watch import Watch
from camapp.errors import LayerError
from camapp.hooks.as_found import as_found
from camapp.hooks.attention import precise
from camapp.hooks.biases import Bias, Biases


@dataclass(frozen=True)
class FullGradParts:
    """What a score is made of; of a network of ReLUs the parts sum to the score.

    Args:
        scores: (B,) or (B, K), the score of each target.
        inputs: (B,) or (B, K), the input's part: its gradient times itself, summed.
        biases: by bias, (B,) or (B, K): its gradient times itself, summed. Named by torch's function and a number.
    """

    scores: torch.Tensor
    inputs: torch.Tensor
    biases: dict[str, torch.Tensor]

    @property
    def total(self) -> torch.Tensor:
        """The sum of all parts."""
        return self.inputs + sum(self.biases.values(), torch.zeros_like(self.inputs))


class FullGrad(Method):
    r"""FullGrad: the input's gradient times the input, and each bias's gradient map times the bias, put together.

    A network of ReLUs is linear in its input and its biases :math:`b` around any input :math:`x`, so that a score is
    :math:`f(x) = \nabla_x f^\top x + \sum_b \nabla_b f \, b`. The second sum has one map for each channel :math:`c` of
    a layer :math:`l`, :math:`f^b_c = b_c \, \partial f / \partial z^l_c`, with the layer's output :math:`z^l`. Then

    .. math:: S = \psi(\nabla_x f \odot x) + \sum_l \sum_{c \in l} \psi(f^b_c), \qquad
              \psi(m) = \mathrm{upsample}(\mathrm{rescale}(|m|)) .

    The biases are those of convolutions, of linear layers on tokens or channels-last maps, of normalisations, and the
    implicit one of a BatchNorm, :math:`\beta - \gamma \mu / \sigma`. Those without a place in the picture (of the
    classifier, of gates that pool) are parts of the sum above but not of the map. ``rescale`` stretches a layer's map
    to [0, 1] over all its channels together, as in the authors' code, where the paper leaves it open; ``upsample`` is
    linear by the cells' centres, as for all methods here (the authors' code aligns the corners).

    The sum is exact for networks of convolutions, linear layers, BatchNorm, ReLU and pooling, for targets that are raw
    scores. It is not for GELU, SiLU, sigmoid gates or LayerNorm, or where a model adds biases by itself; a note of the
    result says how far it is off. Maps show magnitudes: they do not tell what supports a class from what speaks against
    it. Cost: one forward, and for each target one backward through the whole network.

    Source: Srinivas and Fleuret, "Full-Gradient Representation for Neural Network Visualization", NeurIPS 2019,
    proposition 1, equation 4 and section 5.

    Example:
        >>> result = camapp.cam.FullGrad(model)(inputs, targets=281)
        >>> camapp.cam.FullGrad(model).parts(inputs, targets=281).total
    """

    name = "fullgrad"
    title = "FullGrad"
    cost = "one forward, and one backward through the whole network"
    takes_layer = False

    def parts(self, inputs: torch.Tensor, targets: Targets | None = None) -> FullGradParts:
        """What the scores are made of.

        Args:
            inputs: as for calls.
            targets: as for calls.

        Raises:
            UsageError, TargetError, LayerError, OutputError: as calls.
        """
        ready = self.ready(inputs, targets, False, Watch())
        with as_found(self.model):
            passes = ready()
            return _together([one.parts for one in _decompositions(passes)[1]], single=passes.plan.single)

    def evidence(self, passes: Passes) -> Evidence:
        """One forward, and one backward a target."""
        run, each = _decompositions(passes)
        raw, reached = (
            torch.stack([getattr(one, what) for one in each], dim=1).flatten(0, 1) for what in ("raw", "reached")
        )
        parts = _together([one.parts for one in each], single=False)
        return Evidence({"": raw.float()}, {"": reached}, run.shot, _notes(parts, passes.inputs.dtype))


@dataclass(frozen=True)
class _Decomposition:
    """What there is about one target a picture: raw (B, *size), reached (B,), and the parts, (B,) each."""

    raw: torch.Tensor
    reached: torch.Tensor
    parts: FullGradParts


def _decompositions(passes: Passes) -> tuple[FromInput, list[_Decomposition]]:
    with Biases() as biases:
        run = from_input(passes)
    # The scores and the summed gradients are of one precision, whatever autocast says.
    with torch.autocast(passes.inputs.device.type, enabled=False):
        each = backward_each(run.scores, [run.inputs, *(bias.output for bias in biases.found)])
        found = [_decomposition(passes, run, k, biases.found, gradients) for k, gradients in enumerate(each)]
    return run, found


def _decomposition(
    passes: Passes, run: FromInput, k: int, biases: list[Bias], gradients: list[torch.Tensor | None]
) -> _Decomposition:
    size, rows = tuple(passes.inputs.shape[2:]), len(passes.inputs)
    leaf = precise(run.inputs.detach())
    of_input = torch.zeros_like(leaf) if gradients[0] is None else gradients[0] * leaf
    raw = _psi(of_input, size)
    reached = any_gradient(of_input)
    sums: dict[str, torch.Tensor] = {}
    for number, (bias, gradient) in enumerate(zip(biases, gradients[1:], strict=True)):
        # Where rows are no pictures (windows, a table of positions) a whole number of them belongs to each, or none.
        if gradient is None or len(gradient) % rows:
            continue
        product = gradient * precise(bias.bias)
        sums[f"{bias.kind} {number}"] = product.flatten(1).sum(1).unflatten(0, (rows, -1)).sum(1)
        maps = _maps(product, bias, passes)
        if maps is not None:
            raw = raw + _psi(maps, size)
            reached = reached | any_gradient(maps)
    parts = FullGradParts(precise(run.scores[:, k].detach()), of_input.flatten(1).sum(1), sums)
    return _Decomposition(raw, reached, parts)


def _maps(product: torch.Tensor, bias: Bias, passes: Passes) -> torch.Tensor | None:
    """A bias's part as maps (B, C, *grid); None where it has no place in the picture."""
    if len(product) != len(passes.inputs):
        return None
    if bias.channels_last:
        try:
            layout = find_layout(passes.model, bias.kind, product.shape, passes.inputs.shape)
        except LayerError:
            return None
        product = product if layout.kind == "NCHW" else layout.to_maps(product)
    placed = product.dim() == passes.inputs.dim() and prod(product.shape[2:]) > 1
    return product if placed else None


def _psi(maps: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    """Magnitudes (B, C, *grid), stretched to [0, 1] together, summed over the channels, at the input's size."""
    flat = maps.abs().flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    stretched = (flat - low) / torch.where(high > low, high - low, 1.0)
    return resize(stretched.view_as(maps).sum(1), size)


def _together(each: list[FullGradParts], *, single: bool) -> FullGradParts:
    """The parts of K targets as (B, K), or of one as (B,)."""

    def joined(values: list[torch.Tensor]) -> torch.Tensor:
        return values[0] if single else torch.stack(values, dim=1)

    names = dict.fromkeys(name for one in each for name in one.biases)
    return FullGradParts(
        joined([one.scores for one in each]),
        joined([one.inputs for one in each]),
        {name: joined([one.biases.get(name, torch.zeros_like(one.inputs)) for one in each]) for name in names},
    )


def _notes(parts: FullGradParts, dtype: torch.dtype) -> tuple[str, ...]:
    """Say that the parts do not sum to the scores, where they do not."""
    magnitude = torch.stack([parts.scores, parts.inputs, *parts.biases.values()]).abs().amax(0)
    gap = (parts.scores - parts.total).abs() / magnitude.clamp(min=1e-12)
    worst = int(gap.flatten().argmax())
    tolerance = 1e-3 if dtype in (torch.float32, torch.float64) else 0.05
    if not float(gap.flatten()[worst]) > tolerance:
        return ()
    total, score = float(parts.total.flatten()[worst]), float(parts.scores.flatten()[worst])
    return (
        f"not complete: input and biases account for {total:.4g} of a score of {score:.4g}. They would for all of it "
        "in a network of ReLUs whose biases are those of its convolutions, linear layers and BatchNorms, and for raw "
        "scores as targets; smooth activations, gates, LayerNorm and biases added by the model itself break it",
    )
