"""Grad-CAM against grad-cam, torchcam, captum and a bare forward: resnet50 at 224 x 224, random weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torchvision
from captum.attr import LayerGradCam
from pytorch_grad_cam import GradCAM as PeerGradCAM
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget
from torch import nn
from torchcam.methods import GradCAM as TorchcamGradCAM

from benchmarks.measure import Contender, Row, interleave, ratio_row, saved_bytes
from camapp.cam import GradCAM

CLASSES = [1, 285, 404, 630, 980]


def run(rounds: int) -> Iterator[Row]:
    """The rows, one after the other; each peer gets a model of its own, for their hooks stay on it."""
    torch.manual_seed(0)
    yield from _one_class(1, rounds)
    yield from _one_class(8, max(5, rounds // 2))
    for layer, bound in (("layer4", ">= 10"), ("layer3", ">= 3")):
        yield _five_classes(layer, bound, max(5, rounds // 2))
    yield _memory()


def _model() -> nn.Module:
    torch.manual_seed(0)
    return torchvision.models.resnet50(weights=None).eval()


def _one_class(rows: int, rounds: int) -> Iterator[Row]:
    inputs = torch.randn(rows, 3, 224, 224)
    contenders = _contenders(inputs, CLASSES[0])
    seconds = interleave(contenders, rounds)
    name = f"batch {rows}, layer4"
    yield ratio_row(f"{name}: ours / bare forward", seconds, "ours", "forward", "<= 1.08")
    yield ratio_row(f"{name}: grad-cam / ours", seconds, "grad-cam", "ours", ">= 2.8")
    yield ratio_row(f"{name}: torchcam / ours", seconds, "torchcam", "ours")
    yield ratio_row(f"{name}: captum / ours", seconds, "captum", "ours")


def _contenders(inputs: torch.Tensor, target: int) -> dict[str, Contender]:
    bare, mine, theirs, torchcams, captums = (_model() for _ in range(5))
    ours = GradCAM(mine, "layer4")
    peer = PeerGradCAM(model=theirs, target_layers=[theirs.layer4])
    extractor = TorchcamGradCAM(torchcams, "layer4")
    layer_grad_cam = LayerGradCam(captums, captums.layer4)
    targets = [ClassifierOutputTarget(target)] * len(inputs)

    def forward() -> torch.Tensor:
        with torch.inference_mode():
            return bare(inputs)

    return {
        "forward": forward,
        "ours": lambda: ours(inputs, target).maps,
        "grad-cam": lambda: peer(input_tensor=inputs, targets=targets),
        "torchcam": lambda: extractor([target] * len(inputs), torchcams(inputs)),
        "captum": lambda: layer_grad_cam.attribute(inputs, target),
    }


def _five_classes(layer: str, bound: str, rounds: int) -> Row:
    inputs = torch.randn(1, 3, 224, 224)
    mine, theirs = _model(), _model()
    ours = GradCAM(mine, layer)
    peer = PeerGradCAM(model=theirs, target_layers=[theirs.get_submodule(layer)])

    def five_calls() -> None:
        for target in CLASSES:
            peer(input_tensor=inputs, targets=[ClassifierOutputTarget(target)])

    contenders: dict[str, Contender] = {"ours": lambda: ours(inputs, [CLASSES]).maps, "5 x grad-cam": five_calls}
    seconds = interleave(contenders, rounds)
    return ratio_row(f"five classes, {layer}: five grad-cam calls / ours", seconds, "5 x grad-cam", "ours", bound)


def _memory() -> Row:
    inputs = torch.randn(1, 3, 224, 224)
    model = _model()
    ours = saved_bytes(model, lambda: GradCAM(model, "layer4")(inputs, CLASSES[0]))
    full = saved_bytes(model, lambda: model(inputs))
    figures = f"ours {ours / 1e6:.2f} MB, full graph {full / 1e6:.1f} MB"
    return Row("memory saved for backward: ours / full graph", ours / full, "<= 0.10", figures)
