"""What watching a training step costs: resnet18, batch 8 at 160 x 160, SGD; beside torch's anomaly mode."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch
import torchvision
from torch import nn

from benchmarks.measure import Contender, Row, interleave, ratio_row
from camapp.hooks.inspector import Inspector
from camapp.hooks.manager import HookManager
from camapp.hooks.nonfinite import locate
from camapp.hooks.report import JsonLines

EVERY = 50
# Puts something on a model; what it gives is called with the loss after each backward.
Watch: TypeAlias = Callable[[nn.Module], Callable[[torch.Tensor], Any]]
Seconds: TypeAlias = dict[str, list[float]]


class Training:
    """Training steps of one network, watched by something or by nothing."""

    def __init__(self, watch: Watch | None = None) -> None:
        torch.manual_seed(0)
        self.model = torchvision.models.resnet18(weights=None).train()
        self._inputs = torch.randn(8, 3, 160, 160)
        self._labels = torch.arange(8)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self._after = watch(self.model) if watch else lambda loss: None

    def loss(self) -> torch.Tensor:
        """A forward and its loss."""
        return nn.functional.cross_entropy(self.model(self._inputs), self._labels)

    def __call__(self) -> None:
        """One step."""
        self._optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self._after(loss)
        self._optimizer.step()


def run(rounds: int) -> Iterator[Row]:
    """The rows: each contender trains a network of its own, one step a round."""
    anomaly = Training()

    def with_anomaly() -> None:
        with torch.autograd.set_detect_anomaly(True):
            anomaly()

    contenders: dict[str, Contender] = {
        "bare": Training(),
        "norms, a step off": Training(lambda model: _norms(model, never)),
        "norms, a step on": Training(lambda model: _norms(model, 1)),
        "check alone": Training(lambda model: _inspected(model, never)),
        "all figures": Training(lambda model: _inspected(model, 1)),
        "anomaly mode": with_anomaly,
    }
    seconds = interleave(contenders, rounds)
    yield _amortised(f"norms of all conv and linear layers every {EVERY} steps", seconds, "norms, a step", "<= 1.03")
    yield ratio_row("check of the loss and every gradient at every step", seconds, "check alone", "bare", "<= 1.08")
    yield _figures(seconds)
    yield ratio_row("all figures of all layers at every step, to a file", seconds, "all figures", "bare", "<= 1.6")
    yield ratio_row("torch's anomaly mode, forward and backward", seconds, "anomaly mode", "bare")
    yield from _located(max(3, rounds // 3))


def never(step: int) -> bool:
    """The schedule of a step that is not measured."""
    return False


def _norms(model: nn.Module, every: Any) -> Callable[[torch.Tensor], Any]:
    hooks = HookManager(model)
    hooks.record([nn.Conv2d, nn.Linear], of="gradient", reduce="norm", every=every)
    return lambda loss: hooks  # held as long as the training


def _inspected(model: nn.Module, every: Any) -> Callable[[torch.Tensor], Any]:
    file = Path(tempfile.mkdtemp()) / "run.jsonl"
    return Inspector(model, every=every, writers=[JsonLines(file)]).step


def _amortised(what: str, seconds: Seconds, of: str, bound: str) -> Row:
    """One measured step in ``EVERY``, the others not, over as many bare ones."""
    parts = zip(seconds["bare"], seconds[f"{of} off"], seconds[f"{of} on"], strict=True)
    ratio = median(((EVERY - 1) * off + on) / (EVERY * bare) for bare, off, on in parts)
    names = ("bare", f"{of} off", f"{of} on")
    return Row(what, ratio, bound, ", ".join(f"{name} {median(seconds[name]) * 1e3:.0f} ms" for name in names))


def _figures(seconds: Seconds) -> Row:
    parts = {"bare": seconds["bare"], "of off": seconds["check alone"], "of on": seconds["all figures"]}
    row = _amortised(f"all figures every {EVERY} steps, with the check", parts, "of", "<= 1.08")
    return Row(row.what, row.ratio, row.bound, "from the rows around")


def _located(rounds: int) -> Iterator[Row]:
    """A step that fails, run once more to find out where."""
    training = Training()
    with torch.no_grad():
        training.model.layer3[0].bn1.weight.fill_(float("nan"))
    finding = locate(training.model, training.loss)
    assert finding is not None
    seconds = interleave({"located": lambda: locate(training.model, training.loss), "bare": Training()}, rounds, warm=1)
    yield ratio_row("a failing step located / a bare step", seconds, "located", "bare")
