"""Feature extraction beside truncated FX graphs and bare forwards: 224 x 224, random weights."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import timm
import torch
import torchvision
from torch import nn
from torchvision.models.feature_extraction import create_feature_extractor

from benchmarks.measure import Contender, Row, interleave, ratio_row
from camapp.features import FeatureExtractor

BATCHES = 500


def run(rounds: int) -> Iterator[Row]:
    """The rows, one after the other; each contender has a model of its own."""
    yield _growth()  # first: the peak of the process is for its life, and larger networks would hide a leak below it
    yield from _early_exit("resnet18", "layer2", rounds)
    yield from _early_exit("vit_b_16", "encoder.layers.encoder_layer_5", max(5, rounds // 2))
    yield from _overhead("resnet50", "layer4", 8, rounds)
    yield from _overhead("efficientnet_lite0", "bn2", 32, max(5, rounds // 2))


def _model(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name in torchvision.models.list_models():
        return torchvision.models.get_model(name, weights=None).eval()
    model: nn.Module = timm.create_model(name, pretrained=False).eval()
    return model


def _inputs(rows: int) -> torch.Tensor:
    return torch.randn(rows, 3, 224, 224, generator=torch.Generator().manual_seed(1))


def _early_exit(name: str, layer: str, rounds: int) -> Iterator[Row]:
    inputs, bare = _inputs(4), _model(name)
    ours = FeatureExtractor(_model(name), layer, "none")
    graph = create_feature_extractor(_model(name), [layer])

    def truncated() -> torch.Tensor:
        with torch.no_grad():
            return graph(inputs)[layer]

    def whole() -> torch.Tensor:
        with torch.no_grad():
            return bare(inputs)

    difference = float((ours(inputs)[layer] - truncated()).abs().max())
    contenders: dict[str, Contender] = {
        "ours": lambda: ours(inputs)[layer],
        "FX": truncated,
        "whole forward": whole,
    }
    seconds = interleave(contenders, rounds)
    yield ratio_row(f"{name} to {layer}: ours / truncated FX graph", seconds, "ours", "FX", "<= 1.05")
    yield ratio_row(f"{name} to {layer}: ours / whole forward", seconds, "ours", "whole forward")
    yield Row(f"{name} to {layer}: largest difference from FX", difference, "<= 1e-5", "")


def _overhead(name: str, layer: str, rows: int, rounds: int) -> Iterator[Row]:
    inputs, bare, mine = _inputs(rows), _model(name), _model(name)
    plain, last = FeatureExtractor(mine, layer, "avg"), FeatureExtractor(mine, layer, "avg", channels_last=True)

    def forward() -> torch.Tensor:
        with torch.no_grad():
            return bare(inputs)

    contenders: dict[str, Contender] = {
        "ours": lambda: plain(inputs)[layer],
        "ours, channels last": lambda: last(inputs)[layer],
        "bare forward": forward,
    }
    seconds = interleave(contenders, rounds)
    what = f"{name}, {layer} pooled, batch {rows}"
    yield ratio_row(f"{what}: ours / bare forward", seconds, "ours", "bare forward", "<= 1.05")
    yield ratio_row(f"{what}: ours, channels last / bare forward", seconds, "ours, channels last", "bare forward")


def _growth() -> Row:
    """How far the most memory that the process ever held rises from the first batches to the last."""
    extractor = FeatureExtractor(_model("resnet18"), ["layer2", "penultimate"])
    inputs = torch.randn(2, 3, 64, 64)
    for _ in range(BATCHES // 10):
        extractor(inputs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(BATCHES):
        extractor(inputs)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Row(f"resnet18: peak memory after {BATCHES} batches / before", after / before, "<= 1.01", "")
