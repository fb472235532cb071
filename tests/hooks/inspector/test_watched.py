"""Which layers are watched, and what their zeros and limits mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from camapp.hooks.inspector import Inspector
from camapp.hooks.report.records import Snapshot


def step(model: nn.Module, x: torch.Tensor, **options: Any) -> Snapshot:
    with Inspector(model, every=1, **options) as inspector:
        model(x).float().sum().backward()
        snapshot = inspector.step()
    assert snapshot is not None
    return snapshot


def dead_units(model: nn.Module, x: torch.Tensor) -> list[float | None]:
    return [entry.dead_units for entry in step(model, x).of("activation")]


def test_attention_is_watched_as_a_whole_as_its_projection_never_runs_as_a_layer() -> None:
    snapshot = step(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(3, 5, 8))
    names = [entry.name for entry in snapshot.of("activation")]
    assert names == ["self_attn#0", "dropout1", "norm1", "linear1", "dropout", "linear2", "dropout2", "norm2"]


def test_a_layer_with_a_parametrised_weight_is_watched_and_what_makes_the_weight_is_not() -> None:
    snapshot = step(nn.Sequential(spectral_norm(nn.Linear(4, 3)), nn.ReLU()), torch.randn(5, 4))
    assert [entry.name for entry in snapshot.of("activation")] == ["0", "1"]


def test_a_model_of_one_layer_is_watched_under_the_name_of_its_class() -> None:
    snapshot = step(nn.Linear(4, 3), torch.randn(5, 4))
    assert [(entry.name, entry.of) for entry in snapshot.statistics] == [
        ("Linear", "activation"),
        ("Linear", "gradient"),
        ("weight", "parameter gradient"),
        ("bias", "parameter gradient"),
    ]


def test_what_passes_a_tensor_on_has_its_figures_but_no_meaning_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Sigmoid(), nn.Identity(), nn.ReLU(), nn.Identity())
    shown = step(model, torch.randn(5, 4))
    assert [entry.name for entry in shown.of("activation")] == ["0", "1", "3"], "only what is named is shown twice"
    snapshot = step(model, torch.randn(5, 4), layers="*")
    entries = {entry.name: entry for entry in snapshot.of("activation")}
    assert entries["2"].norm == entries["1"].norm
    assert (entries["1"].saturated, entries["2"].saturated) == (0.0, None)
    assert (entries["3"].dead_units, entries["4"].dead_units) == (0.0, None)
    gradients = {entry.name: entry.norm for entry in snapshot.of("gradient")}
    assert gradients["1"] == gradients["2"] > 0


class LastChannel(nn.Module):
    """Kills the last channel of maps (B, C, H, W), vectors or tokens (B, N, C)."""

    def __init__(self, axis: int, size: int) -> None:
        super().__init__()
        shape = [1, 1, 1, 1][: 4 if axis == 1 else 1]
        shape[axis if axis == 1 else 0] = size
        mask = torch.zeros(size)
        mask[-1] = -1e6
        self.register_buffer("mask", mask.view(shape))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() + self.mask


@pytest.mark.parametrize(
    ("model", "shape", "share"),
    [
        (nn.Sequential(nn.Conv2d(3, 5, 1), LastChannel(1, 5), nn.ReLU()), (2, 3, 4, 7), 1 / 5),
        (nn.Sequential(nn.Linear(3, 6), LastChannel(-1, 6), nn.GELU()), (2, 4, 7, 3), 1 / 6),  # (B, H, W, C)
        (nn.Sequential(nn.Linear(3, 6), LastChannel(-1, 6), nn.ReLU()), (2, 7, 3), 1 / 6),
        (nn.Sequential(nn.Linear(3, 6), LastChannel(-1, 6), nn.ReLU()), (9, 3), 1 / 6),
        (nn.Sequential(nn.Conv1d(3, 7, 1), LastChannel(-1, 4), nn.ReLU()), (2, 3, 4), 0.0),  # a place is no unit
    ],
)
def test_units_are_channels_wherever_the_layers_before_put_them(
    model: nn.Module, shape: tuple[int, ...], share: float
) -> None:
    assert dead_units(model, torch.randn(shape))[-1] == pytest.approx(share)
    assert dead_units(model, torch.randn(shape))[:-1] == [None, None]


def test_under_autocast_figures_are_of_the_half_precision_that_ran() -> None:
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), torch.randn(16, 64) * 1000
    kept: list[torch.Tensor] = []
    model[0].register_forward_hook(lambda module, args, output: kept.append(output.detach().clone()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        snapshot = step(model, x)
    assert kept[0].dtype is torch.bfloat16
    found = next(snapshot.of("activation"))
    assert found.norm == pytest.approx(float(kept[0].double().norm()), rel=1e-6)


def test_it_is_said_when_no_layer_ran() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    with Inspector(model, every=1) as inspector:
        with pytest.warns(UserWarning, match="compiled"):
            inspector.step()
        model(torch.randn(2, 3)).sum().backward()
        assert inspector.step() is not None
