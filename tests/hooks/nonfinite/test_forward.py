"""NaN and infinities planted in a forward are found where they were planted."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.hooks.nonfinite.planted import Scale, located, network, pictures

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("place", range(7))
@pytest.mark.parametrize("own_backward", [False, True])
def test_the_module_that_makes_nan_is_named_wherever_it_is(place: int, own_backward: bool) -> None:
    model, x = network(Scale(NAN), place), pictures()

    def step() -> torch.Tensor | None:
        loss = model(x).sum()
        return loss.backward() if own_backward else loss

    finding = located(model, step)
    assert finding is not None
    assert (finding.place, finding.phase) == ("module", "forward")
    assert finding.module is not None
    assert (finding.module.name, finding.module.kind, finding.module.call) == (str(place), "Scale", 0)
    # The pictures want no gradient, so that autograd knows nothing of what is done to them alone.
    assert (finding.operation, finding.autograd) == ("aten.mul.Tensor", "MulBackward0" if place else None)
    shape = tuple(model[:place](x).shape)
    (given,), (made,) = finding.inputs, finding.outputs
    assert given.shape == made.shape == shape
    assert (given.nan, given.inf, made.nan, made.inf) == (0, 0, x.new_zeros(shape).numel(), 0)
    assert (finding.before and finding.before.name) == (str(place - 1) if place else None)
    assert (finding.after and finding.after.name) == (str(place + 1) if place < 6 else None)


def test_the_largest_input_and_the_numbers_of_nan_and_inf_are_counted_by_element() -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / x.new_tensor([1.0, 0.0, 0.0, 2.0])

    model = nn.Sequential(Odd(), nn.Linear(4, 1))
    x = torch.tensor([[-7.0, 3.0, 0.0, 5.0], [1.0, -2.0, 4.0, 1.0]])
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.nan, finding.inf) == (1, 3)  # 0/0, and 3/0, -2/0, 4/0
    assert finding.largest_input == 7.0
    assert finding.outputs[0].largest == 7.0
    assert not finding.overflow


def test_an_inplace_relu_between_hides_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Scale(NAN), nn.ReLU(inplace=True), nn.ReLU(inplace=True), nn.Linear(4, 1))
    x = torch.randn(2, 4)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert finding.module.name == "1"


def test_a_value_that_an_inplace_operation_makes_is_its_own() -> None:
    class Logarithm(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.log_()

    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Logarithm(), nn.Linear(4, 1))
    x = torch.randn(8, 4)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert (finding.module.name, finding.operation) == ("2", "aten.log_.default")
    assert finding.inputs[0].inf == 0


def test_a_reused_module_is_named_with_the_call_that_failed() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = Scale(INF, call=1)
            self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale(self.two(self.scale(self.one(x))))

    model, x = Twice(), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert (finding.module.name, finding.module.call, finding.module.calls) == ("scale", 1, 2)
    assert str(finding.module) == "scale@1 (Scale)"
    assert finding.before is not None
    assert finding.before.name == "two"


class Ratio(nn.Module):
    """Divides by zero in its own forward, between two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x)
        x = F.relu(x) / (x - x)
        return self.two(x)


@pytest.mark.parametrize("own_backward", [False, True])
def test_an_operation_between_modules_is_named_with_its_container_and_the_modules_around(own_backward: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 3), Ratio(), nn.Linear(2, 2))
    x = torch.randn(2, 3)

    def step() -> torch.Tensor | None:
        loss = model(x).sum()
        return loss.backward() if own_backward else loss

    finding = located(model, step)
    assert finding is not None
    assert (finding.place, finding.operation, finding.autograd) == (
        "between modules",
        "aten.div.Tensor",
        "DivBackward0",
    )
    assert [call and call.name for call in (finding.module, finding.before, finding.after)] == ["1", "1.one", "1.two"]
    assert finding.line is not None
    assert finding.line.rpartition(":")[0] == __file__


def test_autograds_name_is_known_also_where_the_gradient_of_the_loss_is_given() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), Ratio(), nn.Linear(2, 2)), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum().backward(gradient=torch.ones(())))
    assert finding is not None
    assert finding.autograd == "DivBackward0"


def test_a_network_on_nested_tensors_is_measured() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x, padding = torch.randn(2, 4, 8), torch.tensor([[False, False, False, True], [False, False, True, True]])

    def step() -> torch.Tensor:
        with torch.no_grad():
            return model(x, src_key_padding_mask=padding).sum()

    assert located(model, step) is None
    with torch.no_grad():
        model.layers[1].linear1.weight[0, 0] = NAN
    finding = located(model, step)
    assert finding is not None
    assert (finding.place, finding.tensor) == ("parameter", "layers.1.linear1.weight")


