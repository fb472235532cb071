"""One machine: its rate against closed forms, for stages of which one decides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scaling.figures import Stages
from benchmarks.scaling.pipeline import Layout, Machine, pace
from benchmarks.scaling.published import TO_GPU

NOTHING = Stages(
    batch=8,
    read_bytes=1e5,
    read=0.0,
    decode=0.0,
    model=0.0,
    write=0.0,
    written_bytes=5e4,
    shard=0.0,
    held=0.0,
    launch=0.0,
    launch_picture=0.0,
    input_bytes=6e5,
)
USUAL = replace(NOTHING, read=0.0002, decode=0.005, model=0.03, write=0.01, shard=0.1, held=0.003, launch=0.01)


@given(
    decode=st.floats(1e-4, 0.1),
    model=st.floats(1e-4, 0.1),
    write=st.floats(1e-4, 0.1),
    border=st.floats(0, 1),
    workers=st.integers(1, 4),
    shard=st.integers(1, 40),
)
@settings(max_examples=30)
def test_workers_with_a_processor_each_take_the_sum_of_the_stages(
    decode: float, model: float, write: float, border: float, workers: int, shard: int
) -> None:
    stages = replace(NOTHING, decode=decode, model=model, write=write, shard=border)
    one = pace(Machine(workers), Layout(workers, 0, shard), stages)
    seconds = shard * (decode + model + write) + border
    assert one.shard_seconds == pytest.approx(seconds)
    assert one.rate == pytest.approx(workers * shard / seconds)
    assert one.loads["processors"] == pytest.approx(1.0)


def test_more_workers_than_processors_are_no_faster_than_the_processors() -> None:
    one = pace(Machine(2), Layout(6, 0, 32), USUAL)
    assert one.rate == pytest.approx(2 / (USUAL.total + USUAL.shard / 32), rel=0.05)


def test_threads_let_a_worker_use_two_processors() -> None:
    """The model on one, decoding and writing on the other; the slower of the two decides."""
    stages = replace(NOTHING, decode=0.01, model=0.03, write=0.01)
    one = pace(Machine(2), Layout(1, 2, 800), stages)
    assert one.rate == pytest.approx(1 / 0.03, rel=0.03)


def test_the_interpreter_of_one_process_is_no_faster_for_more_threads() -> None:
    stages = replace(NOTHING, decode=0.01, write=0.01, held=0.005, model=1.0)
    slow, fast = (pace(Machine(64, 1, 1e9), Layout(1, threads, 800), stages) for threads in (1, 32))
    assert slow.rate == pytest.approx(1 / 0.02, rel=0.02)
    assert fast.rate == pytest.approx(1 / 0.005, rel=0.1)
    assert fast.saturated.startswith("interpreters")


def test_a_gpu_that_is_fed_well_decides() -> None:
    stages = replace(NOTHING, decode=0.001, write=0.001, held=0.0, launch=0.001, model=1.0)
    one = pace(Machine(32, 1, 100.0), Layout(2, 8, 256), stages)
    assert one.rate == pytest.approx(100, rel=0.02)
    assert one.saturated.startswith("GPU")
    assert one.stages["transfer"] == pytest.approx(one.rate * 6e5 / TO_GPU)


def test_what_is_sent_to_a_gpu_runs_beside_it() -> None:
    """A batch takes the longer of launching and computing, not their sum."""
    stages = replace(NOTHING, launch=0.08, model=1.0)
    one = pace(Machine(4, 1, 100.0), Layout(1, 2, 80), stages)
    assert one.rate == pytest.approx(100, rel=0.05)


def test_the_network_decides_when_pictures_come_slowly() -> None:
    one = pace(Machine(16, store=1e6), Layout(16, 2, 64), USUAL)
    assert one.rate == pytest.approx(10, rel=0.05)  # 1e6 bytes a second, 1e5 a picture
    assert one.saturated.startswith("store, read")


def test_late_pictures_cost_workers_without_threads_their_whole_delay() -> None:
    at_once, late = (pace(Machine(1, latency=latency), Layout(1, 0, 64), USUAL) for latency in (0.0, 0.1))
    assert late.shard_seconds - at_once.shard_seconds == pytest.approx(64 * 0.1)
    threads = pace(Machine(1, latency=0.1), Layout(1, 8, 256), USUAL)
    assert threads.rate == pytest.approx(at_once.rate, rel=0.1)


def test_a_thread_fetches_what_comes_late_while_the_model_has_the_only_processor() -> None:
    stages = replace(NOTHING, decode=0.01, model=0.05)
    one = pace(Machine(1, latency=0.03), Layout(1, 1, 400), stages)
    assert one.rate == pytest.approx(1 / 0.06, rel=0.1)  # 0.01 + 0.05 of the processor; the waiting is hidden


def test_many_gpus_are_as_many_machines_of_one() -> None:
    stages = replace(USUAL, launch=0.02)
    one = pace(Machine(8, 1, 1000.0, 1e8), Layout(2, 4, 64), stages)
    four = pace(Machine(32, 4, 1000.0, 4e8), Layout(8, 4, 64), stages)
    assert four.rate == pytest.approx(4 * one.rate)
    assert four.loads == one.loads


def test_nothing_is_said_to_be_saturated_where_all_wait_for_each_other() -> None:
    one = pace(Machine(4, latency=1.0), Layout(4, 0, 16), USUAL)
    assert one.saturated.startswith("none")


def test_the_stage_that_takes_most_of_the_processors_is_named() -> None:
    assert pace(Machine(2), Layout(2, 0, 32), USUAL).saturated == "processors 100%, mostly model"
    painting = replace(USUAL, write=0.09)
    assert pace(Machine(2), Layout(2, 0, 32), painting).saturated == "processors 100%, mostly write"
