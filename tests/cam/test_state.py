"""An explanation leaves the model as it was, and works in whatever state the model and the caller are."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

from camapp.cam import GradCAM
from tests.hooks.test_as_found import assert_same, state
from tests.hooks.test_capture import hooks_on
from tests.networks import InPlaceAfter, Plain


class RaisesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("backward broke")


class Fragile(InPlaceAfter):
    """Breaks where it is told to."""

    breaks: str = "nowhere"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if self.breaks == "forward":
            raise RuntimeError("forward broke")
        if self.breaks == "interrupt":
            raise KeyboardInterrupt
        return RaisesInBackward.apply(y) if self.breaks == "backward" else y


def busy_model() -> Fragile:
    """In the middle of a training: modes mixed, gradients filled, foreign hooks of both kinds on it."""
    model = Fragile().train()
    model.norm.eval()
    model.stem.bias.requires_grad_(False)
    model(torch.randn(2, 3, 16, 16)).sum().backward()
    model.last.register_forward_hook(lambda *_: None)
    model.head.register_full_backward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize(
    ("breaks", "targets", "error"),
    [
        ("nowhere", 1, None),
        ("nowhere", [[0, 1], [1, 2]], None),
        ("forward", 1, RuntimeError),
        ("forward", [[0, 1], [1, 2]], RuntimeError),
        ("backward", 1, RuntimeError),
        ("backward", [[0, 1], [1, 2]], RuntimeError),
        ("interrupt", [[0, 1], [1, 2]], KeyboardInterrupt),
        ("nowhere", 99, ValueError),
        ("nowhere", [0], ValueError),
    ],
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_the_model_is_the_same_before_and_after(
    breaks: str, targets: Any, error: type[BaseException] | None, mode: Any
) -> None:
    model = busy_model()
    model.breaks = breaks
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    hooks = hooks_on(model)
    inputs = torch.randn(2, 3, 16, 16, requires_grad=True)
    engine = GradCAM(model, "last")
    with mode():
        before = state(model)
        if error is None:
            engine(inputs, targets)
        else:
            with pytest.raises(error):
                engine(inputs, targets)
        assert_same(before, state(model))
    assert hooks_on(model) == hooks
    assert inputs.grad is None
    for parameter, kept in zip(model.parameters(), grads, strict=True):
        assert kept is None if parameter.grad is None else torch.equal(parameter.grad, kept)


def test_train_mode_is_explained_as_it_would_predict() -> None:
    model, inputs = Plain().train(), torch.randn(4, 3, 16, 16)
    training = GradCAM(model, "last")(inputs, 1)
    assert model.training
    assert torch.equal(training.raw, GradCAM(model.eval(), "last")(inputs, 1).raw)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_frozen_models_and_every_grad_mode_give_the_same_map(mode: Any) -> None:
    model = InPlaceAfter().eval()
    inputs = torch.randn(2, 3, 16, 16)
    wanted = GradCAM(model, "last")(inputs, 1)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with mode():
        made_inside = inputs.clone()  # in inference mode: an inference tensor
        result = GradCAM(model, "last")(made_inside, 1)
    assert torch.equal(result.maps, wanted.maps)
    assert not result.maps.requires_grad


def test_bfloat16_gives_float32_maps_near_the_full_ones() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 32, 32)
    wanted = GradCAM(model, "last")(inputs, 1)
    result = GradCAM(model.bfloat16(), "last")(inputs, 1)
    assert result.maps.dtype == result.raw.dtype == result.scores.dtype == torch.float32
    scale = wanted.raw.abs().max()
    assert (result.raw - wanted.raw).abs().max() <= 0.05 * scale  # bfloat16 keeps 8 bits


def test_autocast_around_the_call_gives_float32_maps() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 32, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = GradCAM(model, "last")(inputs, 1)
    assert result.maps.dtype == result.raw.dtype == torch.float32
    assert result.reasons == [None, None]


def test_eight_threads_on_one_model_each_get_their_own_map() -> None:
    model = busy_model()
    engine = GradCAM(model, "last")
    pictures = torch.randn(8, 1, 3, 16, 16)
    wanted = [engine(picture, [[i % 5, 0]]).raw for i, picture in enumerate(pictures)]
    before = state(model)
    wrong: list[int] = []

    def work(i: int) -> None:
        own = GradCAM(model, "last")
        answers = [own(pictures[i], [[i % 5, 0]]).raw for _ in range(15)]
        wrong.extend(i for answer in answers if not torch.equal(answer, wanted[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert_same(before, state(model))


def test_two_engines_on_one_model_do_not_disturb_each_other() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    one, two = GradCAM(model, "last"), GradCAM(model, "stem")
    first = one(inputs, 0).raw
    two(inputs, 1)
    assert torch.equal(one(inputs, 0).raw, first)


def test_two_hundred_calls_leave_no_tensor_and_no_hook_behind() -> None:
    model, inputs = InPlaceAfter().eval(), torch.randn(2, 3, 16, 16)

    def tensors() -> int:
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    GradCAM(model)(inputs, [[0, 1], [1, 2]])
    gc.collect()
    before = tensors()
    gc.disable()
    try:
        for _ in range(200):
            GradCAM(model)(inputs, [[0, 1], [1, 2]])
        grown = tensors() - before
    finally:
        gc.enable()
    assert grown <= 2, f"{grown} tensors left"
    assert hooks_on(model) == 0


@pytest.mark.gpu
def test_cuda_gives_the_cpus_map() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 32, 32)
    wanted = GradCAM(model, "last")(inputs, [[0, 1], [2, 3]])
    result = GradCAM(model.cuda(), "last")(inputs, [[0, 1], [2, 3]])
    assert result.maps.is_cuda
    torch.testing.assert_close(result.raw.cpu(), wanted.raw, rtol=1e-3, atol=1e-4)


def test_half_precision_parameters_keep_their_dtype() -> None:
    model = Plain().eval().bfloat16()
    GradCAM(model, "last")(torch.randn(1, 3, 16, 16), 0)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
