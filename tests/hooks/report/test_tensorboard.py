"""TensorBoard: its own reader finds in the files what the snapshots hold."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camapp.errors import UsageError
from camapp.hooks.report.records import Snapshot
from camapp.hooks.report.tensorboard import TensorBoard
from tests.hooks.report.snapshots import NAN, ordinary, sick, statistics

pytest.importorskip("tensorboard")


def read_back(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return events.Reload()


def points(events: Any, tag: str) -> dict[int, float]:
    return {one.step: one.value for one in events.Scalars(tag)}


@pytest.fixture(scope="module")
def run() -> list[Snapshot]:
    """Fifty steps; at step 30 a gradient and the loss are NaN."""
    steps = [ordinary(step, 2.0 / (1 + step)) for step in range(50)]
    broken = [
        replace(one, norm=NAN, mean=NAN, nonfinite=5) if (one.name, one.of) == ("relu", "gradient") else one
        for one in steps[30].statistics
    ]
    steps[30] = replace(steps[30], loss=NAN, statistics=tuple(broken))
    return steps


def test_a_run_of_fifty_steps_reads_back_and_its_nan_is_a_count(tmp_path: Path, run: list[Snapshot]) -> None:
    with TensorBoard(tmp_path) as writer:
        for snapshot in run:
            writer.write(snapshot)
    events = read_back(tmp_path)
    tags = set(events.Tags()["scalars"])
    layers = ("conv1", "bn1", "relu", "layer1.0.conv1", "fc")
    for group in ("grad", "activation"):
        figures = ("norm", "abs_max", "zero_share", "p50", "p95", "p99", "nonfinite")
        assert {f"{group}/{figure}/{layer}" for figure in figures for layer in layers} <= tags
    parameters = ("conv1.weight", "bn1.weight", "fc.weight", "fc.bias")
    figures = ("grad_norm", "grad_p99", "update_ratio", "nonfinite")
    assert {f"param/{figure}/{name}" for figure in figures for name in parameters} <= tags
    expected = {one.step: 0.02 * 1.5**2 / (1 + one.step / 100) for one in run if one.step != 30}
    found = points(events, "grad/norm/relu")
    assert found.keys() == expected.keys(), "the step whose norm is NaN has no point"
    np.testing.assert_allclose([found[step] for step in expected], list(expected.values()), rtol=1e-6)
    assert points(events, "grad/nonfinite/relu") == {step: 5.0 if step == 30 else 0.0 for step in range(50)}
    assert len(points(events, "grad/p95/relu")) == 50, "the quantiles of the finite elements are there"
    assert points(events, "loss").keys() == set(range(50)) - {30}
    assert points(events, "loss_nonfinite") == {step: float(step == 30) for step in range(50)}
    assert points(events, "param/update_ratio/fc.bias")[7] == pytest.approx(1.2e-3)
    assert points(events, "activation/dead_units/relu")[0] == 0
    assert "activation/dead_units/conv1" not in tags, "a figure that a layer does not have is no chart"
    for tag in tags:
        assert all(math.isfinite(value) for value in points(events, tag).values()), tag


def test_verdicts_are_text(tmp_path: Path) -> None:
    with TensorBoard(tmp_path) as writer:
        writer.write(ordinary(99))
        writer.write(sick(100))
    events = read_back(tmp_path)
    (text,) = events.Tensors("verdicts/text_summary")
    assert text.step == 100
    shown = text.tensor_proto.string_val[0].decode()
    assert all(f"{verdict.name} ({verdict.of}): {verdict.why}" in shown for verdict in sick().verdicts)


def test_a_finite_norm_beyond_float32_stays_finite(tmp_path: Path) -> None:
    with TensorBoard(tmp_path) as writer:
        writer.write(Snapshot(0, -1e300, (statistics("fc", norm=1e39),)))
    events = read_back(tmp_path)
    assert points(events, "grad/norm/fc")[0] == pytest.approx(3.4028234e38)
    assert points(events, "loss")[0] == pytest.approx(-3.4028234e38)


def test_a_writer_of_yours_is_used_and_stays_open(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    mine = SummaryWriter(str(tmp_path))
    writer = TensorBoard(mine, prefix="inspector/")
    writer.write(ordinary(1))
    writer.close()
    mine.add_scalar("loss", 0.5, 2)
    mine.close()
    events = read_back(tmp_path)
    assert points(events, "inspector/loss")[1] == pytest.approx(0.3127)
    assert points(events, "loss") == {2: 0.5}
    with pytest.raises(UsageError, match="closed"):
        writer.write(ordinary(2))


def test_without_tensorboard_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(UsageError, match=r'pip install "camapp\[tensorboard\]"'):
        TensorBoard(tmp_path)


def test_what_is_no_writer_is_refused() -> None:
    with pytest.raises(UsageError, match="log_dir is a int"):
        TensorBoard(3)
