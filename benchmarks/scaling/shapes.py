"""The machines that the table is made for, and which change of one would help most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.scaling.figures import Figures
from benchmarks.scaling.fleet import Fleet, estimate
from benchmarks.scaling.pipeline import Layout, Machine
from benchmarks.scaling.published import FLOAT32_SLOWER, GPU, GPU_RATES, PRICES

# ASSUMPTIONS: networks of 10 and 100 Gbit/s, a store that gives 10 GB/s to all machines together.
NETWORK, FAST_NETWORK, STORE = 1.25e9, 12.5e9, 10e9
GPU_RATE = GPU_RATES[GPU].rate / FLOAT32_SLOWER
# Less than this is not worth a change.
_WORTH = 0.05


def usual_fleets(processors: int) -> list[Fleet]:
    """From this machine to a cluster.

    Args:
        processors: of this machine.
    """
    sixteen = Machine(16, store=NETWORK)
    one = Machine(16, 1, GPU_RATE, NETWORK)
    eight = Machine(192, 8, GPU_RATE, FAST_NETWORK)
    cheap, dear = PRICES["16 processors"], PRICES["8 GPUs"]
    return [
        Fleet(f"this machine, {processors} workers", Machine(processors), Layout(processors, 0)),
        Fleet("16 processors, 16 workers", sixteen, Layout(16, 0), price=cheap),
        Fleet("1 GPU, 16 processors, 1 worker x 8 threads", one, Layout(1, 8), price=PRICES["1 GPU"]),
        Fleet("1 GPU, 16 processors, 4 workers x 4 threads", one, Layout(4, 4), price=PRICES["1 GPU"]),
        Fleet("8 GPUs, 192 processors, a GPU: 1 worker x 8 threads", eight, Layout(8, 8), price=dear),
        Fleet("8 GPUs, 192 processors, a GPU: 6 workers x 4 threads", eight, Layout(48, 4), price=dear),
        Fleet("10 x (16 processors, 16 workers)", sixteen, Layout(16, 0), 10, cheap, STORE),
        Fleet("100 x (16 processors, 16 workers)", sixteen, Layout(16, 0), 100, cheap, STORE),
        Fleet("10 x (8 GPUs, a GPU: 1 worker x 8 threads)", eight, Layout(8, 8), 10, dear, STORE),
        Fleet("10 x (8 GPUs, a GPU: 6 workers x 4 threads)", eight, Layout(48, 4), 10, dear, STORE),
    ]


def next_step(fleet: Fleet, figures: Figures, kind: str, pictures: int) -> str:
    """What to double next, or that the export should be split, and how much faster it gets then; found by trying.

    More machines are named only where nothing helps the ones that there are.
    """
    now = estimate(fleet, figures, kind, pictures)
    # Of ten exports of a tenth, nine are accounted for while others run.
    split = {"10 exports": now.seconds / (now.seconds - 0.9 * now.accounting) - 1}
    within = {
        f"2 x {what}": now.seconds / estimate(other, figures, kind, pictures).seconds - 1
        for what, other in _within(fleet)
    }
    more = estimate(replace(fleet, machines=2 * fleet.machines), figures, kind, pictures)
    for gains in (split | within, {"2 x machines": now.seconds / more.seconds - 1}):
        step = max(gains, key=lambda name: gains[name])
        if gains[step] >= _WORTH:
            return f"{step}: +{gains[step]:.0%}"
    return "nothing helps"


def _within(fleet: Fleet) -> Iterator[tuple[str, Fleet]]:
    """Cheap changes first: of those that help equally, the first is named."""
    machine, layout = fleet.machine, fleet.layout
    yield "workers", replace(fleet, layout=replace(layout, workers=2 * layout.workers))
    if layout.threads:
        yield "threads", replace(fleet, layout=replace(layout, threads=2 * layout.threads))
    if fleet.store:
        yield "store", replace(fleet, store=2 * fleet.store)
    if machine.store:
        yield "network", replace(fleet, machine=replace(machine, store=2 * machine.store))
    more = replace(layout, workers=layout.workers if machine.gpus else 2 * layout.workers)
    yield "processors", replace(fleet, machine=replace(machine, processors=2 * machine.processors), layout=more)
    if machine.gpus:
        yield "GPUs", replace(fleet, machine=replace(machine, gpus=2 * machine.gpus))
