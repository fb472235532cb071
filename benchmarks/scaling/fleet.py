"""Many machines on one export: shards handed out one by one, with starting, accounting, kills and one store."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.scaling.figures import Figures
from benchmarks.scaling.pipeline import Layout, Machine, Pace, pace


@dataclass(frozen=True)
class Fleet:
    """Equal machines that share the shards of one export.

    Args:
        name: in words.
        machine: one of them.
        layout: on each.
        machines: how many.
        price: dollars an hour of each.
        store: bytes a second that the store gives to all of them together, each way; None for no limit.
        kills: how often an hour a machine is taken away or breaks down.
        replaced: seconds until another one takes its place.
    """

    name: str
    machine: Machine
    layout: Layout
    machines: int = 1
    price: float = 0.0
    store: float | None = None
    kills: float = 0.0
    replaced: float = 300.0

    @property
    def workers(self) -> int:
        """Of all machines."""
        return self.machines * self.layout.workers


@dataclass(frozen=True)
class Estimate:
    """What an export takes.

    Args:
        pace: of one machine.
        rate: pictures a second of all machines while all are busy; what the shared store lets through at most.
        seconds: from its start to the manifest.
        accounting: of these, the seconds in which one process lists, plans and closes, and workers wait or are gone.
        idle: the share of the workers' time in which they have no shard, since too few are left.
        lost: the share of the work that is done twice or waited for, because machines were killed.
        dollars: for all machines from start to end.
        saturated: what is taken most.
    """

    pace: Pace
    rate: float
    seconds: float
    accounting: float
    idle: float
    lost: float
    dollars: float
    saturated: str


def estimate(fleet: Fleet, figures: Figures, kind: str, pictures: int) -> Estimate:
    """What so many pictures take.

    Args:
        fleet: the machines.
        figures: what stages cost on one processor.
        kind: "heatmaps" or "features".
        pictures: how many.

    Raises:
        ValueError: machines are killed faster than they finish shards.
    """
    stages = figures.kinds[kind]
    one = pace(fleet.machine, fleet.layout, stages)
    shards = math.ceil(pictures / fleet.layout.shard)
    lost = lost_share(one.shard_seconds, figures.startup, fleet)
    work = makespan(shards, fleet.workers, one.shard_seconds) / (1 - lost)
    rate, saturated = fleet.machines * one.rate, one.saturated
    if fleet.store:
        most = fleet.store / max(stages.read_bytes, stages.written_bytes)
        work = max(work, pictures / most)
        if most < rate:
            rate, saturated = most, "the store that all share"
    accounting = pictures * (figures.ledger.open + figures.ledger.close)
    seconds = figures.startup + accounting + work
    busy = shards * one.shard_seconds / fleet.workers / (1 - lost)
    dollars = fleet.price * fleet.machines * seconds / 3600
    return Estimate(one, rate, seconds, accounting, max(0.0, 1 - busy / work), lost, dollars, saturated)


def makespan(shards: int, workers: int, seconds: float) -> float:
    """Seconds until equal shards are done that are handed out one by one: the last round counts whole."""
    return math.ceil(shards / workers) * seconds


def lost_share(shard_seconds: float, startup: float, fleet: Fleet) -> float:
    """The share of a machine's time that kills cost: half a shard of each of its workers, and that it is gone.

    Raises:
        ValueError: nothing is left.
    """
    lost = fleet.kills / 3600 * (shard_seconds / 2 + startup + fleet.replaced)
    if lost >= 1:
        raise ValueError(
            f"{fleet.name}: killed {fleet.kills:g} times an hour, with shards of {shard_seconds:.0f} s and "
            f"{fleet.replaced:.0f} s until a machine is replaced, nothing is ever done. Take smaller shards."
        )
    return lost
