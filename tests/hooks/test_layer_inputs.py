"""What goes into a layer is recorded like what comes out of one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from camapp.cam import GradCAM
from camapp.errors import LayerError
from camapp.hooks.as_found import as_found
from camapp.hooks.capture import Capture
from camapp.hooks.layers import Layer, find_layer
from camapp.hooks.visits import Visits
from tests.hooks.test_capture import hooks_on
from tests.networks import Plain, Reused


class Chain(Plain):
    """The input of ``act`` is the output of ``last``, which ``act`` overwrites."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.act(self.last(F.relu(self.norm(self.stem(x))))).mean((2, 3)))


@pytest.mark.parametrize("targets", [1, [[0, 1], [2, 3]]])
def test_the_input_of_a_layer_is_the_output_of_the_one_before(targets: object) -> None:
    model, inputs = Chain().eval(), torch.randn(2, 3, 16, 16)
    result = GradCAM(model, "act:input")(inputs, targets)
    assert result.layer == "act:input"
    assert torch.equal(result.raw, GradCAM(model, "last")(inputs, targets).raw)
    assert not torch.equal(result.raw, GradCAM(model, "act")(inputs, targets).raw)
    assert hooks_on(model) == 0


def test_the_input_of_one_call_of_a_reused_layer() -> None:
    model, inputs = Reused().eval(), torch.randn(1, 3, 8, 8)
    assert torch.equal(GradCAM(model, "relu@1:input")(inputs, 0).raw, GradCAM(model, "two")(inputs, 0).raw)


class Keyword(Plain):
    """Gives its layer a mask first and the map by name."""

    class Masked(nn.Module):
        def forward(self, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return torch.where(mask, x, 0.0)

    def __init__(self) -> None:
        super().__init__()
        self.masked = self.Masked()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.last(F.relu(self.norm(self.stem(x)))))
        return self.head(self.masked(torch.ones_like(y, dtype=torch.bool), x=y).mean((2, 3)))


def test_the_first_tensor_of_real_numbers_is_taken_wherever_it_is_given() -> None:
    model, inputs = Keyword().eval(), torch.randn(1, 3, 16, 16)
    with as_found(model):
        with Capture(model, ["masked:input"]) as capture:
            scores = model(inputs)[:, 0]
        capture.backward(scores)
    tap = capture["masked:input"]
    wanted = F.relu(model.last(F.relu(model.norm(model.stem(inputs)))))
    torch.testing.assert_close(tap.activation, wanted.detach())
    torch.testing.assert_close(tap.gradient, model.head.weight[0].detach().view(1, 8, 1, 1).expand_as(wanted) / 16)


def test_a_layer_without_such_an_input_is_refused() -> None:
    class Silent(nn.Module):
        def forward(self) -> torch.Tensor:
            return torch.ones(1)

    class Outer(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.silent = Silent()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.silent()

    with pytest.raises(LayerError, match='"silent" is given no tensor of real numbers'):
        GradCAM(Outer().eval(), "silent:input")(torch.randn(1, 3, 8, 8), 0)


@pytest.mark.parametrize(
    ("name", "key", "call", "is_input"),
    [
        ("relu", "relu", None, False),
        ("relu@2", "relu@2", 2, False),
        ("relu:input", "relu:input", None, True),
        ("relu@0:input", "relu@0:input", 0, True),
    ],
)
def test_places_are_named_and_read_alike(name: str, key: str, call: int | None, is_input: bool) -> None:
    layer = find_layer(Reused(), name)
    assert (layer.key, layer.name, layer.call, layer.input) == (key, "relu", call, is_input)
    with pytest.raises(LayerError, match="Did you mean relu"):
        find_layer(Reused(), name.replace("relu", "relux"))


def test_activations_alone_are_recorded_without_a_graph() -> None:
    model, inputs = Chain().eval(), torch.randn(2, 3, 16, 16)
    with as_found(model), Capture(model, ["act:input", "last"], graph=False) as capture:
        output = model(inputs)
    assert not output.requires_grad
    assert torch.equal(capture["act:input"].activation, capture["last"].activation)
    assert capture["last"].activation.min() < 0  # before act overwrote it


class TwoInputs(nn.Module):
    """A layer that is given one tensor by place and one by name."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = Mix()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(x, (x * 2,), gate=x * 3)


class Mix(nn.Module):
    def forward(self, x: torch.Tensor, more: tuple[torch.Tensor], gate: torch.Tensor) -> torch.Tensor:
        return x + 10 * more[0] + 100 * gate


@pytest.mark.parametrize(("place", "seen", "result"), [("0", 1, 320), ("1.0", 2, 301), ("gate", 3, 21), (None, 1, 320)])
def test_each_of_several_inputs_has_a_place_of_its_own(place: str | None, seen: float, result: float) -> None:
    model, inputs = TwoInputs(), torch.ones(1, 1)
    given = []

    def visit(layer: Layer, call: int, tensor: torch.Tensor) -> torch.Tensor:
        given.append(tensor.item())
        return tensor * 0

    with Visits([Layer("mix", model.mix, input=True, output=place)], visit):
        assert model(inputs).item() == result
    assert given == [seen]


def test_an_input_that_is_not_there_is_named_with_those_that_are():
    model = TwoInputs()
    layers = [Layer("mix", model.mix, input=True, output="7")]
    with Visits(layers, lambda *_: None), pytest.raises(LayerError, match=r'the tensors 0, 1.0, gate; "#7" is none'):
        model(torch.ones(1, 1))
