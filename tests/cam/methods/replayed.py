"""What the tests of replaying methods share: networks that a careless replay gets wrong, and recorded weights."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.nn import functional as F

from tests.networks import Plain


class BatchStatistics(Plain):
    """Behind the target, a BatchNorm that always uses the statistics of the batch at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.BatchNorm2d(8, track_running_stats=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)))
        return self.head(F.relu(self.mix(self.last(x))).amax((2, 3)))


class MixesRows(Plain):
    """Behind the target, each row is compared with the mean of the batch; no module says so."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.last(F.relu(self.norm(self.stem(x)))).amax((2, 3)))
        return self.head(y + 0.5 * y.mean(0, keepdim=True))


class AddsBehind(Plain):
    """A branch around the target is joined by an in-place sum into the branch, which has the picture's own rows."""

    def __init__(self) -> None:
        super().__init__()
        self.same = nn.Conv2d(6, 6, 3, padding=1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)))
        around = x.clone()
        around += self.same(x)
        return self.head(F.relu(around).mean((2, 3)))


class Broadcasts(AddsBehind):
    """As ``AddsBehind``, but the sum is a new tensor, so that one row is added to all copies."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)))
        return self.head(F.relu(x + self.same(x)).mean((2, 3)))


class GivesTuple(Plain):
    """The target returns a tuple whose second part is needed as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = _Pair(self.last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, scale = self.pair(F.relu(self.norm(self.stem(x))))
        return self.head(F.relu(y).mean((2, 3)) * scale)


class _Pair(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        return self.inner(x), 1.5


class Slow(Plain):
    """Every forward takes a while."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.05)
        return super().forward(x)


def tiny_vit() -> nn.Module:
    """A class token and a grid of 4 x 4 patches."""
    return VisionTransformer(img_size=16, patch_size=4, embed_dim=8, depth=2, num_heads=2, num_classes=5).eval()


def tiny_swin() -> nn.Module:
    """Channels last."""
    return SwinTransformer(
        img_size=32, patch_size=4, window_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 2), num_classes=5
    ).eval()


@contextmanager
def recorded_weights(method: type[Any], monkeypatch: Any) -> Iterator[list[torch.Tensor]]:
    """The weights (B, K, C) that a method finds for each of its layers."""
    kept: list[torch.Tensor] = []
    inner = method.weights
    with monkeypatch.context() as patch:
        patch.setattr(method, "weights", lambda *args: (kept.append(inner(*args)), kept[-1])[1])
        yield kept


def peer_weights(peer: Any, inputs: torch.Tensor, targets: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The maps and the channel weights of a method of grad-cam."""
    kept: list[np.ndarray] = []
    inner = peer.get_cam_weights
    peer.get_cam_weights = lambda *args, **kwargs: (kept.append(inner(*args, **kwargs)), kept[-1])[1]
    return peer(inputs, targets), kept[0]
