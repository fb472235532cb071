"""FEM."""

from __future__ import annotations

import torch
from torch import nn

from camapp.backbones.load import LoadedModel
from camapp.cam.engine import LayerChoice
from camapp.cam.layer_method import ActivationMethod
from camapp.cam.methods.channels import over_places
from camapp.cam.targets.output import How
from camapp.errors import UsageError

# A channel that varies less than this part of its mean is constant but for rounding errors.
LEAST_DEVIATION = 1e-6


class FEM(ActivationMethod):
    r"""Feature Explanation Method: where channels are rare in their strength, each counted by its mean activation.

    With the mean :math:`\mu_k` and the standard deviation :math:`\sigma_k` of channel :math:`k` over its places,

    .. math:: B^k_{ij} = [A^k_{ij} > \mu_k + K \sigma_k], \qquad L_{ij} = \sum_k \mu_k B^k_{ij} .

    The same for every class. Meant for layers behind a ReLU, whose means are not negative. A constant channel is rare
    nowhere (the paper's "at least" would light it everywhere, or not, by rounding). grad-cam's FEM is another method:
    it weighs the activations themselves by the share of rare places. Cost: one forward.

    Args:
        model: as for ``Method``.
        layer: as for ``Method``.
        output: as for ``Method``.
        fuse: as for ``Method``.
        k: the :math:`K` of the paper, in standard deviations.

    Raises:
        UsageError: ``k`` is no finite number.

    Source: Fuad et al., "Features Understanding in 3D CNNs for Actions Recognition in Video", IPTA 2020, section III
    (the K-sigma filter, K = 2).
    """

    name = "fem"
    title = "FEM"

    def __init__(
        self,
        model: nn.Module | LoadedModel,
        layer: LayerChoice = None,
        *,
        output: How = None,
        fuse: str | None = None,
        k: float = 2.0,
    ) -> None:
        super().__init__(model, layer, output=output, fuse=fuse)
        if not abs(k) < float("inf"):
            raise UsageError(f"k = {k!r}; needed is a number of standard deviations, such as 2.")
        self.k = k

    def combine(self, activation: torch.Tensor) -> torch.Tensor:
        """The channels' means, summed where each is rare, (N, *grid)."""
        flat = activation.flatten(2)
        mean, deviation = flat.mean(2), flat.std(2, correction=0)
        varies = deviation > LEAST_DEVIATION * mean.abs()
        rare = activation > over_places(mean + self.k * deviation, activation)
        found = (over_places(torch.where(varies, mean, 0.0), activation) * rare).sum(1)
        # A comparison hides NaN; here it must show.
        broken = over_places(~flat.isfinite().flatten(1).all(1, keepdim=True), activation)[:, 0]
        return torch.where(broken, float("nan"), found)
