"""Tiny vision transformers of every kind that users bring, with random weights."""

from __future__ import annotations

from typing import Any

import timm
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import VisionTransformer


def drawn(model: nn.Module) -> nn.Module:
    """In eval mode, with what starts at zero or tiny drawn anew, so that attention differs from place to place."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4)
        elif name.endswith("bias"):
            nn.init.normal_(parameter, std=0.1)
    return model.eval()


def torchvision_vit() -> nn.Module:
    return drawn(VisionTransformer(32, 8, 3, 2, 16, 24, num_classes=5))


def timm_vit(fused: bool = True, **options: Any) -> nn.Module:
    size = options.pop("img_size", 32)
    model = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=size,
        patch_size=8,
        embed_dim=16,
        depth=3,
        num_heads=2,
        num_classes=5,
        **options,
    )
    for block in model.blocks:
        block.attn.fused_attn = fused
    return drawn(model)


class OwnEncoder(nn.Module):
    """A user's own: ``nn.TransformerEncoder`` on patches, mean pooling, no class token."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, stride=8)
        self.position = nn.Parameter(torch.randn(1, 12, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)
        self.batch_first = batch_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
        if not self.batch_first:
            tokens = self.encoder(tokens.transpose(0, 1)).transpose(0, 1)
            return self.head(tokens.mean(1))
        return self.head(self.encoder(tokens).mean(1))


class HubBlock(nn.Module):
    """In the manner of Hugging Face: attention by a function, the block's tokens within a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        q, k, v = self.qkv(self.before(x)).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.mlp(self.after(x)), None


class Hub(nn.Module):
    """A class token, four patches by three, and an output with a field of logits."""

    class Output:
        def __init__(self, logits: torch.Tensor) -> None:
            self.logits = logits

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 8, stride=8)
        self.cls = nn.Parameter(torch.randn(1, 1, 16))
        self.position = nn.Parameter(torch.randn(1, 13, 16))
        self.layer = nn.ModuleList(HubBlock() for _ in range(3))
        self.norm = nn.LayerNorm(16)
        self.classifier = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> Output:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1) + self.position
        for block in self.layer:
            tokens = block(tokens)[0]
        return self.Output(self.classifier(self.norm(tokens)[:, 0]))


def hub() -> Hub:
    return drawn(Hub())  # type: ignore[return-value]
