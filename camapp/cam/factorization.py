"""Deep feature factorisation: the few concepts that a layer's activations on some pictures are made of."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.head import find_head
from camapp.cam.layer_method import ActivationMethod
from camapp.cam.result import resize
from camapp.cam.targets.output import How, Output
from camapp.cam.watch import Watch
from camapp.errors import LayerError, UsageError
from camapp.hooks.as_found import as_found

# The factors are refined until so many rounds better the squared error by less than this part of it.
CHECKED_EVERY = 10
LEAST_GAIN = 1e-3
# Or until so little of the activations' energy is left: an amplitude of 1e-6.
LEAST_REST = 1e-12
# A first guess may lead to factors that no refinement makes good: of several, the best after some rounds is kept.
STARTS = 4
FIRST_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class Factorization:
    """What B pictures have in common, as k concepts, the strongest first.

    Args:
        maps: (B, k, *size) float32 at the input's size, where each concept is: 0 and up, and about 1 at the place of
            all pictures where it is strongest.
        raw: (B, k, *grid) float32, the same at the layer's size, of a maximum of 1.
        concepts: (k, C) float32, each concept as the channels of the place where it is strongest, 0 and up.
        scores: (k, classes) float32, the class scores of a picture that would show one concept everywhere, where the
            layer is averaged into a linear head; None elsewhere.
        error: what the concepts do not explain, as the Frobenius norm of the difference over that of the activations.
        layer: the layer factorised.
        notes: what a user should know.
    """

    maps: torch.Tensor
    raw: torch.Tensor
    concepts: torch.Tensor
    scores: torch.Tensor | None
    error: float
    layer: str
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows, concepts = self.maps.shape[:2]
        return f'Factorization({concepts} concepts of {rows} picture(s) at "{self.layer}", error {self.error:.3f})'


def factorize(
    model: nn.Module | LoadedModel,
    inputs: torch.Tensor,
    layer: str | nn.Module | None = None,
    concepts: int = 5,
    *,
    output: How = None,
    seed: int = 0,
    rounds: int = 200,
) -> Factorization:
    r"""Find the concepts in a layer's activations on one picture or several: parts that light together.

    The activations, as a matrix :math:`A` of a row a place of all pictures, are factorised into non-negative
    :math:`H` (places by concepts) and :math:`W` (concepts by channels) of least :math:`\lVert A - H W \rVert_F`, by
    hierarchical alternating least squares from the best of four random starts. Negative activations count as zero, and
    a note says how much they held.
    Several pictures share their concepts, so that the same part has the same number in all of them. Cost: one forward.

    Args:
        model: any ``nn.Module``, or a ``LoadedModel``; left as it was found.
        inputs: (B, C, *size), normalised as the model wants them.
        layer: a name or a module; the recommended one by default.
        concepts: k, how many; 1 and up, and no more than the layer's channels or places.
        output: which part of what the model returns holds class scores, as for the methods.
        seed: of the first guesses; the same seed gives the same concepts.
        rounds: at most so many rounds of refinement.

    Raises:
        UsageError: a number of concepts that there cannot be.
        LayerError: the layer does not run, does not map onto the picture, or is not finite.

    Source: Collins et al., "Deep Feature Factorization for Concept Discovery", ECCV 2018, section 3; the updates are
    those of Cichocki and Phan, "Fast Local Algorithms for Large Scale Nonnegative Matrix and Tensor Factorizations",
    2009.

    Example:
        >>> found = factorize(model, inputs, "layer4", concepts=4)
        >>> found.maps[0, 0], found.scores.argmax(1)
    """
    reader = _Activations(model, layer, output=output)
    ready = reader.ready(inputs, _nothing, False, Watch())
    with as_found(reader.model):
        passes = ready()
        found = reader.evidence(passes)
    if len(found.raws) > 1:
        raise UsageError(f"Concepts are made of one layer; given are {', '.join(passes.layers)}.")
    ((key, activation),) = found.raws.items()
    rows, channels, grid = activation.shape[0], activation.shape[1], activation.shape[2:]
    places = activation.flatten(2).transpose(1, 2).flatten(0, 1)
    if isinstance(concepts, bool) or not isinstance(concepts, int) or not 0 < concepts <= min(places.shape):
        raise UsageError(
            f"concepts = {concepts!r}; {len(places)} places of {channels} channels can be made of 1 to "
            f"{min(places.shape)}."
        )
    if not places.isfinite().all():
        raise LayerError(f'"{key}" gives NaN or infinity for these pictures. Look at the inputs and the weights.')
    with torch.autocast(activation.device.type, enabled=False), torch.no_grad():
        strengths, vectors = _factors(places.clamp(min=0), concepts, seed, rounds)
        rest = (places.clamp(min=0) - strengths @ vectors).norm()
        raw = strengths.view(rows, *grid, concepts).movedim(-1, 1)
        maps = torch.stack([resize(raw[:, k], tuple(inputs.shape[2:])) for k in range(concepts)], 1)
        scores = _scores(reader.model, key, activation, found.shot.output, vectors)
    return Factorization(
        maps=maps,
        raw=raw,
        concepts=vectors,
        scores=scores,
        error=float(rest / places.clamp(min=0).norm().clamp(min=torch.finfo(torch.float32).tiny)),
        layer=key,
        notes=_notes(places, key),
    )


class _Activations(ActivationMethod):
    """Reads a layer as the methods do, and leaves what it gave as it is."""

    name = "activations"
    title = "Deep feature factorisation"

    def combine(self, activation: torch.Tensor) -> torch.Tensor:
        return activation


def _nothing(row: object) -> torch.Tensor:
    """A target for those who have none: a factorisation is the same for every class."""
    return torch.zeros(())


def _factors(matrix: torch.Tensor, count: int, seed: int, rounds: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Non-negative factors of a non-negative matrix (P, C): (P, k), each of a maximum of 1, and (k, C)."""
    generator = torch.Generator().manual_seed(seed)
    size = (matrix.mean() / count).sqrt()
    tried = []
    for _ in range(STARTS):
        left = torch.rand(len(matrix), count, generator=generator, device="cpu").to(matrix) * size
        right = torch.rand(count, matrix.shape[1], generator=generator, device="cpu").to(matrix) * size
        tried.append(_improved(matrix, left, right, min(rounds, FIRST_ROUNDS)))
    left, right, _ = min(tried, key=lambda one: one[2])
    left, right, _ = _improved(matrix, left, right, rounds)
    peak = left.amax(0)
    left, right = left / torch.where(peak > 0, peak, 1.0), right * peak[:, None]
    order = (left.norm(dim=0) * right.norm(dim=1)).argsort(descending=True, stable=True)
    return left[:, order], right[order]


