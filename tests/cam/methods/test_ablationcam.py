"""Ablation-CAM: the share of the score that is lost without each channel, however the copies are run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_grad_cam import AblationCAM as PeerAblationCAM
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from torch import nn
from torch.nn import functional as F

from camapp.backbones.load import wake_silent_layers
from camapp.cam import replay
from camapp.cam.methods.ablationcam import AblationCAM, slope_weights
from camapp.errors import StoppedError, UsageError
from tests.cam.methods.replayed import (
    AddsBehind,
    BatchStatistics,
    Broadcasts,
    GivesTuple,
    MixesRows,
    Slow,
    peer_weights,
    recorded_weights,
    tiny_swin,
    tiny_vit,
)
from tests.hooks.test_as_found import assert_same, state
from tests.hooks.test_capture import hooks_on
from tests.networks import InPlaceAfter, Plain, Reused, SkipAround

Blank = Callable[[torch.Tensor, int], None]


def nchw(output: torch.Tensor, channel: int) -> None:
    output[:, channel] = 0


def channels_last(output: torch.Tensor, channel: int) -> None:
    output[..., channel] = 0


def patches(output: torch.Tensor, channel: int) -> None:
    output[:, 1:, channel] = 0


def naive_weights(
    model: nn.Module, layer: str, inputs: torch.Tensor, target: int, blank: Blank = nchw, call: int = 0
) -> torch.Tensor:
    """One picture, one channel at a time, each in a forward of its own, as the paper's equation has it."""
    rows = []
    for picture in inputs:
        whole = _score(model, layer, picture, target, None, blank, call)
        scores = []
        for channel in range(1000):
            try:
                scores.append(_score(model, layer, picture, target, channel, blank, call))
            except IndexError:
                break
        rows.append(torch.stack([(whole - score) / abs(whole) for score in scores]))
    return torch.stack(rows)


def _score(
    model: nn.Module, layer: str, picture: torch.Tensor, target: int, channel: int | None, blank: Blank, call: int
) -> torch.Tensor:
    calls: list[int] = []

    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        calls.append(1)
        if channel is None or len(calls) - 1 != call:
            return output
        tensor = (output[0] if isinstance(output, tuple) else output).clone()
        blank(tensor, channel)
        return (tensor, *output[1:]) if isinstance(output, tuple) else tensor

    handle = model.get_submodule(layer).register_forward_hook(hook)
    try:
        with torch.no_grad():
            return model(picture[None])[0, target]
    finally:
        handle.remove()


CASES = [
    pytest.param(Plain, "last", nchw, 0, "behind", id="plain"),
    pytest.param(InPlaceAfter, "last", nchw, 0, "behind", id="in-place-behind"),
    pytest.param(Broadcasts, "same", nchw, 0, "behind", id="sum-broadcasts"),
    pytest.param(SkipAround, "last", nchw, 0, "before", id="concatenated-branch"),
    pytest.param(AddsBehind, "same", nchw, 0, "before", id="sum-into-the-branch"),
    pytest.param(BatchStatistics, "last", nchw, 0, "alone", id="batch-statistics"),
    pytest.param(MixesRows, "last", nchw, 0, "alone", id="rows-mixed"),
    pytest.param(GivesTuple, "pair", nchw, 0, "behind", id="tuple"),
    pytest.param(Reused, "relu@0", nchw, 0, "behind", id="first-call"),
    pytest.param(Reused, "relu@1", nchw, 1, "behind", id="second-call"),
    pytest.param(tiny_vit, "blocks.0", patches, 0, "behind", id="tokens"),
    pytest.param(tiny_swin, "layers.1", channels_last, 0, "behind", id="channels-last"),
]


