"""Healthy networks raise no alarm, and a module spoiled in the middle of one is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.nn import functional as F

from tests.hooks.nonfinite.planted import located


class Tagger(nn.Module):
    """Two directions and two layers of LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.body = nn.LSTM(8, 8, 2, batch_first=True, bidirectional=True, dropout=0.2)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = (x.flatten(1)[:, :12] * 5).long().remainder(20)
        hidden, _ = self.body(self.words(words))
        return self.head(self.drop(hidden).mean(1))


class Causal(nn.Module):
    """A transformer with a causal mask of -Inf, as torch makes it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.stem(x.flatten(2).transpose(1, 2)[:, :10])
        mask = nn.Transformer.generate_square_subsequent_mask(10)
        return self.head(self.body(tokens, mask=mask)[:, -1])


class UNet(nn.Module):
    """Down, up, a skip between them, and two outputs by name."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(inplace=True))
        self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.InstanceNorm2d(8), nn.ELU())
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out, self.aux = nn.Conv2d(16, 5, 1), nn.Conv2d(8, 5, 1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        shallow = self.down(x)
        deep = self.deep(shallow)
        return {"out": self.out(torch.cat([shallow, self.up(deep)], 1)), "aux": self.aux(deep)}


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: torchvision.models.resnet18(num_classes=5),
    "densenet121": lambda: torchvision.models.densenet121(num_classes=5),
    "mobilenet_v3_small": lambda: torchvision.models.mobilenet_v3_small(num_classes=5),
    "squeezenet1_1": lambda: torchvision.models.squeezenet1_1(num_classes=5),
    "convnext": lambda: timm.create_model("convnext_atto", num_classes=5),
    "vit": lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=3, num_classes=5),
    "swin": lambda: torchvision.models.SwinTransformer([2, 2], 12, [2, 2], [2, 4], [4, 4], num_classes=5),
    "lstm": Tagger,
    "causal transformer": Causal,
    "unet": UNet,
}

#: Smaller ones of the same makes, for tests that run them often.
SMALL: dict[str, Callable[[], nn.Module]] = {
    **{name: NETWORKS[name] for name in ("vit", "swin", "lstm", "causal transformer", "unet")},
    "resnet": lambda: timm.create_model("test_resnet", num_classes=5),
    "densenet": lambda: torchvision.models.DenseNet(8, (2, 2), 16, num_classes=5),
    "efficientnet": lambda: timm.create_model("test_efficientnet", num_classes=5),
    "convnext": lambda: timm.create_model("test_convnext", num_classes=5),
}


def stepping(model: nn.Module) -> Callable[[], torch.Tensor]:
    x, labels = torch.randn(2, 3, 32, 32), torch.tensor([0, 3])

    def step() -> torch.Tensor:
        output = model(x)
        parts = output.values() if isinstance(output, dict) else [output]
        pooled = [part.flatten(2).mean(2) if part.ndim > 2 else part for part in parts]
        return torch.stack([F.cross_entropy(scores, labels) for scores in pooled]).sum()

    return step


@pytest.mark.parametrize("name", NETWORKS)
def test_a_healthy_network_raises_no_alarm(name: str) -> None:
    model = NETWORKS[name]().train()
    assert located(model, stepping(model)) is None


def leaves(model: nn.Module) -> list[str]:
    """The modules without modules of their own that make something new, and hand one tensor on."""
    passed_on = (nn.Dropout, nn.Identity, nn.Flatten, nn.LSTM, torchvision.ops.Permute)
    inside = [name for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)]
    return [
        name
        for name, module in model.named_modules()
        if not list(module.children())
        and not isinstance(module, passed_on)
        and not any(name.startswith(f"{other}.") for other in inside)
    ]


@pytest.mark.parametrize("share", [0.35, 0.6])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_a_module_spoiled_in_the_middle_of_a_network_is_named(name: str, backward: bool, share: float) -> None:
    model = SMALL[name]().train()
    names = leaves(model)
    spoiled = names[int(share * len(names))]
    ran = []

    def spoil(module: nn.Module, args: object, output: torch.Tensor) -> torch.Tensor:
        ran.append(spoiled)
        if not backward:
            return output * float("nan")
        output = output * 1.0
        output.register_hook(lambda gradient: gradient * float("inf"))
        return output

    model.get_submodule(spoiled).register_forward_hook(spoil)
    finding = located(model, stepping(model))
    assert ran == [spoiled] * len(ran)
    assert finding is not None
    assert finding.module is not None
    assert (finding.module.name, finding.phase) == (spoiled, "backward" if backward else "forward")
    assert finding.place == ("hook" if backward else "module")
    assert finding.operation == "aten.mul.Tensor"
