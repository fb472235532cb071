"""HeadedNetwork: a backbone up to some of its layers, and a classifier on the features taken there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from camapp.features.extractor import FeatureExtractor


class HeadedNetwork(nn.Module):
    """Class scores from the features of a backbone, as one network.

    Its layers are those of the backbone, named ``"backbone.layer4"`` and so on, and ``"head"``, so that every method of
    ``camapp.cam`` explains its classes as it explains the backbone's own. What lies behind the features' layer in the
    backbone does not run.

    Args:
        backbone: the network.
        layers: the places of the features, as ``FeatureExtractor`` takes them.
        pool: as for ``FeatureExtractor``.
        normalize: as for ``FeatureExtractor``.
        head: maps features (B, D), those of all layers one behind the other, to scores (B, classes).
    """

    def __init__(
        self, backbone: nn.Module, layers: Sequence[str], pool: str, head: nn.Module, *, normalize: bool = False
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        extractor = FeatureExtractor(backbone, layers, pool, normalize=normalize, detach=False, any_rows=True)
        self._extractors = (extractor,)  # in a tuple: its backbone is this network's, and not named twice

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Scores (B, classes) of inputs (B, C, *size)."""
        return self.head(self._extractors[0](inputs).joined())

    def get_classifier(self) -> nn.Module:
        """The classifier, by the name that timm's networks give it."""
        return self.head

    def train(self, mode: bool = True) -> Any:
        """Set the mode of the head; a backbone whose features are frozen always predicts."""
        super().train(mode)
        self.backbone.eval()
        return self


class LogVotes(nn.Module):
    """Votes (B, classes) from 0 to 1 as logits, whose softmax is each class's part of all votes.

    No vote at all counts as a millionth, so that nothing is infinite.
    """

    def forward(self, votes: torch.Tensor) -> torch.Tensor:
        """Logits (B, classes)."""
        return (votes + 1e-6).log()