@pytest.mark.parametrize(("network", "layer", "blank", "call", "way"), CASES)
def test_weights_are_those_of_a_naive_loop_whichever_way_the_copies_run(
    network: Any, layer: str, blank: Blank, call: int, way: str, monkeypatch: Any
) -> None:
    model = network().eval().double()
    inputs = torch.randn(2, 3, *((32, 32) if network is tiny_swin else (16, 16)), dtype=torch.float64)
    for _ in range(2):  # found out, then remembered
        with recorded_weights(AblationCAM, monkeypatch) as weights:
            AblationCAM(model, layer)(inputs, [[0, 2], [1, 2]])
        for row, targets in enumerate([[0, 2], [1, 2]]):
            for k, target in enumerate(targets):
                wanted = naive_weights(model, layer.partition("@")[0], inputs[row : row + 1], target, blank, call)
                torch.testing.assert_close(weights[0][row, k], wanted[0], rtol=1e-7, atol=1e-9)
    assert list(replay._ways[model].values()) == [way]


def test_the_map_is_the_weighted_sum_of_the_channels() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    result = AblationCAM(model, "last")(inputs, 2)
    maps = model.last(F.relu(model.norm(model.stem(inputs)))).detach()
    weights = naive_weights(model, "last", inputs, 2)
    torch.testing.assert_close(result.raw, torch.einsum("bc,bchw->bhw", weights, maps), rtol=1e-4, atol=1e-6)


def test_hand_numbers_for_scores_of_every_sign() -> None:
    # (y - y_k) / |y|: 4 -> 3 loses a quarter, 4 -> 5 gains one; -2 -> -3 loses a half; from 0 to -1 loses 1 of nothing
    whole = torch.tensor([[4.0, -2.0, 0.0]])
    ablated = torch.tensor([[[3.0, -3.0, -1.0], [5.0, -1.0, 2.0]]])
    assert slope_weights(whole, ablated).tolist() == [[[0.25, -0.25], [0.5, -0.5], [1.0, -2.0]]]


