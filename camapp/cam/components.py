"""The first principal component of what a layer gave, as a map: by the smaller of its two Gram matrices."""

from __future__ import annotations

import torch

# A component that holds less than this part of all energy is a rounding error: an amplitude of 1e-6 of the whole.
LEAST_ENERGY = 1e-12
# Below this cosine to what should give a component its sign, the sign would be a rounding error's.
LEAST_LIKENESS = 1e-6


def first_component(
    channels: torch.Tensor, *, centre: bool = True, towards: torch.Tensor | None = None
) -> torch.Tensor:
    r"""Each place's channels, projected on the direction in which the places differ most.

    With the channels of picture n as a matrix :math:`X` of a row a place, :math:`X = U \Sigma V^T`, the map is
    :math:`X v_1 = \sigma_1 u_1`. It is read off the smaller of :math:`X X^T` and :math:`X^T X`, in float64 where the
    device has it, which is many times faster than the decomposition of :math:`X` and as exact.

    The sign of a singular vector is arbitrary. Here it is the one that makes the inner product with ``towards``
    positive; where that says nothing, the value of the largest magnitude is positive.

    Args:
        channels: (N, C, *grid) of any rank and size.
        centre: subtract each channel's mean over the places first, as a principal component asks; without that it is
            the first singular vector.
        towards: (N, *grid), what the map shall agree with; by default the channels' sum.

    Returns:
        (N, *grid) of the channels' dtype, zero where the channels are flat, NaN where they are not finite. It may be
        differentiated (where the first singular value is not a double one).
    """
    places = channels.flatten(2).transpose(1, 2).to(wide(channels))  # (N, places, C)
    energy = places.detach().square().sum((1, 2))
    finite = energy.isfinite()
    if not finite.all():  # torch.linalg.eigh raises on NaN
        places = torch.where(finite[:, None, None], places, 0.0)
    agreed = places.sum(2) if towards is None else towards.flatten(1).to(places.dtype)
    if centre:
        places = places - places.mean(1, keepdim=True)
    fewer_places = places.shape[1] <= places.shape[2]
    gram = places @ places.mT if fewer_places else places.mT @ places
    vector, value = first_eigenvector(gram)
    across = places.mT @ vector[..., None] if fewer_places else vector[..., None]
    norm = across.square().sum(1, keepdim=True)
    component = (places @ across)[..., 0] / torch.where(norm > 0, norm, 1.0).sqrt()[..., 0]
    component = torch.where((value > LEAST_ENERGY * energy)[:, None], component, 0.0)
    component = component * _sign(component.detach(), agreed.detach())[:, None]
    component = torch.where(finite[:, None], component, float("nan"))
    return component.to(channels.dtype).unflatten(1, channels.shape[2:])


def first_eigenvector(matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The eigenvector of the largest eigenvalue of each symmetric matrix, and that eigenvalue.

    Args:
        matrices: (N, n, n), finite.

    Returns:
        (N, n) of length 1 and any sign, and (N,) without a graph. The vectors may be differentiated: torch's own
        derivative of ``eigh`` is NaN wherever any two eigenvalues are alike, this one only needs the first to be alone.
    """
    device = matrices.device
    solved = matrices.detach().cpu() if device.type == "mps" else matrices.detach()  # torch 2.14 has no eigh on MPS
    values, vectors = (each.to(device) for each in torch.linalg.eigh(solved))
    first, value = vectors[..., -1], values[..., -1]
    if not matrices.requires_grad:
        return first, value
    # First-order perturbation: the term is zero, and its derivative is that of the eigenvector.
    gaps = value[:, None] - values
    weights = torch.where(gaps > 0, 1 / torch.where(gaps > 0, gaps, 1.0), 0.0)
    change = ((matrices - matrices.detach()) @ first[..., None])[..., 0]
    turned = (vectors.mT @ change[..., None])[..., 0] * weights
    return first + (vectors @ turned[..., None])[..., 0], value


def wide(tensor: torch.Tensor) -> torch.dtype:
    """The most exact type to compute in on the tensor's device."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def signed_towards(component: torch.Tensor, towards: torch.Tensor) -> torch.Tensor:
    """The component (N, places) with the sign that ``first_component`` would give it."""
    return component * _sign(component.detach(), towards.detach())[:, None]


def _sign(component: torch.Tensor, towards: torch.Tensor) -> torch.Tensor:
    """The sign (N,) that makes the inner product positive, or the largest value where that is a rounding error."""
    inner = (component * towards).sum(1)
    least = LEAST_LIKENESS * component.norm(dim=1) * towards.norm(dim=1)
    largest = component.gather(1, component.abs().argmax(1, keepdim=True))[:, 0]
    return torch.where(torch.where(inner.abs() > least, inner, largest) < 0, -1.0, 1.0).to(component.dtype)
