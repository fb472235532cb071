"""Score-CAM, SS-CAM and IS-CAM: channels weighted by the scores of the picture as they mask it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_grad_cam import ScoreCAM as PeerScoreCAM
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from benchmarks.measure import peak_bytes
from camapp.cam.methods.scorecam import ScoreCAM
from camapp.cam.methods.smoothscore import ISCAM, SSCAM
from camapp.errors import StoppedError, UsageError
from tests.cam.methods.replayed import (
    BatchStatistics,
    Slow,
    peer_weights,
    recorded_weights,
    tiny_swin,
    tiny_vit,
)
from tests.hooks.test_as_found import assert_same, state
from tests.hooks.test_capture import hooks_on
from tests.networks import Plain, Reused

METHODS = [ScoreCAM, lambda *args, **options: SSCAM(*args, samples=3, std=0.3, **options), ISCAM]
IDS = ["scorecam", "sscam", "iscam"]


def upsampled(channel: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """A channel (h, w) at another size, by hand: linear between its cells' centres, level beyond the outermost."""
    result = channel
    for axis, (have, want) in enumerate(zip(channel.shape, size, strict=True)):
        places = ((torch.arange(want, dtype=channel.dtype) + 0.5) * have / want - 0.5).clamp(0, have - 1)
        low = places.floor().long()
        high = (low + 1).clamp(max=have - 1)
        share = (places - low).view([-1, 1] if axis == 0 else [1, -1])
        result = result.index_select(axis, low) * (1 - share) + result.index_select(axis, high) * share
    return result


def naive_map(model: nn.Module, maps: torch.Tensor, picture: torch.Tensor, target: int, noise: Any = None) -> Any:
    """Algorithm 1 for one picture, channel by channel in float64, with the baseline that the softmax cancels."""
    with torch.no_grad():
        baseline = model(torch.zeros_like(picture)[None])[0, target]
        increases, kept = [], []
        for number, channel in enumerate(maps):
            if channel.max() == channel.min():
                continue
            mask = upsampled(channel, tuple(picture.shape[1:]))
            mask = (mask - mask.min()) / (mask.max() - mask.min())
            versions = [mask * picture] if noise is None else noise(mask, picture)
            scores = torch.stack([model(version[None])[0, target] for version in versions])
            increases.append(scores.mean() - baseline)
            kept.append(number)
        weights = torch.stack(increases).exp()
        weights = weights / weights.sum()
        return sum(weight * maps[number] for weight, number in zip(weights, kept, strict=True))


def last_of(model: Plain, inputs: torch.Tensor) -> torch.Tensor:
    return model.last(F.relu(model.norm(model.stem(inputs)))).detach()


def doubles() -> tuple[Plain, torch.Tensor]:
    return Plain().eval().double(), torch.randn(2, 3, 16, 24, dtype=torch.float64)


def test_score_cam_is_the_papers_algorithm() -> None:
    model, inputs = doubles()
    result = ScoreCAM(model, "last")(inputs, [[0, 1], [2, 3]])
    for row, targets in enumerate([[0, 1], [2, 3]]):
        for k, target in enumerate(targets):
            wanted = naive_map(model, last_of(model, inputs)[row], inputs[row], target)
            torch.testing.assert_close(result.raw[row, k], wanted.float(), rtol=1e-5, atol=1e-6)


