"""RefineCAM: the product of the layers' maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from camapp.backbones.recommend import stages
from camapp.cam import GradCAM
from camapp.cam.engine import Method
from camapp.cam.evidence import Evidence
from camapp.cam.methods.products import LayerCAM
from camapp.cam.methods.refinecam import RefineCAM
from camapp.cam.passes import Passes
from camapp.errors import UsageError
from tests.autograd_oracle import full_autograd
from tests.networks import Plain, Staged


def stretched(raw: torch.Tensor, size: tuple[int, int]) -> np.ndarray:
    """The positive part at another size, stretched to [0, 1], in float64."""
    wide = F.interpolate(raw.double().clamp(min=0)[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]
    low, high = wide.amin((1, 2), keepdim=True), wide.amax((1, 2), keepdim=True)
    return ((wide - low) / (high - low)).numpy()


def test_the_map_is_the_product_of_the_stretched_maps_of_the_layers() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 20, 12)
    product = np.ones((2, 20, 12))
    for layer in ("norm", "last"):
        activation, gradient = full_autograd(model, layer, inputs, [1, 3])
        product *= stretched((gradient.double().clamp(min=0) * activation.double()).sum(1), (20, 12))
    result = RefineCAM(model, ["norm", "last"])(inputs, [1, 3])
    np.testing.assert_allclose(result.raw.numpy(), product, rtol=0, atol=1e-5)
    highest = product.max((1, 2), keepdims=True)
    lowest = product.min((1, 2), keepdims=True)
    np.testing.assert_allclose(result.maps.numpy(), (product - lowest) / (highest - lowest), rtol=0, atol=1e-5)


def test_another_base_and_the_order_of_the_layers() -> None:
    model, inputs = Staged().eval(), torch.randn(1, 3, 16, 16)
    forth = RefineCAM(model, ["middle", "last"], base=GradCAM)(inputs, 2)
    back = RefineCAM(model, ["last", "middle"], base="gradcam")(inputs, 2)
    torch.testing.assert_close(forth.maps, back.maps)
    parts = [stretched(GradCAM(model, layer)(inputs, 2).raw, (16, 16)) for layer in ("middle", "last")]
    np.testing.assert_allclose(forth.raw.numpy(), parts[0] * parts[1], rtol=0, atol=1e-5)


def test_without_layers_it_takes_the_stages_of_the_network() -> None:
    model, inputs = Staged().eval(), torch.randn(1, 3, 16, 16)
    found = stages(model, inputs)
    result = RefineCAM(model)(inputs, 0)
    assert result.layer == f"{found.fine} + {found.coarse} + {found.last}"
    wanted = LayerCAM(model, [found.last, found.coarse, found.fine], fuse="product")(inputs, 0)
    torch.testing.assert_close(result.maps, wanted.maps)


def test_all_layers_share_one_forward() -> None:
    model, inputs = Staged().eval(), torch.randn(2, 3, 16, 16)
    forwards: list[int] = []
    model.stem.register_forward_hook(lambda *_: forwards.append(1))
    RefineCAM(model, ["middle", "late", "last"])(inputs, [[0, 1], [2, 3]])
    assert len(forwards) == 1


class Global(Method):
    """A method that looks at the whole network."""

    name = "global"
    title = "Global"
    takes_layer = False

    def evidence(self, passes: Passes) -> Evidence:
        raise NotImplementedError


def test_a_single_layer_and_a_base_without_layers_are_refused() -> None:
    model = Plain()
    with pytest.raises(UsageError, match="'last' is one layer"):
        RefineCAM(model, "last")
    with pytest.raises(UsageError, match="one layer"):
        RefineCAM(model, ["last", "last"])
    with pytest.raises(UsageError, match="Global looks at the whole network"):
        RefineCAM(model, base=Global)
