"""The other methods against grad-cam's, replays on resnet18 and lite0, principal components on resnet50."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import redirect_stderr
from io import StringIO
from typing import Any

import numpy as np
import torch
import torchvision
from pytorch_grad_cam import AblationCAM as PeerAblationCAM
from pytorch_grad_cam import EigenCAM as PeerEigenCAM
from pytorch_grad_cam import ScoreCAM as PeerScoreCAM
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from pytorch_grad_cam.utils.svd_on_activations import get_2d_projection
from torch import nn

from benchmarks.measure import Contender, Row, interleave, peak_bytes, ratio_row
from camapp.cam import compare, find_method
from camapp.cam.components import first_component
from camapp.cam.methods.ablationcam import AblationCAM
from camapp.cam.methods.scorecam import ScoreCAM
from camapp.loading import load_model

FIVE = ("gradcam", "layercam", "hirescam", "xgradcam", "eigencam")


class _Recording(AblationCAM):
    def weights(self, *args: Any) -> torch.Tensor:
        self.kept = super().weights(*args)
        return self.kept


class _RecordingPeer(PeerAblationCAM):
    def get_cam_weights(self, *args: Any) -> np.ndarray:
        self.kept = super().get_cam_weights(*args)
        return self.kept


def run(rounds: int) -> Iterator[Row]:
    """The rows, one after the other; each peer gets a model of its own, for their hooks stay on it."""
    yield from _ablation(max(2, rounds // 5))
    yield from _score("resnet18", "layer4", max(2, rounds // 5))
    yield from _score("efficientnet_lite0", "blocks.6.0.bn1", max(2, rounds // 5))
    yield _component(rounds)
    yield _eigen(max(5, rounds // 2))
    yield from _five(rounds)


def _model(name: str) -> nn.Module:
    if name == "efficientnet_lite0":
        return load_model(name, device="cpu", download=False).module
    torch.manual_seed(0)
    return torchvision.models.get_model(name, weights=None).eval()


def _inputs() -> torch.Tensor:
    return torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))


def _quiet(peer: Any, inputs: torch.Tensor, target: int) -> Any:
    """A call of grad-cam without its progress bars, which cost it less than a thousandth."""
    with redirect_stderr(StringIO()):
        return peer(input_tensor=inputs, targets=[ClassifierOutputTarget(target)])


def _ablation(rounds: int) -> Iterator[Row]:
    inputs, mine, theirs = _inputs(), _model("resnet18"), _model("resnet18")
    target = int(mine(inputs).argmax())  # a positive score: a negative one turns grad-cam's weights
    ours = _Recording(mine, "layer4")
    peer = _RecordingPeer(model=theirs, target_layers=[theirs.layer4])
    contenders: dict[str, Contender] = {
        "grad-cam": lambda: _quiet(peer, inputs, target),
        "ours": lambda: ours(inputs, target).maps,
    }
    seconds = interleave(contenders, rounds, warm=1)
    yield ratio_row("AblationCAM, 512 channels: grad-cam / ours", seconds, "grad-cam", "ours", ">= 20")
    yield _weights_row(ours, peer, inputs, target)


def _weights_row(ours: _Recording, peer: _RecordingPeer, inputs: torch.Tensor, target: int) -> Row:
    _quiet(peer, inputs, target)
    ours(inputs, target)
    most = float(np.abs(peer.kept - ours.kept[:, 0].numpy()).max())
    figures = f"largest weight {np.abs(peer.kept).max():.3g}"
    return Row("AblationCAM: largest difference of a weight", most, "<= 1e-5", figures)


def _score(network: str, layer: str, rounds: int) -> Iterator[Row]:
    inputs, mine, theirs = _inputs(), _model(network), _model(network)
    ours = ScoreCAM(mine, layer, align_corners=True)
    peer = PeerScoreCAM(model=theirs, target_layers=[theirs.get_submodule(layer)])
    contenders: dict[str, Contender] = {
        "grad-cam": lambda: _quiet(peer, inputs, 285),
        "ours": lambda: ours(inputs, 285).maps,
    }
    name = f"ScoreCAM, {network}, same masks"
    seconds = interleave(contenders, rounds, warm=1)
    yield ratio_row(f"{name}: grad-cam / ours", seconds, "grad-cam", "ours", ">= 1.3")
    peer.activations_and_grads.activations.clear()
    peaks = {who: peak_bytes(call) for who, call in contenders.items()}
    figures = f"ours {peaks['ours'] / 1e6:.0f} MB, grad-cam {peaks['grad-cam'] / 1e6:.0f} MB"
    yield Row(f"{name}: peak memory, ours / grad-cam", peaks["ours"] / peaks["grad-cam"], "<= 0.25", figures)


def _component(rounds: int) -> Row:
    name = "first component, 2048 x 7 x 7: grad-cam's SVD / ours"
    channels = torch.randn(1, 2048, 7, 7, generator=torch.Generator().manual_seed(1)).relu()
    contenders: dict[str, Contender] = {
        "numpy": lambda: get_2d_projection(channels.numpy()),
        "ours": lambda: first_component(channels, centre=True),
    }
    return ratio_row(name, interleave(contenders, rounds), "numpy", "ours", ">= 50")


def _eigen(rounds: int) -> Row:
    name = "EigenCAM, resnet50: grad-cam / ours"
    inputs, mine, theirs = _inputs(), _model("resnet50"), _model("resnet50")
    ours = find_method("eigencam")(mine, "layer4")
    peer = PeerEigenCAM(model=theirs, target_layers=[theirs.layer4])
    contenders: dict[str, Contender] = {
        "grad-cam": lambda: _quiet(peer, inputs, 285),
        "ours": lambda: ours(inputs, 285).maps,
    }
    return ratio_row(name, interleave(contenders, rounds), "grad-cam", "ours", ">= 3")


def _five(rounds: int) -> Iterator[Row]:
    names = ("five calls / compare", "compare / forward and backward")
    inputs, mine, bare = _inputs(), _model("resnet50"), _model("resnet50")
    engines = [find_method(name)(mine, "layer4") for name in FIVE]

    def forward_and_backward() -> None:
        bare.zero_grad(set_to_none=True)
        bare(inputs)[0, 285].backward()

    contenders: dict[str, Contender] = {
        "compare": lambda: compare(mine, inputs, 285, methods=engines),
        "five calls": lambda: [engine(inputs, 285).maps for engine in engines],
        "forward and backward": forward_and_backward,
    }
    seconds = interleave(contenders, rounds)
    for name in names:
        above, below = name.split(" / ")
        yield ratio_row(f"five methods, resnet50: {name}", seconds, above, below)