class ByHand(nn.Module):
    """The score is 2 max(a) - max(b) - 1 of two channels a = x and b = 10 - x: y = 2 * 4 - 9 - 1 = -2 for x = 1..4."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 1)
        self.layer.weight.data[:] = torch.tensor([1.0, -1.0]).view(2, 1, 1, 1)
        self.layer.bias.data[:] = torch.tensor([0.0, 10.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.layer(x).amax((2, 3)).unbind(1)
        return torch.stack([2 * a - b - 1, 2 * a - b + 11], dim=1)


def test_a_negative_score_keeps_supporting_channels_positive() -> None:
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    result = AblationCAM(ByHand(), "layer")(x, [[0, 1]])
    assert result.scores.tolist() == [[-2.0, 10.0]]
    # y = -2: without a -10, w = (-2 + 10) / 2 = 4; without b 7, w = (-2 - 7) / 2 = -4.5
    # y = 10: without a 2, w = 0.8; without b 19, w = -0.9
    a, b = x[0, 0], 10 - x[0, 0]
    torch.testing.assert_close(result.raw[0], torch.stack([4 * a - 4.5 * b, 0.8 * a - 0.9 * b]))


def test_weights_and_maps_are_grad_cams_on_a_tiny_network_behind_a_relu(monkeypatch: Any) -> None:
    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(5)]
    model, inputs = nn.Sequential(*layers).eval(), torch.randn(2, 3, 16, 20)
    targets = model(inputs).argmax(1).tolist()
    peer = PeerAblationCAM(model=model, target_layers=[model[1]])
    maps, wanted = peer_weights(peer, inputs, [ClassifierOutputTarget(target) for target in targets])
    with recorded_weights(AblationCAM, monkeypatch) as weights:
        result = AblationCAM(model, "1")(inputs, targets)
    assert (result.scores > 0).all()
    torch.testing.assert_close(weights[0][:, 0], torch.from_numpy(wanted), rtol=0, atol=1e-5)
    torch.testing.assert_close(result.maps, torch.from_numpy(maps), rtol=0, atol=1e-5)


def test_weights_are_grad_cams_on_resnet18(monkeypatch: Any) -> None:
    model, inputs = torchvision.models.resnet18(weights=None).eval(), torch.randn(1, 3, 64, 64)
    target = int(model(inputs).argmax())
    peer = PeerAblationCAM(model=model, target_layers=[model.layer4])
    maps, wanted = peer_weights(peer, inputs, [ClassifierOutputTarget(target)])
    with recorded_weights(AblationCAM, monkeypatch) as weights:
        result = AblationCAM(model, "layer4")(inputs, target)
    torch.testing.assert_close(weights[0][0], torch.from_numpy(wanted), rtol=0, atol=1e-5)
    torch.testing.assert_close(result.maps, torch.from_numpy(maps), rtol=0, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(size=st.integers(1, 20), network=st.sampled_from([Plain, SkipAround]))
def test_the_batch_size_does_not_matter(size: int, network: Any) -> None:
    torch.manual_seed(0)
    model, inputs = network().eval(), torch.randn(2, 3, 16, 16)
    wanted = AblationCAM(model, "last")(inputs, [[0, 1], [2, 3]])
    result = AblationCAM(model, "last", batch_size=size)(inputs, [[0, 1], [2, 3]])
    torch.testing.assert_close(result.raw, wanted.raw, rtol=1e-4, atol=1e-6)


def test_a_batch_gives_what_its_pictures_give_alone_and_k_targets_what_each_gives() -> None:
    model, inputs = Plain().eval(), torch.randn(3, 3, 16, 24)
    method = AblationCAM(model, "last")
    together = method(inputs, [[0, 1], [2, 3], [4, 0]])
    for row, targets in enumerate([[0, 1], [2, 3], [4, 0]]):
        for k, target in enumerate(targets):
            alone = method(inputs[row : row + 1], target)
            torch.testing.assert_close(together.raw[row, k], alone.raw[0], rtol=1e-4, atol=1e-6)


def test_several_layers_are_ablated_each_by_itself() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    both = AblationCAM(model, ["stem", "last"])(inputs, 1)
    apart = [AblationCAM(model, layer)(inputs, 1).maps for layer in ("stem", "last")]
    torch.testing.assert_close(both.raw, torch.stack(apart).mean(0), rtol=1e-4, atol=1e-5)


def test_the_trunk_runs_once_for_all_channels() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    method = AblationCAM(model, "last")
    method(inputs, 0)
    rows: list[int] = []
    model.stem.register_forward_hook(lambda module, args, output: rows.append(len(output)))
    method(inputs, [[0, 1, 2]])
    assert rows == [1, 1]  # for the activation, and for all nine copies


def test_copies_that_a_network_suddenly_does_not_take_are_run_before_it() -> None:
    class TakesFew(Plain):
        most = 100

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.last(F.relu(self.norm(self.stem(x))))
            if len(y) != len(x) and len(y) > self.most:
                raise RuntimeError("too many rows")
            return self.head(F.relu(y).mean((2, 3)))

    model, inputs = TakesFew().eval(), torch.randn(1, 3, 16, 16)
    seen: list[tuple[int, int]] = []
    wanted = AblationCAM(model, "last")(inputs, 0)
    model.most = 3
    result = AblationCAM(model, "last")(inputs, 0, progress=lambda *counts: seen.append(counts))
    torch.testing.assert_close(result.raw, wanted.raw, rtol=1e-4, atol=1e-6)
    assert seen[-1] == (9, 9)


def test_tokens_that_do_not_reach_the_score_give_a_blank_map_with_its_reason() -> None:
    result = AblationCAM(tiny_vit(), "blocks.1")(torch.randn(1, 3, 16, 16), 0)
    assert not result.maps.any()
    assert result.reasons[0].startswith("no gradient: the score does not depend on this map")


def test_progress_counts_the_copies_of_all_pictures() -> None:
    seen: list[tuple[int, int]] = []
    model = Plain().eval()
    AblationCAM(model, "last", batch_size=4)(torch.randn(2, 3, 16, 16), 0, progress=lambda *two: seen.append(two))
    assert seen == [(4, 18), (8, 18), (9, 18), (13, 18), (17, 18), (18, 18)]


@pytest.mark.parametrize("network", [Plain, SkipAround, MixesRows])
@pytest.mark.parametrize("ends", ["cancel", "error"])
def test_a_model_is_as_it_was_after_a_stop_or_an_error(network: Any, ends: str) -> None:
    model, inputs = network().train(), torch.randn(2, 3, 16, 16)
    before, hooks = state(model), hooks_on(model)
    done: list[int] = []

    def progress(count: int, total: int) -> None:
        done.append(count)
        if ends == "error":
            raise RuntimeError("the page was closed")

    with pytest.raises(StoppedError if ends == "cancel" else RuntimeError):
        AblationCAM(model, "last", batch_size=2)(inputs, 0, progress=progress, cancel=lambda: bool(done))
    assert len(done) == 1
    assert_same(before, state(model))
    assert hooks_on(model) == hooks


def test_a_deadline_ends_it_in_time() -> None:
    model = Slow().eval()
    with pytest.raises(StoppedError, match=r"Not done within 0\.2 s"):
        AblationCAM(model, "last", batch_size=1)(torch.randn(2, 3, 16, 16), 0, deadline=0.2)
    event = threading.Event()
    event.set()
    with pytest.raises(StoppedError, match="Stopped as asked, after 0 of 9 runs"):
        AblationCAM(model, "last")(torch.randn(1, 3, 16, 16), 0, cancel=event)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_parameters_and_gradients_are_not_touched(mode: Any) -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16, requires_grad=True)
    model(inputs).sum().backward()
    grads = [parameter.grad.clone() for parameter in model.parameters()]
    with mode():
        result = AblationCAM(model, "last")(inputs, 0)
    assert not result.raw.requires_grad
    assert all(torch.equal(p.grad, kept) for p, kept in zip(model.parameters(), grads, strict=True))
    assert not any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers()))


def test_half_precision_gives_nearly_the_same_map() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    wanted = AblationCAM(model, "last")(inputs, 0)
    result = AblationCAM(model.bfloat16(), "last")(inputs, 0)
    assert result.raw.dtype == torch.float32
    assert F.cosine_similarity(result.raw.flatten(), wanted.raw.flatten(), dim=0) > 0.9


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "8"])
def test_a_batch_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(UsageError, match="batch_size"):
        AblationCAM(Plain(), "last", batch_size=size)


def test_channels_of_shuffled_tokens_are_ablated_like_any() -> None:
    """Hiera's tokens lie in another order than the picture's, so that its maps are no view of them."""
    import timm

    torch.manual_seed(0)
    model = timm.create_model(
        "hiera_tiny_224", img_size=(64, 64), embed_dim=8, num_heads=1, stages=(1, 1, 1, 1), mask_unit_size=(4, 4),
        q_pool=2, num_classes=3,
    ).eval()  # fmt: skip
    wake_silent_layers(model)
    inputs = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        whole = float(model(inputs)[0, 1])
        drops = []
        for channel in range(8):

            def without(module: nn.Module, args: object, output: torch.Tensor, channel: int = channel) -> torch.Tensor:
                output = output.clone()
                output[..., channel] = 0
                return output

            handle = model.blocks[0].register_forward_hook(without)
            drops.append(whole - float(model(inputs)[0, 1]))
            handle.remove()
        kept: list[torch.Tensor] = []
        handle = model.blocks[0].register_forward_hook(lambda module, args, output: kept.append(output))
        model(inputs)
        handle.remove()
    maps = model.reroll(kept[0], 0)[0].double()  # (rows, columns, channels)
    wanted = (maps * torch.tensor(drops, dtype=torch.float64) / abs(whole)).sum(-1)
    result = AblationCAM(model, "blocks.0")(inputs, 1)
    torch.testing.assert_close(result.raw[0].double(), wanted, rtol=1e-3, atol=1e-5 * float(wanted.abs().max()) + 1e-6)


def test_a_watched_call_runs_in_chunks_and_gives_the_same_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "WATCHED_ROWS", 3)
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    seen: list[tuple[int, int]] = []
    watched = AblationCAM(model, "last")(inputs, 1, progress=lambda *two: seen.append(two))
    assert seen == [(3, 9), (6, 9), (9, 9)]
    torch.testing.assert_close(watched.raw, AblationCAM(model, "last")(inputs, 1).raw, rtol=1e-5, atol=1e-7)