def _improved(
    matrix: torch.Tensor, left: torch.Tensor, right: torch.Tensor, rounds: int
) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Better factors, and the square of what they leave unexplained."""
    rest = total = float(matrix.square().sum())
    for done in range(1, rounds + 1):
        left = _refined(left, matrix @ right.T, right @ right.T)
        right = _refined(right.T, matrix.T @ left, left.T @ left).T
        if done % CHECKED_EVERY and done < rounds:
            continue
        before, rest = rest, float((matrix - left @ right).square().sum())
        if before - rest <= LEAST_GAIN * before or rest <= LEAST_REST * total:
            break
    return left, right, rest


def _refined(factor: torch.Tensor, products: torch.Tensor, gram: torch.Tensor) -> torch.Tensor:
    """One round over the columns of a factor (n, k), each set to its best given the others."""
    factor = factor.clone()
    for k in range(factor.shape[1]):
        size = gram[k, k]
        step = torch.where(size > 0, (products[:, k] - factor @ gram[:, k]) / torch.where(size > 0, size, 1.0), 0.0)
        factor[:, k] = (factor[:, k] + step).clamp(min=0)
    return factor


def _scores(
    model: nn.Module, key: str, activation: torch.Tensor, output: Output, vectors: torch.Tensor
) -> torch.Tensor | None:
    """The concepts' class scores, where the layer is averaged into a linear head."""
    if not isinstance(output, torch.Tensor) or output.dim() != 2:
        return None
    try:
        return find_head(model, key, activation, output).scores(vectors)
    except LayerError:  # no such head: the concepts are as good without
        return None


def _notes(places: torch.Tensor, key: str) -> tuple[str, ...]:
    below = float(places.clamp(max=0).square().sum() / places.square().sum().clamp(min=torch.finfo(torch.float32).tiny))
    if below == 0:
        return ()
    return (f'{below:.0%} of the energy of "{key}" is negative activation, which counts as zero here',)
