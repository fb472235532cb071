"""Smooth: which copies are explained, and that their maps are mirrored back and averaged."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from camapp.cam import GradCAM, TopClasses
from camapp.cam.methods.finercam import FinerCAM
from camapp.cam.methods.products import LayerCAM
from camapp.cam.methods.sess import SESS
from camapp.cam.methods.smooth import Smooth
from camapp.cam.result import Sign
from camapp.errors import UsageError
from tests.networks import Plain, Segmenter, Signals, Staged


class Linear(nn.Module):
    """One channel, handed on as it is: Grad-CAM's map is the picture over the number of its places."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(self.layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).mean((2, 3))


def test_the_map_is_the_mean_of_the_pictures_and_its_mirror_images_mirrored_back() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 20, 12)
    base = GradCAM(model, "last")
    wanted = (base(inputs, [1, 4]).raw + base(inputs.flip(3), [1, 4]).raw.flip(2)) / 2
    result = Smooth(model, "last")(inputs, [1, 4])
    torch.testing.assert_close(result.raw, wanted)
    torch.testing.assert_close(result.scores, base(inputs, [1, 4]).scores)  # of the picture itself


def test_the_map_of_a_mirrored_picture_is_the_mirrored_map() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 12)
    engine = Smooth(model, "last", intensities=(0.9, 1.1), base=LayerCAM)
    torch.testing.assert_close(engine(inputs.flip(3), 2).raw, engine(inputs, 2).raw.flip(2))
    assert not torch.allclose(
        LayerCAM(model, "last")(inputs.flip(3), 2).raw, LayerCAM(model, "last")(inputs, 2).raw.flip(2)
    )


def test_the_top_classes_are_those_of_the_unaltered_picture() -> None:
    model = Plain().eval()
    inputs = torch.randn(128, 3, 8, 8)
    with torch.no_grad():
        model.head.bias -= model(inputs).mean(0)  # no class leads for all pictures alike
    turned = model(inputs).argmax(1) != model(inputs.flip(3)).argmax(1)
    assert turned.any()  # pictures whose mirror image is taken for something else
    inputs = inputs[turned][:3]
    result = Smooth(model, "last")(inputs)
    assert result.targets.tolist() == model(inputs).argmax(1).tolist()
    torch.testing.assert_close(result.raw, Smooth(model, "last")(inputs, result.targets.tolist()).raw)
    torch.testing.assert_close(result.logits, model(inputs).detach())


def test_intensities_multiply_the_input_beside_the_picture_itself() -> None:
    inputs = torch.rand(1, 1, 6, 6)
    engine = Smooth(Linear(), "layer", flips=False, intensities=(2.0, 1.0, 0.5))
    torch.testing.assert_close(engine(inputs, 0).raw, inputs[:, 0] / 36 * (1 + 2.0 + 0.5) / 3)


def test_noise_is_as_wide_as_asked_of_each_pictures_range() -> None:
    inputs = torch.rand(2, 1, 96, 96)
    inputs[1] *= 10
    result = Smooth(Linear(), "layer", flips=False, noise=0.2, samples=3)(inputs, 0)
    deviation = result.raw * 96 * 96 - inputs[:, 0]
    span = inputs.flatten(1).amax(1) - inputs.flatten(1).amin(1)
    # The mean of the picture and three noisy ones: a standard deviation of sqrt(3) / 4 of the noise's.
    torch.testing.assert_close(
        deviation.flatten(1).std(1) / span, torch.full((2,), 0.2 * 3**0.5 / 4), rtol=0.03, atol=0
    )
    assert deviation.mean().abs() < 0.05


def test_noise_is_repeatable_and_the_same_in_every_batch() -> None:
    model, inputs = Plain().eval(), torch.randn(3, 3, 16, 16)
    engine = Smooth(model, "last", noise=0.1, samples=2)
    state = torch.get_rng_state()
    together = engine(inputs, [0, 1, 2])
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(engine(inputs[1:2], 1).raw, together.raw[1:2])
    assert not torch.allclose(Smooth(model, "last", noise=0.1, samples=2, seed=1)(inputs, [0, 1, 2]).raw, together.raw)


def test_several_classes_at_once_equal_one_by_one() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    engine = Smooth(model, ["norm", "last"], base=FinerCAM, base_options={"nearest": 2})
    together = engine(inputs, TopClasses(2))
    for k in range(2):
        alone = engine(inputs, together.targets[:, k].tolist())
        torch.testing.assert_close(together.maps[:, k], alone.maps, rtol=0, atol=1e-5)


def test_every_copy_is_counted() -> None:
    told: list[tuple[int, int]] = []
    engine = Smooth(Plain(), "last", intensities=(0.9,), noise=0.1, samples=2)
    engine(torch.randn(2, 3, 16, 16), 1, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (24, 24)  # 2 pictures, 2 sides, 2 intensities, 3 draws
    assert len(told) == 12


@pytest.mark.parametrize(
    ("model", "layer", "shape"), [(Signals(), "late", (2, 2, 24)), (Segmenter(), "body.0", (2, 3, 8, 12))]
)
def test_what_cannot_be_mirrored_is_not_and_a_note_says_so(
    model: nn.Module, layer: str, shape: tuple[int, ...]
) -> None:
    inputs = torch.randn(shape)
    result = Smooth(model, layer)(inputs, 1)
    torch.testing.assert_close(result.raw, GradCAM(model, layer)(inputs, 1).raw)
    assert any(note.startswith("not mirrored") for note in result.notes)
    assert Smooth(model, layer, flips=False)(inputs, 1).notes == ()


def test_maps_can_be_differentiated_where_the_bases_can() -> None:
    model, inputs = Staged().double().eval(), torch.randn(1, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    raw = Smooth(model, "middle")(inputs, 1, create_graph=True).raw
    (found,) = torch.autograd.grad(raw.sum(), inputs)
    (parts,) = torch.autograd.grad(
        sum(GradCAM(model, "middle")(x, 1, create_graph=True).raw.sum() for x in (inputs, inputs.flip(3))) / 2, inputs
    )
    torch.testing.assert_close(found, parts)


def test_maps_over_a_base_that_cannot_be_differentiated_cannot_be_either() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    for base, options in (("scorecam", {}), ("smooth", {"base": "shapleycam"}), ("sess", {})):
        engine = Smooth(model, "last", base=base, base_options=options)
        assert not engine.differentiable
        with pytest.raises(UsageError, match="cannot be differentiated"):
            engine(inputs, 1, create_graph=True)
    assert Smooth(model, "last").differentiable
    assert Smooth.differentiable


@pytest.mark.parametrize("sign", ["positive", "negative", "both"])
def test_what_a_base_has_against_the_class_is_mirrored_and_averaged_too(sign: Sign) -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 12)
    options = {"scales": 2, "blur": False}
    base = SESS(model, "last", **options)  # type: ignore[arg-type]
    wanted = (base(inputs, 1, sign=sign).raw + base(inputs.flip(3), 1, sign=sign).raw.flip(2)) / 2
    assert wanted.abs().max() > 0.1
    found = Smooth(model, "last", base=SESS, base_options=options)(inputs, 1, sign=sign).raw
    torch.testing.assert_close(found, wanted)


def test_wrong_options_are_refused() -> None:
    for options in ({"noise": -0.1}, {"samples": 0}, {"intensities": (0.0,)}):
        with pytest.raises(UsageError, match=next(iter(options))):
            Smooth(Plain(), "last", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="base=7"):
        Smooth(Plain(), "last", base=7)  # type: ignore[arg-type]
