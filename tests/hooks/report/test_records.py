"""A snapshot goes to strict JSON and back unchanged, and saves itself whole or not at all."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camapp.errors import UsageError
from camapp.hooks.report.json_form import json_number
from camapp.hooks.report.records import Snapshot, TensorStatistics, Verdict
from tests.hooks.report.snapshots import INF, NAN, deep, empty, ordinary, sick, statistics

NUMBERS = st.floats()  # NaN and both infinities too
NAMES = st.text(max_size=8)
STATISTICS = st.builds(
    TensorStatistics,
    name=NAMES,
    of=st.sampled_from(["activation", "gradient", "parameter gradient"]),
    kind=NAMES,
    shape=st.lists(st.integers(0, 2**40), max_size=5).map(tuple),
    **dict.fromkeys(("norm", "mean", "abs_max", "zero_share", "p50", "p95", "p99"), NUMBERS),
    nonfinite=st.integers(0, 2**60),
    **dict.fromkeys(("dead_units", "saturated", "update_ratio"), NUMBERS | st.none()),
)
VERDICTS = st.builds(
    Verdict, name=NAMES, of=st.just("gradient"), what=st.sampled_from(["dead", "non-finite"]), why=st.text(max_size=8)
)
SNAPSHOTS = st.builds(
    Snapshot,
    step=st.integers(0, 2**50),
    loss=NUMBERS | st.none(),
    statistics=st.lists(STATISTICS, max_size=3).map(tuple),
    verdicts=st.lists(VERDICTS, max_size=2).map(tuple),
    without_gradient=st.lists(NAMES, max_size=3).map(tuple),
)


def fields(snapshot: Snapshot) -> object:
    """All that a snapshot holds, such that NaN equals NaN and -0.0 is not 0.0."""
    parts = [vars(one) for one in (*snapshot.statistics, *snapshot.verdicts)]
    return repr((snapshot.step, snapshot.loss, parts, snapshot.without_gradient))


@given(SNAPSHOTS)
def test_any_snapshot_reads_back_equal_from_strict_json(snapshot: Snapshot) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    text = json.dumps(snapshot.to_dict(), allow_nan=False)
    again = Snapshot.from_dict(json.loads(text, parse_constant=refuse))
    assert fields(again) == fields(snapshot)


def test_what_json_has_no_sign_for_is_a_word() -> None:
    assert list(map(json_number, (NAN, INF, -INF, 0.5, None))) == ["NaN", "Infinity", "-Infinity", 0.5, None]
    facts = sick().to_dict()
    assert facts["loss"] == "NaN"
    assert facts["statistics"][4]["norm"] == "Infinity"
    assert facts["statistics"][4]["nonfinite"] == 3
    assert "saturated" not in facts["statistics"][0], "a figure that a tensor has none of is left out"


def test_keys_of_others_do_not_matter() -> None:
    facts = {"model": "resnet18", **ordinary().to_dict()}
    facts["statistics"][0]["kurtosis"] = 3.0
    assert fields(Snapshot.from_dict(facts)) == fields(ordinary())


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, "it has no 'loss'"),
        ({"loss": None, "statistics": []}, "it has no 'step'"),
        ({"step": 0, "loss": "much", "statistics": []}, '"much" is not a number'),
        ({"step": 0, "loss": True, "statistics": []}, "True is not a number"),
        ({"step": 0, "loss": None, "statistics": [{"name": "conv"}]}, "it has no 'of'"),
        ({"step": 0, "loss": None, "statistics": 3}, "not iterable"),
        ([1, 2], "indices"),
        (None, "NoneType"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_reason(facts: object, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Snapshot.from_dict(facts)  # type: ignore[arg-type]


def test_a_snapshot_saves_what_it_shows(tmp_path: Path) -> None:
    names = [path.name for path in sick().save(tmp_path / "new")]
    assert names == ["snapshot.json", "table.txt", "depth.png"]
    facts = json.loads((tmp_path / "new" / "snapshot.json").read_text())
    assert fields(Snapshot.from_dict(facts)) == fields(sick())
    assert (tmp_path / "new" / "table.txt").read_text() == f"{sick()}\n"
    assert (tmp_path / "new" / "depth.png").read_bytes().startswith(b"\x89PNG")


def test_a_saved_snapshot_is_replaced_only_on_demand_and_then_wholly(tmp_path: Path) -> None:
    ordinary().save(tmp_path)
    before = (tmp_path / "snapshot.json").read_bytes()
    (tmp_path / "mine.txt").write_text("stays")
    with pytest.raises(UsageError, match="overwrite"):
        empty().save(tmp_path)
    assert (tmp_path / "snapshot.json").read_bytes() == before
    empty().save(tmp_path, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "snapshot.json", "table.txt"]
    assert "nothing was measured" in (tmp_path / "table.txt").read_text(), "and no picture of the one before"


def test_a_snapshot_says_in_short_what_it_is() -> None:
    assert repr(ordinary()) == "Snapshot(step 50, loss 0.3127: 9 layers and parameters, 0 verdicts)"
    assert repr(empty()) == "Snapshot(step 0: 0 layers and parameters, 0 verdicts)"


def test_whatever_is_not_finite_makes_a_step_non_finite() -> None:
    assert not ordinary().has_nonfinite
    assert sick().has_nonfinite
    assert deep().has_nonfinite
    assert Snapshot(0, NAN, ()).has_nonfinite
    assert Snapshot(0, 1.0, (statistics("a", nonfinite=1),)).has_nonfinite
    assert not math.isfinite(sick().loss or 0)
