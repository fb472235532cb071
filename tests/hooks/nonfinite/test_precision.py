"""Overflows of narrow dtypes are found and recognised, and large sums of finite numbers are none."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.hooks.nonfinite.planted import Scale, located, network, pictures


def test_nan_within_autocast_to_bfloat16_is_found_with_its_dtype() -> None:
    model, x = network(Scale(float("nan")), 5), pictures()

    def step() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x).float().sum()

    finding = located(model, step)
    assert finding is not None
    assert (finding.module and finding.module.name, finding.outputs[0].dtype) == ("5", "bfloat16")
    model[5].factor = 1.0
    assert located(model, step) is None


def test_a_linear_layer_that_overflows_float16_is_named_with_the_largest_number_that_it_took() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 1)).half()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(4) * 300)
        model[1].weight.copy_(torch.eye(4) * 400)
    x = torch.ones(2, 4, dtype=torch.float16)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert finding.module is not None
    assert (finding.module.name, finding.inf, finding.nan) == ("1", 8, 0)  # 300 * 400 > 65504
    assert (finding.largest_input, finding.overflow) == (400.0, True)
    assert "an overflow of float16" in str(finding)


def test_an_autocast_cast_that_overflows_is_the_modules_that_asked_for_it() -> None:
    model = nn.Sequential(Scale(1e5), nn.Linear(4, 1))
    x = torch.ones(2, 4)

    def step() -> torch.Tensor:
        with torch.autocast("cpu", torch.float16):
            return model(x).float().sum()

    finding = located(model, step)
    assert finding is not None
    assert finding.module is not None
    assert (finding.module.name, finding.operation, finding.overflow) == ("1", "aten._to_copy.default", True)
    assert finding.largest_input == 1e5


def test_a_scaled_loss_that_overflows_in_the_backward_is_recognised() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), Scale(200.0), nn.Linear(4, 1, bias=False)).half()
    with torch.no_grad():
        model[2].weight.fill_(1.0)
        model[0].weight.fill_(0.01)
    x = torch.full((2, 4), 0.01, dtype=torch.float16)
    finding = located(model, lambda: model(x).float().sum() * 1024.0)
    assert finding is not None
    assert (finding.phase, finding.module and finding.module.name, finding.overflow) == ("backward", "1", True)
    assert finding.largest_input == 1024.0


def test_exp_is_recognised_as_an_overflow_by_its_argument() -> None:
    class Exponential(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.exp()

    model, x = nn.Sequential(Scale(1.0), Exponential(), nn.Linear(1, 1)), torch.tensor([[89.0]])
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.operation, finding.overflow, finding.largest_input) == ("aten.exp.default", True, 89.0)


def test_a_division_by_zero_is_not_taken_for_an_overflow_however_large_the_dividend() -> None:
    class Ratio(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / (x - x)

    model, x = nn.Sequential(Scale(1e30), Ratio(), nn.Linear(1, 1)), torch.tensor([[1.0]])
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.operation, finding.overflow) == ("aten.div.Tensor", False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_elements_whose_sum_would_overflow_raise_no_alarm_while_they_are_finite(dtype: torch.dtype) -> None:
    class Huge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            large = x * torch.finfo(dtype).max
            return self.head(large / torch.finfo(dtype).max)

    model = Huge().to(dtype)
    x = torch.ones(64, 4, dtype=dtype)
    assert (x * torch.finfo(dtype).max).sum().isinf()
    assert located(model, lambda: model(x).mean()) is None


def test_complex_numbers_are_measured_by_their_parts() -> None:
    class Spectrum(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            spectrum = torch.fft.rfft(x)
            return (spectrum / spectrum.abs().sub(spectrum.abs())).real

    model, x = nn.Sequential(nn.Linear(4, 4), Spectrum(), nn.Linear(3, 1)), torch.randn(2, 4)
    finding = located(model, lambda: model(x).sum())
    assert finding is not None
    assert (finding.operation, finding.module and finding.module.name) == ("aten.div.Tensor", "1")