def test_is_cam_averages_over_even_steps_up_to_the_masked_picture() -> None:
    model, inputs = doubles()
    result = ISCAM(model, "last", steps=4)(inputs, 1)

    def steps(mask: torch.Tensor, picture: torch.Tensor) -> list[torch.Tensor]:
        return [share * mask * picture for share in (0.25, 0.5, 0.75, 1.0)]

    for row in range(2):
        wanted = naive_map(model, last_of(model, inputs)[row], inputs[row], 1, steps)
        torch.testing.assert_close(result.raw[row], wanted.float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("noisy", ["mask", "input"])
def test_ss_cam_averages_over_noise_on_the_mask_or_on_the_masked_input(noisy: Any) -> None:
    model, inputs = doubles()
    result = SSCAM(model, "last", samples=3, std=0.5, noisy=noisy, seed=7)(inputs, 1)

    def drawn(shape: torch.Size) -> list[torch.Tensor]:
        seeds = torch.randint(2**62, (3,), generator=torch.Generator().manual_seed(7))
        generators = [torch.Generator().manual_seed(int(seed)) for seed in seeds]
        return [0.5 * torch.randn(shape, generator=generator) for generator in generators]

    def noise(mask: torch.Tensor, picture: torch.Tensor) -> list[torch.Tensor]:
        if noisy == "mask":
            return [(mask + one) * picture for one in drawn(mask.shape)]
        return [mask * picture + one for one in drawn(picture.shape)]

    for row in range(2):
        wanted = naive_map(model, last_of(model, inputs)[row], inputs[row], 1, noise)
        torch.testing.assert_close(result.raw[row], wanted.float(), rtol=1e-5, atol=1e-6)


def test_the_noise_of_ss_cam_is_drawn_once_a_call_and_on_the_cpu() -> None:
    class Draws(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.devices: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.randn:
                self.devices.append(str(kwargs["device"]))
            return func(*args, **(kwargs or {}))

    model, inputs = doubles()
    engine = SSCAM(model, "last", samples=3, batch_size=2)
    for _ in range(2):  # nothing is kept from one call to the next
        with Draws() as draws:
            engine(inputs, 1)
        assert draws.devices == ["cpu"] * 3  # of 2 pictures with 8 channels each, in chunks of 2


def test_without_noise_ss_cam_and_with_one_step_is_cam_are_score_cam() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    wanted = ScoreCAM(model, "last")(inputs, 1).raw
    torch.testing.assert_close(SSCAM(model, "last", samples=2, std=0)(inputs, 1).raw, wanted)
    torch.testing.assert_close(ISCAM(model, "last", steps=1)(inputs, 1).raw, wanted)


class ByHand(nn.Module):
    """Two channels, x and 4 - x; the class score is the mean of the picture's square."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 1)
        self.layer.weight.data[:] = torch.tensor([1.0, -1.0]).view(2, 1, 1, 1)
        self.layer.bias.data[:] = torch.tensor([0.0, 4.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.layer(x)
        return x.square().mean((1, 2, 3))[:, None]


@pytest.mark.parametrize(
    ("method", "scores"),
    [
        # masks: x / 4 and 1 - x / 4; masked pictures 0 1/4 1 4 and 0 3/4 1 0; means of squares 273/64 and 25/64
        (ScoreCAM, (273 / 64, 25 / 64)),
        # at half and full brightness: (1/4 + 1) / 2 of that; adding the coefficients up would give (1/4 + 9/4) / 2
        (lambda *args: ISCAM(*args, steps=2), (273 / 64 * 5 / 8, 25 / 64 * 5 / 8)),
    ],
    ids=["scorecam", "iscam"],
)
def test_hand_numbers(method: Any, scores: tuple[float, float]) -> None:
    x = torch.tensor([[[[0.0, 1.0], [2.0, 4.0]]]])
    weights = torch.tensor(scores).softmax(0)
    result = method(ByHand(), "layer")(x, 0)
    torch.testing.assert_close(result.raw[0], weights[0] * x[0, 0] + weights[1] * (4 - x[0, 0]))


def test_maps_and_weights_are_grad_cams_with_its_masks(monkeypatch: Any) -> None:
    model, inputs = torchvision.models.resnet18(weights=None).eval(), torch.randn(1, 3, 64, 64)
    peer = PeerScoreCAM(model=model, target_layers=[model.layer3])  # 4 x 4: where the corners make a difference
    peer.batch_size = 64
    maps, wanted = peer_weights(peer, inputs, [ClassifierOutputTarget(3)])
    with recorded_weights(ScoreCAM, monkeypatch) as weights:
        result = ScoreCAM(model, "layer3", align_corners=True)(inputs, 3)
    theirs = torch.from_numpy(wanted) * (weights[0][0] > 0)  # they weigh channels that are zero everywhere too
    assert 200 < (theirs > 0).sum() < 256
    torch.testing.assert_close(weights[0][0], theirs / theirs.sum(), rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(result.maps, torch.from_numpy(maps), rtol=0, atol=1e-4)


def test_weights_are_torchcams_where_scaling_before_upsampling_is_the_same(monkeypatch: Any) -> None:
    torchcam = pytest.importorskip("torchcam.methods", reason="torchcam wants Python 3.11 or newer")
    # at the input's size nothing is upsampled, and the order of the two does not matter
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3), nn.Flatten(), nn.LazyLinear(5))
    inputs = torch.randn(2, 3, 12, 16)
    with torchcam.ScoreCAM(model.eval(), "1", input_shape=(3, 12, 16)) as extractor, torch.no_grad():
        model(inputs)
        wanted = extractor._get_weights([1, 2])[0]
    with recorded_weights(ScoreCAM, monkeypatch) as weights:
        ScoreCAM(model, "1")(inputs, [1, 2])
    torch.testing.assert_close(weights[0][:, 0], wanted, rtol=1e-4, atol=1e-6)


def test_constant_channels_get_no_mask_and_no_weight(monkeypatch: Any) -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    model.last.weight.data[[2, 5]] = 0
    rows: list[int] = []
    with recorded_weights(ScoreCAM, monkeypatch) as weights:
        ScoreCAM(model, "last")(inputs, 0, progress=lambda done, total: rows.append(total))
    assert rows[-1] == 6
    assert weights[0][0, 0, [2, 5]].tolist() == [0, 0]
    assert weights[0].sum() == pytest.approx(1)
    model.last.weight.data.zero_()
    assert ScoreCAM(model, "last")(inputs, 0).reasons[0] is not None


def test_the_top_channels_are_those_that_vary_most_and_the_note_says_so(monkeypatch: Any) -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    model.last.bias.data[1] = 50.0  # a high mean shall not count
    with recorded_weights(ScoreCAM, monkeypatch) as weights:
        result = ScoreCAM(model, "last", top_channels=3)(inputs, 0)
    assert result.notes == ("top 3 of 8 channels",)
    varies = last_of(model, inputs).flatten(2).var(2)
    for row in range(2):
        assert set(weights[0][row, 0].nonzero().flatten().tolist()) == set(varies[row].topk(3).indices.tolist())
    every = ScoreCAM(model, "last", top_channels=8)(inputs, 0)
    assert every.notes == ()
    assert torch.equal(every.raw, ScoreCAM(model, "last")(inputs, 0).raw)


@settings(max_examples=15, deadline=None)
@given(size=st.integers(1, 30), method=st.sampled_from(METHODS))
def test_the_batch_size_does_not_matter(size: int, method: Any) -> None:
    torch.manual_seed(0)
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    wanted = method(model, "last")(inputs, [[0, 1], [2, 3]])
    result = method(model, "last", batch_size=size)(inputs, [[0, 1], [2, 3]])
    torch.testing.assert_close(result.raw, wanted.raw, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS, ids=IDS)
@pytest.mark.parametrize("network", [Plain, BatchStatistics])
def test_a_batch_gives_what_its_pictures_give_alone_and_k_targets_what_each_gives(method: Any, network: Any) -> None:
    model, inputs = network().eval(), torch.randn(2, 3, 16, 24)
    explain = method(model, "stem" if network is BatchStatistics else "last")
    together = explain(inputs, [[0, 1], [2, 3]])
    for row, targets in enumerate([[0, 1], [2, 3]]):
        for k, target in enumerate(targets):
            alone = explain(inputs[row : row + 1], target)
            torch.testing.assert_close(together.raw[row, k], alone.raw[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("network", "layer", "side"), [(tiny_vit, "blocks.0", 16), (tiny_swin, "layers.1", 32)])
def test_tokens_and_channels_last_are_masks_too(network: Any, layer: str, side: int) -> None:
    model, inputs = network().double(), torch.randn(1, 3, side, side, dtype=torch.float64)
    kept: list[torch.Tensor] = []
    handle = model.get_submodule(layer).register_forward_hook(lambda module, args, output: kept.append(output.detach()))
    model(inputs)
    handle.remove()
    maps = kept[0][0, 1:].T.unflatten(1, (4, 4)) if network is tiny_vit else kept[0][0].permute(2, 0, 1)
    result = ScoreCAM(model, layer)(inputs, 2)
    torch.testing.assert_close(result.raw[0], naive_map(model, maps, inputs[0], 2).float(), rtol=1e-4, atol=1e-6)


def test_a_network_that_views_its_maps_as_vectors_is_replayed_too() -> None:
    class Views(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(8 * 4 * 4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.last(F.relu(self.norm(self.stem(x)))).view(len(x), -1))

    model, inputs = Views().eval(), torch.randn(1, 3, 16, 16)
    seen: list[tuple[int, int]] = []
    result = ScoreCAM(model, "last", batch_size=4)(inputs, 1, progress=lambda *two: seen.append(two))
    wanted = naive_map(model, last_of(model, inputs)[0], inputs[0], 1)
    torch.testing.assert_close(result.raw[0], wanted, rtol=1e-4, atol=1e-6)
    assert seen == [(4, 8), (8, 8)]


def test_a_named_call_gives_the_masks_of_that_call() -> None:
    model, inputs = Reused().eval(), torch.randn(1, 3, 8, 8)
    maps = F.relu(model.one(inputs)).detach()[0]
    result = ScoreCAM(model, "relu@0")(inputs, 1)
    torch.testing.assert_close(result.raw[0], naive_map(model, maps, inputs[0], 1), rtol=1e-4, atol=1e-6)


def test_noise_is_repeatable_and_leaves_the_random_state_alone() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    before = torch.get_rng_state()
    first, again = (SSCAM(model, "last", samples=2)(inputs, 0) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.raw, again.raw)
    assert not torch.equal(first.raw, SSCAM(model, "last", samples=2, seed=1)(inputs, 0).raw)


def test_progress_counts_every_masked_picture() -> None:
    seen: list[tuple[int, int]] = []
    ISCAM(Plain().eval(), "last", steps=3, batch_size=10)(
        torch.randn(2, 3, 16, 16), 0, progress=lambda *two: seen.append(two)
    )
    assert seen == [(10, 48), (20, 48), (24, 48), (34, 48), (44, 48), (48, 48)]


@pytest.mark.parametrize("method", METHODS, ids=IDS)
def test_a_cancelled_call_and_one_past_its_deadline_leave_the_model_as_it_was(method: Any) -> None:
    model, inputs = Slow().train(), torch.randn(1, 3, 16, 16)
    before, hooks = state(model), hooks_on(model)
    done: list[int] = []
    with pytest.raises(StoppedError, match="after 2 of"):
        method(model, "last", batch_size=2)(
            inputs, 0, progress=lambda count, total: done.append(count), cancel=lambda: bool(done)
        )
    with pytest.raises(StoppedError, match=r"Not done within 0\.2 s"):
        method(model, "last", batch_size=1)(inputs, 0, deadline=0.2)
    assert_same(before, state(model))
    assert hooks_on(model) == hooks


@pytest.mark.parametrize("method", METHODS, ids=IDS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_callers_inputs_and_grad_mode_do_not_matter(method: Any, mode: Any) -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16, requires_grad=True)
    kept = inputs.detach().clone()
    wanted = method(model, "last")(inputs, 0)
    with mode():
        result = method(model, "last")(inputs, 0)
    assert torch.equal(result.raw, wanted.raw)
    assert not wanted.raw.requires_grad
    assert inputs.grad is None
    assert torch.equal(inputs, kept)
    assert not any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers()))


class Wide(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, channels, 8, stride=8)
        self.head = nn.Linear(channels, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x).mean((2, 3)))


def test_the_counter_of_live_bytes_counts_what_autograd_keeps_and_no_more() -> None:
    def call() -> None:
        x = torch.ones(1000, requires_grad=True)  # 4,000 bytes
        y = x.exp().sin()  # 8,000, of which the graph keeps all
        del x
        torch.zeros(500)  # 2,000, gone at once
        torch.zeros(500)
        y.view(10, 100)

    assert peak_bytes(call) == 14_000


@pytest.mark.parametrize("method", METHODS, ids=IDS)
def test_memory_does_not_grow_with_the_channels(method: Any) -> None:
    peaks = []
    for channels in (32, 256):
        model, inputs = Wide(channels).eval(), torch.randn(1, 3, 64, 64)
        explain = method(model, "layer", batch_size=8)
        peaks.append(peak_bytes(lambda explain=explain, inputs=inputs: explain(inputs, 0)))
    # what grows is the layer's own output, 64 places a channel, a few times over; masked pictures would add 10 MB
    assert peaks[0] > 8 * 3 * 64 * 64 * 4, "the counter counts"
    assert peaks[1] - peaks[0] < 16 * 224 * 64 * 4


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (ScoreCAM, {"top_channels": 0}, "top_channels"),
        (ScoreCAM, {"batch_size": 1.5}, "batch_size"),
        (SSCAM, {"samples": 0}, "samples"),
        (SSCAM, {"std": -1.0}, "std = -1.0"),
        (SSCAM, {"std": float("nan")}, "std = nan"),
        (SSCAM, {"noisy": "output"}, "use one of mask, input"),
        (ISCAM, {"steps": True}, "steps"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(method: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        method(Plain(), "last", **options)


def test_networks_that_mix_the_rows_of_a_batch_are_run_row_by_row() -> None:
    class Normalised(nn.Module):
        """A function, no module, uses the batch's own statistics."""

        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Conv2d(3, 6, 3, padding=1)
            self.head = nn.Linear(6, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            features = self.last(x).relu().mean((2, 3))
            if len(features) > 1:
                features = torch.nn.functional.batch_norm(features, None, None, training=True)
            return self.head(features)

    model, inputs = Normalised().eval(), torch.randn(1, 3, 8, 8)
    wanted = ScoreCAM(model, "last", batch_size=1)(inputs, 0).raw
    for size in (2, 3, None):
        raw = ScoreCAM(model, "last", batch_size=size)(inputs, 0).raw
        torch.testing.assert_close(raw, wanted, rtol=1e-5, atol=1e-6)
