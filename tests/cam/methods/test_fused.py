"""Fused: its parts, its one pass, and what it does where nothing can be mirrored."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from camapp.backbones.recommend import stages
from camapp.cam import GradCAM, TopClasses
from camapp.cam.methods.fused import Fused
from camapp.cam.methods.products import LayerCAM
from camapp.errors import UsageError
from tests.autograd_oracle import full_autograd
from tests.networks import Plain, Segmenter, Signals, SkipAround, Staged

LAYERS = ["last", "late", "middle"]


def unbiased() -> Staged:
    """A network whose top class has evidence for it at the last map: the mean of Grad-CAM's map is the score."""
    model = Staged().eval()
    nn.init.zeros_(model.head.bias)
    return model


def stretched(raw: torch.Tensor, size: tuple[int, ...]) -> np.ndarray:
    wide = F.interpolate(raw.double().clamp(min=0)[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]
    low, high = wide.amin((1, 2), keepdim=True), wide.amax((1, 2), keepdim=True)
    return ((wide - low) / (high - low)).numpy()


def test_the_map_is_the_geometric_mean_of_its_parts_seen_from_both_sides() -> None:
    model, inputs = unbiased(), torch.randn(2, 3, 24, 16)
    classes = model(inputs).argmax(1).tolist()
    product = np.ones((2, 24, 16))
    for layer in LAYERS:
        sides = []
        for picture in (inputs, inputs.flip(3)):
            activation, gradient = (each.double() for each in full_autograd(model, layer, picture, classes))
            weights = gradient.mean((2, 3), keepdim=True) if layer == "last" else gradient.clamp(min=0)
            sides.append((weights * activation).sum(1))
        product *= stretched((sides[0] + sides[1].flip(2)) / 2, (24, 16))
    result = Fused(model, LAYERS)(inputs, classes)
    # A cube root makes much of the last digits of values near 0, so those are compared before it.
    np.testing.assert_allclose(result.raw.numpy() ** 3, product, rtol=0, atol=1e-5)
    torch.testing.assert_close(result.scores, GradCAM(model, "last")(inputs, classes).scores)
    assert result.layer == "last + late + middle"


def test_the_picture_and_its_mirror_image_go_through_in_one_forward() -> None:
    model, inputs = Staged().eval(), torch.randn(3, 3, 16, 16)
    forwards: list[int] = []
    model.stem.register_forward_hook(lambda _, args, __: forwards.append(len(args[0])))
    Fused(model, LAYERS)(inputs, [[0, 1], [2, 3], [4, 0]])
    assert forwards == [6]


def test_the_map_of_a_mirrored_picture_is_the_mirrored_map() -> None:
    model, inputs = unbiased(), torch.randn(2, 3, 16, 28)
    engine = Fused(model, LAYERS)
    there, back = engine(inputs, TopClasses(1)).raw[:, 0], engine(inputs.flip(3), TopClasses(1)).raw[:, 0]
    assert (there.flatten(1).amax(1) > 0.1).all()
    torch.testing.assert_close(back**3, there.flip(2) ** 3, rtol=0, atol=1e-5)


def test_the_top_class_is_the_pictures_and_not_its_mirror_images() -> None:
    model = Staged().eval()
    inputs = torch.randn(128, 3, 8, 8)
    with torch.no_grad():
        model.head.bias -= model(inputs).mean(0)  # no class leads for all pictures alike
    turned = model(inputs).argmax(1) != model(inputs.flip(3)).argmax(1)
    assert turned.any()
    inputs = inputs[turned][:4]
    result = Fused(model, LAYERS)(inputs)
    assert result.targets.tolist() == model(inputs).argmax(1).tolist()
    torch.testing.assert_close(result.logits, model(inputs).detach())
    assert result.maps.any()
    torch.testing.assert_close(result.raw, Fused(model, LAYERS)(inputs, result.targets.tolist()).raw)


@pytest.mark.parametrize(("network", "layers"), [(Staged, LAYERS), (SkipAround, ["last", "norm"])])
def test_classes_at_once_and_batches_equal_one_by_one(network: type[nn.Module], layers: list[str]) -> None:
    model, inputs = network().eval(), torch.randn(3, 3, 16, 20)
    engine = Fused(model, layers)
    together = engine(inputs, TopClasses(2))
    for row in range(3):
        for k in range(2):
            alone = engine(inputs[row : row + 1], int(together.targets[row, k]))
            torch.testing.assert_close(alone.raw[0] ** 3, together.raw[row, k] ** 3, rtol=0, atol=1e-5)
            torch.testing.assert_close(alone.scores[0], together.scores[row, k])


def test_what_speaks_against_a_class_is_what_speaks_for_its_negated_score() -> None:
    model, inputs = unbiased(), torch.randn(2, 3, 16, 16)
    engine = Fused(model, LAYERS)
    negative = engine(inputs, 1, sign="negative")
    torch.testing.assert_close(negative.maps, engine(inputs, lambda row: -row[1]).maps)
    positive, both = engine(inputs, 1), engine(inputs, 1, sign="both")
    assert negative.maps.any()
    torch.testing.assert_close(both.raw, positive.raw + negative.raw)


def test_one_layer_is_read_both_ways() -> None:
    model, inputs = unbiased(), torch.randn(1, 3, 16, 16)
    top = int(model(inputs).argmax())
    parts = []
    for method in (GradCAM, LayerCAM):
        sides = [method(model, "late")(picture, top).raw for picture in (inputs, inputs.flip(3))]
        parts.append(stretched((sides[0] + sides[1].flip(2)) / 2, (16, 16)))
    raw = Fused(model, "late")(inputs, top).raw.numpy()
    np.testing.assert_allclose(raw**2, parts[0] * parts[1], rtol=0, atol=1e-5)


def test_without_layers_it_takes_the_stages_of_the_network() -> None:
    model, inputs = Staged().eval(), torch.randn(1, 3, 16, 16)
    found = stages(model, inputs)
    assert Fused(model)(inputs, 1).layer == f"{found.last} + {found.coarse} + {found.fine}"


def test_signals_are_explained_without_a_mirror_image_and_a_note_says_so() -> None:
    model, inputs = Signals().eval(), torch.randn(2, 2, 24)
    result = Fused(model, ["late", "body"])(inputs, 1)
    parts = [GradCAM(model, "late")(inputs, 1).maps, LayerCAM(model, "body")(inputs, 1).maps]
    torch.testing.assert_close(result.raw**2, parts[0] * parts[1], rtol=0, atol=1e-5)
    assert any(note.startswith("not mirrored") for note in result.notes)


def test_regions_are_explained_without_a_mirror_image() -> None:
    model, inputs = Segmenter().eval(), torch.randn(2, 3, 8, 12)
    result = Fused(model, ["body.1", "body.0"])(inputs, 1)
    parts = [GradCAM(model, "body.1")(inputs, 1).maps, LayerCAM(model, "body.0")(inputs, 1).maps]
    torch.testing.assert_close(result.raw**2, parts[0] * parts[1], rtol=0, atol=1e-5)
    assert any(note.startswith("not mirrored") for note in result.notes)
    assert result.target_names == ["region of class 1"] * 2


def test_a_layer_without_a_gradient_is_a_reason() -> None:
    class Detached(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.relu(self.norm(self.stem(x)))
            return self.head(x.mean((2, 3)).repeat(1, 2)[:, :8] + 0 * self.last(x).mean((2, 3)))

    result = Fused(Detached().eval(), ["last", "norm"])(torch.randn(1, 3, 16, 16), 1)
    assert result.reasons[0] is not None
    assert not result.maps.any()


def test_maps_have_finite_gradients_where_a_part_is_nothing() -> None:
    model, inputs = unbiased(), torch.randn(1, 3, 16, 16, requires_grad=True)
    maps = Fused(model, LAYERS)(inputs, create_graph=True).maps
    assert (maps == 0).any()
    (gradient,) = torch.autograd.grad(maps.sum(), inputs)
    assert gradient.isfinite().all()
    assert gradient.any()


def test_another_way_to_fuse_is_taken_and_an_unknown_one_refused() -> None:
    model, inputs = unbiased(), torch.randn(1, 3, 16, 16)
    product, root = Fused(model, LAYERS, fuse="product")(inputs), Fused(model, LAYERS)(inputs)
    assert product.maps.any()
    torch.testing.assert_close(root.raw**3, product.raw, rtol=0, atol=1e-6)
    with pytest.raises(UsageError, match="fuse='harmonic'"):
        Fused(model, fuse="harmonic")
