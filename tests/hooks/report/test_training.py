"""A real training watched by an Inspector: what its writers left behind is what plain torch saw."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from camapp.hooks.inspector import Inspector
from camapp.hooks.report.history import history_figure
from camapp.hooks.report.json_lines import JsonLines, read_json_lines
from camapp.hooks.report.tensorboard import TensorBoard
from tests.hooks.report.test_tensorboard import points, read_back

pytest.importorskip("tensorboard")

BROKEN = 30


@pytest.mark.filterwarnings("ignore:.*step 30.*:UserWarning")
def test_fifty_steps_with_a_nan_batch_read_back_from_both_files(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    norms: list[float] = []
    losses: list[float] = []
    writers = [JsonLines(tmp_path / "run.jsonl"), TensorBoard(tmp_path / "board")]
    with Inspector(model, every=1, writers=writers, check=False) as inspector:
        for step in range(50):
            inputs = torch.randn(16, 6)
            if step == BROKEN:
                inputs[3, 2] = math.nan
            loss = (model(inputs)[:, 0] - inputs.nan_to_num().sum(1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            inspector.step(loss)
            norms.append(float(model[0].weight.grad.norm()))  # type: ignore[union-attr, arg-type]
            losses.append(float(loss.detach()))
            if step != BROKEN:
                optimizer.step()
    finite = [step for step in range(50) if step != BROKEN]
    events = read_back(tmp_path / "board")
    expected = {step: pytest.approx(norms[step], rel=1e-5) for step in finite}
    assert points(events, "param/grad_norm/0.weight") == expected
    assert points(events, "loss") == {step: pytest.approx(losses[step], rel=1e-5) for step in finite}
    assert points(events, "loss_nonfinite")[BROKEN] == 1
    assert points(events, "param/nonfinite/0.weight")[BROKEN] == 48
    assert points(events, "activation/nonfinite/0")[BROKEN] == 8, "one row of the batch"
    snapshots = read_json_lines(tmp_path / "run.jsonl")
    assert [one.to_dict() for one in snapshots] == [one.to_dict() for one in inspector.history]
    assert [one.step for one in snapshots if one.verdicts and one.verdicts[0].what == "non-finite"] == [BROKEN]
    figure = history_figure(snapshots)
    assert figure is not None
    assert "first at step 30" in figure.get_suptitle()
