"""Small networks with the data to train them, and a training to compare with."""

from __future__ import annotations

import copy
from collections.abc import Callable

import timm
import torch
import torchvision
from torch import nn
from torch.nn import functional as F


class Recurrent(nn.Module):
    """An LSTM of two layers with dropout between them, whose last output is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(5, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(x))[0][:, -1])


def resnet18() -> tuple[nn.Module, torch.Tensor]:
    return torchvision.models.resnet18(num_classes=4), torch.randn(4, 3, 32, 32)


def vit() -> tuple[nn.Module, torch.Tensor]:
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3, num_classes=4,
        drop_rate=0.1, proj_drop_rate=0.1, drop_path_rate=0.1,
    )  # fmt: skip
    return model, torch.randn(4, 3, 32, 32)


def lstm() -> tuple[nn.Module, torch.Tensor]:
    return Recurrent(), torch.randn(6, 9, 5)


NETWORKS = {"resnet18": resnet18, "vit": vit, "lstm": lstm}


class Training:
    """A model with its data and optimizer, from the same beginning each time."""

    def __init__(self, make: Callable[[], tuple[nn.Module, torch.Tensor]], lr: float = 0.01) -> None:
        torch.manual_seed(0)
        self.model, self.x = make()
        self.model.train()
        self.y = torch.arange(len(self.x)) % 4
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        torch.manual_seed(1)

    def backward(self, micro: int = 1) -> torch.Tensor:
        """The loss of a step, sent backward; in ``micro`` parts."""
        total = torch.zeros(())
        for x, y in zip(self.x.chunk(micro), self.y.chunk(micro), strict=True):
            loss = F.cross_entropy(self.model(x), y) / micro
            loss.backward()
            total += loss.detach()
        return total

    def update(self) -> None:
        """The rest of the step."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict[str, torch.Tensor]:
        """All gradients, weights and buffers, copied."""
        found = {f"{name}.grad": one.grad for name, one in self.model.named_parameters() if one.grad is not None}
        return copy.deepcopy({**found, **dict(self.model.state_dict())})


def same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
