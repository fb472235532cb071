"""FullGrad: the paper's theorem in float64, and the map written out the slow way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from camapp.cam.methods.fullgrad import FullGrad
from camapp.cam.targets import ClassDifference, ClassProbability
from camapp.errors import LayerError, UsageError
from tests.hooks.test_as_found import assert_same, state
from tests.hooks.test_capture import hooks_on
from tests.networks import InPlaceAfter, Plain, Reused, SkipAround


def stirred(model: nn.Module) -> nn.Module:
    """In float64 and eval mode, every bias and running statistic something else than zero and one."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)  # type: ignore[union-attr]
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


class Functional(nn.Module):
    """Every bias is added by a function, and some layers change their output in place."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(4))
        self.w2, self.b2 = nn.Parameter(torch.randn(4, 2, 3, 3)), nn.Parameter(torch.randn(2))
        self.w3, self.b3 = nn.Parameter(torch.randn(5, 2)), nn.Parameter(torch.randn(5))
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("variance", torch.rand(4) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.conv2d(x, self.w1, bias=self.b1, padding=1)
        x = F.batch_norm(x, self.mean, self.variance).relu_()
        x = F.conv_transpose2d(x, self.w2, self.b2, stride=2)
        x += x.flip(-1)
        return F.linear(F.leaky_relu(x, 0.1).amax((2, 3)), self.w3, self.b3)


def signal() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(4, 4, 3, groups=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 5),
    )  # fmt: skip


def volume() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(3, 4, 3, padding=1), nn.ReLU(), nn.BatchNorm3d(4, affine=False), nn.AvgPool3d(2), nn.Conv3d(4, 4, 2),
        nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, 5),
    )  # fmt: skip


def resnet() -> nn.Module:
    return torchvision.models.resnet18(weights=None, num_classes=5)


def densenet() -> nn.Module:
    return torchvision.models.DenseNet(8, (2, 2), 8, num_classes=5)


NETWORKS: list[tuple[Callable[[], nn.Module], tuple[int, ...], int]] = [
    (Plain, (12, 16), 5),
    (InPlaceAfter, (12, 16), 5),
    (SkipAround, (12, 16), 5),
    (Functional, (9, 7), 5),
    (signal, (20,), 5),
    (volume, (6, 8, 8), 5),
    (resnet, (40, 32), 5),
    (densenet, (40, 32), 5),
]


@pytest.mark.parametrize(("network", "size", "classes"), NETWORKS)
def test_input_and_biases_account_for_the_whole_score(
    network: Callable[[], nn.Module], size: tuple[int, ...], classes: int
) -> None:
    """The paper's proposition 1; a bias that is missed, or counted twice, breaks it."""
    model = stirred(network())
    inputs = torch.randn(2, 3, *size, dtype=torch.float64)
    parts = FullGrad(model).parts(inputs, [[0, classes - 1], [1, 2]])
    logits = model(inputs).detach()
    wanted = torch.stack([logits[0, [0, classes - 1]], logits[1, [1, 2]]])
    torch.testing.assert_close(parts.scores, wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(parts.total, wanted, rtol=1e-9, atol=1e-9)
    # none is counted that does not count: without any one of them the sum is another
    for name, part in parts.biases.items():
        assert (part != 0).any(), name


def test_the_parts_of_a_layer_called_twice_are_both_found() -> None:
    class Twice(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.relu(self.again(F.relu(self.again(self.stem(x)))))
            return self.head(F.relu(self.last(x)).mean((2, 3)))

    model = Twice()
    model.again = nn.Conv2d(6, 6, 3, padding=1)
    parts = FullGrad(stirred(model)).parts(torch.randn(1, 3, 10, 10, dtype=torch.float64), 1)
    assert len(parts.biases) == 5  # stem, again, again, last, head
    torch.testing.assert_close(parts.total, parts.scores, rtol=1e-10, atol=1e-10)


def slow_map(model: Plain, inputs: torch.Tensor, target: int) -> torch.Tensor:
    """Equation 4 for ``Plain``, channel by channel, from its own modules' outputs."""
    kept: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
            output.retain_grad()
            kept[name] = output
            return output.clone()

        return hook

    handles = [getattr(model, name).register_forward_hook(keep(name)) for name in ("stem", "norm", "last")]
    leaf = inputs.clone().requires_grad_()
    model(leaf)[0, target].backward()
    for handle in handles:
        handle.remove()
    norm = model.norm
    implicit = norm.bias - norm.weight * norm.running_mean / torch.sqrt(norm.running_var + norm.eps)  # type: ignore
    layers = [leaf.grad * inputs]  # type: ignore[operator]
    for name, bias in (("stem", model.stem.bias), ("norm", implicit), ("last", model.last.bias)):
        layers.append(torch.stack([kept[name].grad[0, c] * bias[c] for c in range(len(bias))])[None])  # type: ignore
    total = torch.zeros(inputs.shape[2:], dtype=torch.float64)
    for layer in layers:
        magnitudes = layer.detach().abs()
        low, high = magnitudes.min(), magnitudes.max()
        for channel in magnitudes[0]:
            stretched = ((channel - low) / (high - low))[None, None]
            total += F.interpolate(stretched, size=tuple(inputs.shape[2:]), mode="bilinear", align_corners=False)[0, 0]
    return total


def test_the_map_is_the_papers_written_out_channel_by_channel() -> None:
    model = stirred(Plain())
    inputs = torch.randn(1, 3, 12, 20, dtype=torch.float64)
    result = FullGrad(model)(inputs, 3)
    torch.testing.assert_close(result.raw[0].double(), slow_map(model, inputs, 3), rtol=1e-6, atol=1e-6)  # type: ignore
    assert result.notes == ()
    assert (result.raw >= 0).all()


class Smooth(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.stem(x)))
        return self.head(F.gelu(self.last(x)).mean((2, 3)))


def test_a_network_for_which_the_theorem_does_not_hold_is_told_of() -> None:
    inputs = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    assert "not complete" in FullGrad(stirred(Smooth()))(inputs, 1).notes[0]
    plain = stirred(Plain())
    assert "not complete" in FullGrad(plain)(inputs, ClassProbability(1)).notes[0]
    assert FullGrad(plain)(inputs, ClassDifference(1, 2)).notes == ()
    parts = FullGrad(stirred(Smooth())).parts(inputs, 1)
    assert (parts.total - parts.scores).abs().max() > 1e-3


def test_a_network_of_biases_that_are_not_seen_is_told_of() -> None:
    class Adds(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Parameter(torch.randn(6, 1, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = F.relu(self.norm(self.stem(x)) + self.extra)
            return self.head(F.relu(self.last(x)).mean((2, 3)))

    result = FullGrad(stirred(Adds()))(torch.randn(1, 3, 16, 16, dtype=torch.float64), 1)
    assert "biases added by the model itself" in result.notes[0]


def test_linear_layers_on_tokens_have_a_place_without_their_class_token() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 4, 4, stride=4, bias=False)
            self.mix = nn.Linear(4, 4)
            self.head = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([tokens[:, :1] * 0, tokens], dim=1)
            return self.head(F.relu(self.mix(tokens))[:, 1:].mean(1))

    model = stirred(Tokens())
    inputs = torch.zeros(1, 3, 12, 8, dtype=torch.float64)
    inputs[:, :, 8:, 4:] = 3.0  # one patch of 3 x 2
    parts = FullGrad(model).parts(inputs, 1)
    torch.testing.assert_close(parts.total, parts.scores)
    leaf = inputs.clone().requires_grad_()
    tokens = model.mix(torch.cat([torch.zeros(1, 1, 4), model.patches(leaf).flatten(2).transpose(1, 2)], 1).double())
    (gradient,) = torch.autograd.grad(model.head(F.relu(tokens)[:, 1:].mean(1))[0, 1], tokens, retain_graph=True)
    (of_input,) = torch.autograd.grad(model.head(F.relu(tokens)[:, 1:].mean(1))[0, 1], leaf)
    total = torch.zeros(12, 8, dtype=torch.float64)
    for layer in (of_input * inputs, (gradient * model.mix.bias)[:, 1:].transpose(1, 2).reshape(1, 4, 3, 2)):
        magnitudes = layer.detach().abs()
        stretched = (magnitudes - magnitudes.min()) / (magnitudes.max() - magnitudes.min())
        total += F.interpolate(stretched, size=(12, 8), mode="bilinear", align_corners=False).sum(1)[0]
    torch.testing.assert_close(FullGrad(model)(inputs, 1).raw[0].double(), total, rtol=1e-6, atol=1e-6)


def test_several_classes_and_a_batch_equal_one_by_one() -> None:
    model, inputs = Reused().eval(), torch.randn(3, 3, 16, 12)
    classes = [[0, 2], [2, 2], [1, 0]]
    engine = FullGrad(model)
    together = engine(inputs, classes)
    for row in range(3):
        for k in range(2):
            alone = engine(inputs[row : row + 1], classes[row][k])
            torch.testing.assert_close(together.raw[row, k], alone.raw[0], rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(together.scores[row, k], alone.scores[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_float32_maps_near_the_full_ones(dtype: torch.dtype) -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 32, 32)
    wanted = FullGrad(model)(inputs, 1).raw
    result = FullGrad(model.to(dtype))(inputs, 1)
    assert result.raw.dtype == torch.float32
    assert result.notes == ()
    # A ReLU whose input is within rounding of zero may open or close, which moves its few pixels altogether.
    near = (result.raw - wanted).abs() <= 0.03 * wanted.abs().max()
    assert near.float().mean() >= 0.97


def test_scores_that_do_not_depend_on_the_picture_and_cut_graphs_say_so() -> None:
    class Cut(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).detach()

    model = Plain().eval()
    nn.init.zeros_(model.head.weight)
    result = FullGrad(model)(torch.randn(1, 3, 16, 16), 0)
    assert str(result.reasons[0]).startswith("no gradient: the score does not depend on the picture")
    with pytest.raises(LayerError, match="detaches"):
        FullGrad(Cut().eval())(torch.randn(1, 3, 16, 16), 0)
    with pytest.raises(UsageError, match="takes no layer"):
        FullGrad(Plain(), "last")


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("target", [1, 99])
def test_the_model_is_left_as_found_also_on_errors(mode: Any, target: int) -> None:
    model = InPlaceAfter().train()
    model(torch.randn(2, 3, 16, 16)).sum().backward()
    inputs = torch.randn(2, 3, 16, 16, requires_grad=True)
    wanted = FullGrad(model)(inputs, 1).raw
    with mode():
        before = state(model)
        if target == 1:
            assert torch.equal(FullGrad(model)(inputs, target).raw, wanted)
        else:
            with pytest.raises(ValueError, match="out of range"):
                FullGrad(model)(inputs, target)
        assert_same(before, state(model))
    assert hooks_on(model) == 0
    assert inputs.grad is None
