"""Many machines: shards handed out, what is lost, and that more machines are never slower."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling.figures import Figures, Ledger, Stages
from benchmarks.scaling.fleet import Fleet, estimate, lost_share, makespan
from benchmarks.scaling.pipeline import Layout, Machine
from benchmarks.scaling.shapes import next_step

STAGES = Stages(
    batch=8,
    read_bytes=1e5,
    read=0.0,
    decode=0.01,
    model=0.03,
    write=0.01,
    written_bytes=5e4,
    shard=0.0,
    held=0.003,
    launch=0.01,
    launch_picture=0.0,
    input_bytes=6e5,
)
FIGURES = Figures(
    {"heatmaps": STAGES, "features": STAGES}, Ledger(1e-5, 4e-6, 5e-6), 6.0, "two processors", "2026-01-01", 0.1
)
FLEET = Fleet("four", Machine(4), Layout(4, 0, 100), price=2.0)


@given(shards=st.integers(1, 200), workers=st.integers(1, 60), seconds=st.floats(0.1, 1000))
def test_equal_shards_take_as_long_as_when_they_are_handed_out_one_by_one(
    shards: int, workers: int, seconds: float
) -> None:
    free = [0.0] * workers
    for _ in range(shards):
        heapq.heapreplace(free, free[0] + seconds)
    assert makespan(shards, workers, seconds) == pytest.approx(max(free))


def test_an_estimate_is_starting_accounting_and_whole_rounds_of_shards() -> None:
    """1000 pictures are 10 shards of 5 s; four workers need three rounds, the last for two of them."""
    one = estimate(FLEET, FIGURES, "heatmaps", 1000)
    assert one.seconds == pytest.approx(6.0 + 1000 * 1.5e-5 + 3 * 5.0)
    assert one.dollars == pytest.approx(2.0 * one.seconds / 3600)
    assert one.idle == pytest.approx(1 - 10 / 12)
    assert one.rate == pytest.approx(4 / 0.05)


@given(
    machines=st.integers(1, 40),
    pictures=st.integers(1, 10**6),
    store=st.none() | st.floats(1e6, 1e9),
    kills=st.floats(0, 2),
)
@settings(max_examples=50)
def test_a_machine_more_never_makes_it_slower(machines: int, pictures: int, store: float | None, kills: float) -> None:
    fleet = replace(FLEET, machines=machines, store=store, kills=kills)
    more = replace(fleet, machines=machines + 1)
    before, after = (estimate(one, FIGURES, "features", pictures).seconds for one in (fleet, more))
    assert after <= before * (1 + 1e-9)


def test_a_store_that_all_share_sets_the_pace_of_many_machines() -> None:
    many = replace(FLEET, machines=1000, store=1e7)  # 100 pictures of 1e5 bytes a second
    one = estimate(many, FIGURES, "heatmaps", 10**6)
    assert one.seconds == pytest.approx(6.0 + 15.0 + 10**4)
    assert one.rate == pytest.approx(100)
    assert one.saturated == "the store that all share"
    assert next_step(many, FIGURES, "heatmaps", 10**6).startswith("2 x store: +100%")


def test_machines_that_are_killed_lose_half_a_shard_and_the_time_until_they_are_replaced() -> None:
    """Against kills drawn at random: a worker that is killed begins its shard anew."""
    fleet = replace(FLEET, kills=2.0, replaced=100.0)
    shard, startup = 60.0, 6.0
    draw, clock, done, alive = random.Random(0), 0.0, 0, 0.0
    until = draw.expovariate(fleet.kills / 3600)
    while done < 20_000:
        if until < shard:  # killed on the way
            clock += until + fleet.replaced + startup
            until = draw.expovariate(fleet.kills / 3600)
        else:
            until -= shard
            clock, done, alive = clock + shard, done + 1, alive + shard
    assert 1 - alive / clock == pytest.approx(lost_share(shard, startup, fleet), rel=0.1)


def test_machines_that_are_killed_before_they_finish_a_shard_never_end() -> None:
    with pytest.raises(ValueError, match="Take smaller shards"):
        lost_share(10_000.0, 6.0, replace(FLEET, kills=1.0))


def test_what_to_add_next_is_what_helps_most() -> None:
    assert next_step(FLEET, FIGURES, "heatmaps", 10**6).startswith("2 x processors: +100%")
    starved = replace(FLEET, machine=Machine(16, store=1e6), layout=Layout(16, 2, 100))
    assert next_step(starved, FIGURES, "heatmaps", 10**5).startswith("2 x network: +")
    feeding = replace(FLEET, machine=Machine(32, 1, 5000.0), layout=Layout(1, 16, 256))
    assert next_step(feeding, FIGURES, "heatmaps", 10**6).startswith("2 x workers: +")
    assert next_step(FLEET, FIGURES, "heatmaps", 1) == "nothing helps"


def test_an_export_that_is_mostly_accounting_is_better_split() -> None:
    """At 80,000 pictures a second, 12.5 s a million of work wait for 15 s of accounting, nine tenths of it in vain."""
    crowd = replace(FLEET, machines=1000)
    assert next_step(crowd, FIGURES, "heatmaps", 10**8) == "10 exports: +96%"