def test_a_forward_called_without_its_module_is_its_callers_operation() -> None:
    class Caller(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.bad, self.two = nn.Linear(3, 3), Scale(NAN), nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.bad.forward(self.one(x)))

    model, x = Caller(), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert [call and call.name for call in (finding.module, finding.before, finding.after)] == ["", "one", "two"]


def test_a_module_called_by_another_than_its_parent_is_still_named() -> None:
    class Stranger(nn.Module):
        def __init__(self, other: nn.Module) -> None:
            super().__init__()
            self.others = [other]  # in a list, so that it is no child

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.others[0](x)

    bad = Scale(NAN)
    model = nn.ModuleDict({"bad": bad, "caller": Stranger(bad), "head": nn.Linear(3, 1)})
    x = torch.randn(2, 3)
    finding = located(model, lambda: model["head"](model["caller"](x)).sum())
    assert finding is not None
    assert finding.module is not None
    assert finding.module.name == "bad"


def test_outputs_in_dicts_are_followed() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.good, self.bad = nn.Linear(3, 3), Scale(2.0), Scale(NAN)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            x = self.body(x)
            return {"good": self.good(x), "bad": self.bad(x)}

    model, x = Two(), torch.randn(2, 3)
    finding = located(model, lambda: sum(part.sum() for part in model(x).values()))
    assert finding is not None
    assert finding.module is not None
    assert finding.module.name == "bad"
    assert located(model, lambda: model(x)["good"].sum()) is None  # what the loss does not see does no harm


@pytest.mark.parametrize("layers", [1, 2])
def test_of_two_lstms_the_one_with_the_spoiled_weight_is_named(layers: int) -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.LSTM(3, 4, layers, batch_first=True)
            self.second = nn.LSTM(4, 4, layers, batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x, _ = self.first(x)
            _, (hidden, _) = self.second(x)
            return self.head(hidden[-1])

    model, x = Tagger(), torch.randn(2, 5, 3)
    with torch.no_grad():
        model.second.weight_hh_l0[0, 0] = NAN
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert (finding.place, finding.module.name, finding.tensor) == ("parameter", "second", "second.weight_hh_l0")
    with torch.no_grad():
        model.second.weight_hh_l0[0, 0] = 0.0
    assert located(model, lambda: model(x).sum()) is None


def test_a_value_written_into_a_slice_is_followed_to_who_wrote_it() -> None:
    class Assembled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.good, self.bad, self.head = Scale(2.0), Scale(NAN), nn.Linear(6, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            both = torch.empty(len(x), 6)
            both[:, 3:] = self.bad(x)
            both[:, :3] = self.good(x)
            return self.head(both)

    model, x = Assembled(), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert finding.module.name == "bad"


@pytest.mark.parametrize("way", ["copy_", "out"])
def test_what_is_overwritten_whole_plays_no_part(way: str) -> None:
    class Overwrites(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bad, self.head = Scale(NAN), nn.Linear(3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            room = torch.full_like(x, NAN)
            bad = self.bad(x)
            room = torch.add(bad, 1, out=room) if way == "out" else room.copy_(bad)
            return self.head(room)

    model, x = Overwrites(), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert finding.module.name == "bad"


def test_only_the_slice_that_goes_on_counts() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.spoils, self.head = nn.Linear(4, 4), HalfBad(), nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            clean, spoiled = self.spoils(self.body(x)).chunk(2, dim=1)
            return self.head(clean / 0.0) + 0 * spoiled.detach().nan_to_num().sum()

    class HalfBad(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.tensor([1.0, 1.0, NAN, NAN])

    model, x = Halves(), torch.randn(2, 4)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.operation, finding.place) == ("aten.div.Tensor", "between modules")


def test_a_module_given_twice_by_name_and_nested_in_itself_keeps_its_calls_apart() -> None:
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.step = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
            x = self.step(x)
            return self(x, depth - 1) if depth else x / 0.0

    model = nn.Sequential(Recursive(), nn.Linear(3, 1))
    x = torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert (finding.module.name, finding.module.call) == ("0", 2)
    assert finding.before is not None
    assert (finding.before.name, finding.before.call) == ("0.step", 2)


def test_scripted_modules_within_are_their_containers_operations() -> None:
    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 0.0

    model = nn.Sequential(nn.Linear(3, 3), torch.jit.script(Doubled()), nn.Linear(3, 1))
    x = torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert [call and call.name for call in (finding.module, finding.before, finding.after)] == ["", "0", "2"]
