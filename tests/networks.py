"""Tiny networks, each with one property that breaks a careless capture."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Plain(nn.Module):
    """Convolutions, pooling, a linear head."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, stride=2)
        self.norm = nn.BatchNorm2d(6)
        self.last = nn.Conv2d(6, 8, 3, padding=1, stride=2)
        self.head = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)))
        return self.head(F.relu(self.last(x)).mean((2, 3)))


class InPlaceAfter(Plain):
    """The target's output is overwritten in place, by a functional ReLU and by a residual sum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)), inplace=True)
        y = self.last(x)
        y += y.mean((1, 2, 3), keepdim=True)
        return self.head(F.relu(y, inplace=True).mean((2, 3)))


class Reused(nn.Module):
    """One ReLU module, called three times in a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 4, 3, padding=1)
        self.two = nn.Conv2d(4, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.unused = nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.one(x))
        x = self.relu(self.two(x))
        return self.head(self.relu(x - 0.1).mean((2, 3)))


class SkipAround(Plain):
    """A branch passes the target and is concatenated behind it, so the target's rows cannot be repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(14, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)))
        return self.head(torch.cat([F.relu(self.last(x)).mean((2, 3)), x.mean((2, 3))], dim=1))


class PassThrough(Plain):
    """The target returns its own input, which is overwritten afterwards through the other name."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(self.stem(x)))
        y = self.last(x)
        kept = self.drop(y)
        y.mul_(0.0)
        return self.head(F.relu(kept).mean((2, 3)))


class Staged(nn.Module):
    """Three resolutions with an activation module each, and two maps at the last of them."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(6, 8, 3, padding=1, stride=2), nn.ReLU())
        self.late = nn.Sequential(nn.Conv2d(8, 10, 3, padding=1, stride=2), nn.ReLU())
        self.last = nn.Sequential(nn.Conv2d(10, 12, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(12, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(self.late(self.middle(self.stem(x)))).mean((2, 3)))


class Segmenter(nn.Module):
    """Scores of each class at each place, (B, classes, H, W)."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(6, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class Signals(nn.Module):
    """Classes of signals (B, 2, L)."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(2, 4, 5, padding=2), nn.ReLU())
        self.late = nn.Sequential(nn.Conv1d(4, 6, 5, padding=2, stride=2), nn.ReLU())
        self.head = nn.Linear(6, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.late(self.body(x)).mean(2))
