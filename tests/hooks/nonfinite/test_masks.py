"""Masks of -Inf are no one's fault, unless something makes NaN of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.hooks.nonfinite.planted import Scale, located

NAN, INF = float("nan"), float("inf")


class Attention(nn.Module):
    """Causal attention by hand; ``hidden`` rows see nothing at all."""

    def __init__(self, mask: str, hidden: bool = False) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.mask = mask
        blocked = torch.triu(torch.ones(5, 5, dtype=torch.bool), 0 if hidden else 1)
        self.register_buffer("blocked", blocked)
        self.register_buffer("added", torch.zeros(5, 5).masked_fill(blocked, -INF))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        if self.mask == "masked_fill":
            scores = scores.masked_fill(self.blocked, -INF)
        elif self.mask == "masked_fill_":
            scores = scores.clone().masked_fill_(self.blocked, -INF)
        elif self.mask == "buffer":
            scores = scores + self.added
        elif self.mask == "where":
            scores = torch.where(self.blocked, -INF, scores)
        elif self.mask == "where with a tensor":
            scores = torch.where(self.blocked, torch.tensor(-INF), scores)
        elif self.mask == "full":
            diagonal = int(not self.blocked[0, 0])
            scores = scores + torch.full((5, 5), -INF).triu(diagonal)
        elif self.mask == "indexing":
            scores = scores.clone()
            scores[:, self.blocked] = -INF
        return scores.softmax(-1) @ x


MASKS = ["masked_fill", "masked_fill_", "buffer", "where", "where with a tensor", "full", "indexing"]


@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_is_innocent_of_what_another_module_does(mask: str) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), Attention(mask), Scale(1.0), nn.Linear(4, 1)), torch.randn(2, 5, 4)
    assert located(model, lambda: model(x).sum()) is None
    model[2].factor = NAN
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.module and finding.module.name) == "2"


@pytest.mark.parametrize("mask", MASKS)
def test_a_softmax_over_nothing_but_minus_infinity_is_named_and_its_mask_with_it(mask: str) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), Attention(mask, hidden=True), nn.Linear(4, 1)), torch.randn(2, 5, 4)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.operation, finding.module and finding.module.name) == ("aten._softmax.default", "1")
    assert finding.nan == 2 * 5  # one row of five in each of two
    assert finding.mask is not None
    assert "-Inf of a mask" in str(finding)
    assert {"buffer": "the buffer 1.added", "masked_fill": "aten.masked_fill.Scalar in 1 (Attention)"}.get(
        mask, finding.mask
    ) == finding.mask


def test_a_row_that_a_mask_given_to_torchs_own_attention_hides_is_named() -> None:
    model, x = nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 3, 4)
    mask = torch.zeros(3, 3)
    mask[1] = -INF
    finding = located(model, lambda: model(x, x, x, attn_mask=mask)[0].sum())
    assert finding is not None
    assert finding.operation == "aten._softmax.default"
    assert finding.mask == "the batch"


def test_a_parameter_of_minus_infinity_is_no_mask() -> None:
    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.full((4,), -INF))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + self.bias).softmax(-1)

    model, x = nn.Sequential(nn.Linear(4, 4), Biased(), nn.Linear(4, 1)), torch.randn(2, 4)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.place, finding.tensor) == ("parameter", "1.bias")


def test_a_mask_that_the_model_hands_out_is_named() -> None:
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(torch.tensor([False, True, False]), -INF)

    model, x = nn.Sequential(nn.Linear(4, 3), Masked()), torch.randn(2, 4)
    allowed, forbidden = torch.tensor([0, 2]), torch.tensor([0, 1])
    assert located(model, lambda: F.cross_entropy(model(x), allowed)) is None
    finding = located(model, lambda: F.cross_entropy(model(x), forbidden))
    assert finding is not None
    assert (finding.operation, finding.module and finding.module.name) == ("aten.masked_fill.Scalar", "1")


def test_a_mask_is_named_where_nothing_else_explains_the_loss() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3)), torch.randn(2, 4)
    finding = located(model, lambda: model(x).masked_fill(torch.tensor([True, False, False]), -INF).sum())
    assert finding is not None
    assert (finding.place, finding.operation) == ("loss", "aten.masked_fill.Scalar")


@pytest.mark.parametrize("value", [INF, NAN])
def test_nan_and_plus_infinity_are_named_also_where_they_are_written_on_purpose(value: float) -> None:
    class Fills(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.masked_fill(x > 0, value)

    model, x = nn.Sequential(nn.Linear(4, 4), Fills(), nn.Linear(4, 3)), torch.randn(2, 4)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.operation, finding.module and finding.module.name) == ("aten.masked_fill.Scalar", "1")


def test_minus_infinity_that_a_logarithm_makes_is_no_mask() -> None:
    class Logs(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu().log()

    model, x = nn.Sequential(nn.Linear(4, 4), Logs(), nn.Linear(4, 1)), torch.randn(4, 4)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.operation, finding.module and finding.module.name) == ("aten.log.default", "1")
