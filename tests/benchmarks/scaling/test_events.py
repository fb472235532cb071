"""Simulated time: what servers and queues do can be worked out by hand."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scaling.events import Give, Join, Pass, Process, Server, Simulation, Take, use

Seconds = st.integers(1, 50).map(float)


def test_one_server_does_one_after_the_other() -> None:
    simulation, server = Simulation(), Server()
    for _ in range(7):
        simulation.start(use(server, 2.0))
    assert simulation.run() == 14.0
    assert server.load(14.0) == 1.0


@given(jobs=st.lists(Seconds, min_size=1, max_size=30), places=st.integers(1, 8))
def test_several_places_take_jobs_as_a_list_scheduler_does(jobs: list[float], places: int) -> None:
    free = [0.0] * places
    for seconds in jobs:
        heapq.heapreplace(free, free[0] + seconds)
    simulation, server = Simulation(), Server(places)
    for seconds in jobs:
        simulation.start(use(server, seconds))
    assert simulation.run() == max(free)
    assert server.load(max(free)) == pytest.approx(sum(jobs) / places / max(free))


@given(
    first=Seconds,
    second=Seconds,
    jobs=st.integers(1, 40),
)
def test_two_stages_in_series_go_at_the_pace_of_the_slower_one(first: float, second: float, jobs: int) -> None:
    simulation, one, two = Simulation(), Server(), Server()

    def job() -> Process:
        yield from use(one, first)
        yield from use(two, second)

    for _ in range(jobs):
        simulation.start(job())
    assert simulation.run() == first + second + (jobs - 1) * max(first, second)


def test_a_queue_of_one_place_between_two_stages_holds_the_faster_one_back() -> None:
    """The first stage may be one job ahead: it hands over only when the second one has taken the job before."""
    simulation, one, two, between = Simulation(), Server(), Server(), Server()
    begun: list[float] = []

    def job() -> Process:
        yield Take(one)
        begun.append(simulation.now)
        yield Pass(1.0)
        yield Take(between)
        yield Give(one)
        yield Take(two)
        yield Give(between)
        yield Pass(10.0)
        yield Give(two)

    for _ in range(5):
        simulation.start(job())
    assert simulation.run() == 51.0
    assert begun == [0.0, 1.0, 2.0, 11.0, 21.0]


def test_a_process_waits_for_those_that_it_joins() -> None:
    simulation, ends = Simulation(), []

    def parent() -> Process:
        children = [simulation.start(use(Server(), seconds)) for seconds in (3.0, 5.0, 1.0)]
        for child in children:
            yield Join(child)
        ends.append(simulation.now)

    simulation.start(parent())
    simulation.run()
    assert ends == [5.0]


def test_processes_that_wait_for_each_other_are_found() -> None:
    simulation, server = Simulation(), Server()

    def never_gives() -> Process:
        yield Take(server)

    for _ in range(2):
        simulation.start(never_gives())
    with pytest.raises(RuntimeError, match="1 processes wait for what never comes"):
        simulation.run()


def test_a_server_has_a_place() -> None:
    with pytest.raises(ValueError, match="not 0"):
        Server(0)
