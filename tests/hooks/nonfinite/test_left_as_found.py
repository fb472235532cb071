"""The model is left as it was found, whatever the step does."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from camapp.errors import ModelError, UsageError
from camapp.hooks.nonfinite import RandomState, locate
from tests.hooks.nonfinite.planted import Scale, ScaleGradient, located, network, pictures, state

NAN = float("nan")


def mixed() -> nn.Sequential:
    """Some modules train and some do not; some parameters learn and some do not; one has a gradient that is NaN."""
    model = network(ScaleGradient(NAN), 3).train()
    model.insert(3, nn.Dropout(0.5))
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model[0].weight.grad = None
    model[5].weight.grad = torch.full_like(model[5].weight, NAN)
    return model


def test_all_of_a_mixed_model_is_as_it_was() -> None:
    model, x = mixed(), pictures()
    assert located(model, lambda: model(x).sum()) is not None  # and located() holds the model against what it was


@pytest.mark.parametrize("interruption", [ValueError("of the step's own"), KeyboardInterrupt()])
@pytest.mark.parametrize("backward", [False, True])
def test_an_error_of_the_step_passes_through_and_all_is_as_it_was(interruption: BaseException, backward: bool) -> None:
    model, x = mixed(), pictures()

    def step() -> None:
        output = model(x).sum()
        if backward:
            output.backward()
        raise interruption

    with pytest.raises(type(interruption)) as raised:
        located(model, step)
    assert raised.value is interruption


def test_an_error_within_a_module_leaves_no_trace_and_the_next_call_finds_what_it_should() -> None:
    class Falters(nn.Module):
        fails = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.fails:
                raise RuntimeError("not this time")
            return x * NAN

    model, x = network(Falters(), 3), pictures()
    with pytest.raises(RuntimeError, match="not this time"):
        located(model, lambda: model(x).sum())
    model[3].fails = False
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert (finding.module.name, finding.module.call) == ("3", 0)


def test_an_error_that_the_model_catches_itself_does_not_confuse_who_runs() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("as ever")

    class Tries(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(3, 3), Fails())
            self.bad = Scale(NAN)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            try:
                return self.inner(x)
            except RuntimeError:
                return self.bad(x)

    model, x = nn.Sequential(nn.Linear(3, 3), Tries(), nn.Linear(3, 1)), torch.randn(2, 3)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.module and finding.module.name) == ("module", "1.bad")


def test_an_optimizer_in_the_step_leaves_the_parameters_as_they_were() -> None:
    model, x = network(Scale(NAN), 3), pictures()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        model(x).sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    finding = located(model, step)
    assert finding is not None
    assert finding.module is not None
    assert finding.module.name == "3"
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_gradients_that_are_zeroed_in_place_are_as_they_were() -> None:
    model, x = network(Scale(1.0), 3), pictures()
    held = [torch.ones_like(parameter) for parameter in model.parameters()]
    for parameter, gradient in zip(model.parameters(), held, strict=True):
        parameter.grad = gradient

    def step() -> None:
        for gradient in held:
            gradient.zero_()
        model(x).sum().backward()

    assert located(model, step) is None
    assert all(torch.equal(gradient, torch.ones_like(gradient)) for gradient in held)


def test_gradients_that_were_there_before_are_no_symptom() -> None:
    model, x = network(Scale(1.0), 3), pictures()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, NAN)
    assert located(model, lambda: model(x).sum().backward()) is None


def test_a_grad_mode_of_the_callers_is_kept_and_does_not_keep_the_backward_from_running() -> None:
    model, x = network(ScaleGradient(NAN), 3), pictures()
    with torch.no_grad():
        finding = located(model, lambda: model(x).sum())
        assert not torch.is_grad_enabled()
    assert finding is not None
    assert finding.phase == "backward"
    with torch.inference_mode():
        x = x + 0.0  # an inference tensor, which a backward cannot use
        copied = torch.randn(2, 3, 6, 6)
        with torch.inference_mode(False):
            usable = copied.clone()
        assert locate(model, lambda: model(usable).sum()) is not None
        assert torch.is_inference_mode_enabled()


class DividesWhereDropped(nn.Module):
    """NaN if dropout happened to drop the first of eight numbers, and not the second."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.drop(torch.ones(len(x), 8))
        wrong = (kept[:, :1] == 0) & (kept[:, 1:2] > 0)
        return self.body(x) * torch.where(wrong, NAN, 1.0)


def test_dropout_drops_the_same_again_with_the_random_state_of_the_failing_step() -> None:
    model, x = DividesWhereDropped().train(), torch.ones(1, 2)
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        before = RandomState.capture(model)
        failed = bool(model(x).sum().isnan())
        torch.manual_seed(99)
        finding = located(model, lambda: model(x).sum(), random_state=before)
        assert (finding is not None) == failed
        seen.add(failed)
    assert seen == {False, True}


