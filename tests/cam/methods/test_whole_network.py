"""What all methods that look at the whole network share: nothing stays behind, threads, and ``compare``."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import pytest
import torch

from camapp.cam import compare
from camapp.cam.engine import Method
from camapp.cam.methods.fullgrad import FullGrad
from camapp.cam.methods.guided import GuidedBackprop, GuidedGradCAM
from camapp.cam.methods.legrad import LeGrad
from camapp.cam.methods.rollout import AttentionRollout
from tests.cam.methods.transformers import torchvision_vit
from tests.networks import InPlaceAfter

ENGINES: dict[str, Callable[[], Method]] = {
    "fullgrad": lambda: FullGrad(InPlaceAfter().eval()),
    "fullgrad of tokens": lambda: FullGrad(torchvision_vit()),
    "guided": lambda: GuidedBackprop(InPlaceAfter().eval()),
    "guided gradcam": lambda: GuidedGradCAM(InPlaceAfter().eval(), "last"),
    "legrad": lambda: LeGrad(torchvision_vit()),
    "legrad final": lambda: LeGrad(torchvision_vit(), score="final"),
    "rollout": lambda: AttentionRollout(torchvision_vit()),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_leave_no_tensor_behind_even_before_cycles_are_collected(engine: str) -> None:
    made, inputs = ENGINES[engine](), torch.randn(2, 3, 32, 32)

    def tensors() -> int:
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    made(inputs, [[0, 1], [1, 2]])
    gc.collect()
    gc.disable()
    try:
        before = tensors()
        for _ in range(10):
            made(inputs, [[0, 1], [1, 2]])
        grown = tensors() - before
    finally:
        gc.enable()
    assert grown <= 2, f"{grown} tensors left"


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_on_one_model_each_get_their_own_map(engine: str) -> None:
    made, pictures = ENGINES[engine](), torch.randn(4, 1, 3, 32, 32)
    wanted = [made(picture, 1).raw for picture in pictures]
    wrong: list[int] = []

    def work(i: int) -> None:
        wrong.extend(i for _ in range(5) if not torch.equal(made(pictures[i], 1).raw, wanted[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_they_stand_beside_methods_of_a_layer_in_one_comparison() -> None:
    model, inputs = InPlaceAfter().eval(), torch.randn(2, 3, 16, 16)
    engines = [FullGrad(model), GuidedBackprop(model), GuidedGradCAM(model, "last")]
    results = compare(model, inputs, [[0, 1], [2, 3]], methods=["gradcam", *engines], layer="last")
    assert [result.layer for result in results.values()] == ["last", "", "", "last"]
    for engine in engines:
        assert torch.equal(results[engine.name].raw, engine(inputs, [[0, 1], [2, 3]]).raw)