def test_without_a_random_state_the_next_numbers_are_drawn_and_then_drawn_again() -> None:
    model, x = network(Scale(1.0), 3), pictures()
    model.insert(3, nn.Dropout(0.5))
    drawn = []
    torch.manual_seed(7)
    locate(model, lambda: drawn.append(torch.rand(3)) or model(x).sum())
    assert torch.equal(drawn[0], torch.rand(3))


def test_what_the_step_sees_is_what_it_would_see_without_being_watched() -> None:
    model, x = mixed(), pictures()
    seen = []

    def step() -> torch.Tensor:
        torch.manual_seed(3)
        output = model(x)
        seen.append(output.detach().clone())
        return output.sum()

    step()
    locate(model, step)
    assert torch.equal(*seen)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's own count of memory")
def test_what_the_step_frees_is_free_while_it_is_watched() -> None:
    def resident() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

    model, grown = nn.Linear(2, 1), []

    def step() -> torch.Tensor:
        before, x = resident(), torch.ones(2_500_000)  # 10 MB
        for _ in range(60):
            x = x * 1.0
        grown.append(resident() - before)
        return model(torch.ones(1, 2)).sum() + x.sum()

    assert locate(model, step) is None
    assert grown[0] < 150  # of the 600 MB that went through


def test_gradients_of_single_examples_by_vmap_are_followed() -> None:
    class Root(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.square().sum().sqrt()

    model, x = nn.Sequential(nn.Linear(3, 3, bias=False), Root()), torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def step() -> torch.Tensor:
        of_one = torch.func.grad(lambda held, one: torch.func.functional_call(model, held, (one,)))
        return torch.func.vmap(of_one, in_dims=(None, 0))(parameters, x)["0.weight"].sum()

    finding = located(model, step)
    assert finding is not None
    assert finding.phase == "backward"
    assert finding.autograd == "SqrtBackward0"


def test_hooks_of_the_users_own_run_and_stay() -> None:
    model, x = network(Scale(NAN), 3), pictures()
    ran = []
    handle = model[0].register_forward_hook(lambda *_: ran.append("forward"))
    assert located(model, lambda: model(x).sum()) is not None
    assert ran == ["forward"]
    assert handle.id in model[0]._forward_hooks


def test_what_hooks_of_the_users_own_do_to_inputs_and_outputs_is_their_modules() -> None:
    model, x = network(Scale(1.0), 3), pictures()
    handle = model[3].register_forward_pre_hook(lambda module, args: (args[0] / 0.0,))
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.module and finding.module.name) == ("module", "3")
    handle.remove()
    model[4].register_forward_hook(lambda module, args, output: output * NAN)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.module and finding.module.name) == ("module", "4")


def test_a_compiled_model_and_a_dataparallel_one_are_seen_inside() -> None:
    inner, x = network(Scale(NAN), 3), pictures()
    for model in (torch.compile(inner, backend="eager"), nn.DataParallel(inner)):
        if isinstance(model, nn.DataParallel) and torch.cuda.is_available():
            continue  # it would move what it is given to a GPU
        before = state(inner)
        finding = locate(model, lambda model=model: model(x).sum())
        assert finding is not None
        assert finding.module is not None
        assert finding.module.name == "3"
        assert before["hooks"] == state(inner)["hooks"]


def test_what_was_compiled_before_runs_as_it_was_written() -> None:
    inner, x = network(Scale(NAN), 3), pictures()
    inner[3].compile(backend="eager")
    whole = torch.compile(lambda x: inner(x).sum(), backend="eager")
    whole(x)
    finding = locate(inner, lambda: whole(x))
    assert finding is not None
    assert finding.module is not None
    assert finding.module.name == "3"


def test_a_scripted_model_is_refused_with_what_to_do() -> None:
    model = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(ModelError, match=r"nn\.Module that it was made from"):
        locate(model, lambda: model(torch.ones(1, 2)).sum())


def test_a_step_that_does_not_call_the_model_is_refused() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    with pytest.raises(UsageError, match="did not call this Linear"):
        located(model, lambda: other(torch.ones(1, 2)).sum())


@pytest.mark.parametrize(
    ("returned", "said"), [(torch.ones(2, 2), r"not one of shape \(2, 2\)"), (1.5, "not float"), ({}, "not dict")]
)
def test_a_step_that_returns_no_loss_is_told_what_it_should_return(returned: object, said: str) -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(UsageError, match=said):
        located(model, lambda: returned)  # type: ignore[arg-type, return-value]
