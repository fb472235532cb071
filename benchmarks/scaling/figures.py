"""What the stages of an export cost on one machine, as data: measured once, kept as JSON, read by the simulator."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

IDLE = 0.5


@dataclass(frozen=True)
class Stages:
    """What one picture costs in each stage of one kind of export, in seconds of one processor, each stage alone.

    Args:
        batch: pictures in one forward.
        read_bytes: of a file that is read.
        read: seconds to read it from a local disk's cache.
        decode: to decode and prepare it.
        model: of a forward (and a backward for heatmaps) on the CPU.
        write: to paint, encode and write what comes out of it.
        written_bytes: of what is written.
        shard: seconds at the borders of a shard, for the whole shard: its inputs read from the plan, its rows written.
        held: of ``decode`` and ``write``, the seconds that hold Python's interpreter, so that no other thread of the
            process can run Python.
        launch: seconds of the model's thread for each batch beside the arithmetic, whatever the batch's size.
        launch_picture: the same for each picture of the batch.
        input_bytes: of a picture as the model takes it.
    """

    batch: int
    read_bytes: float
    read: float
    decode: float
    model: float
    write: float
    written_bytes: float
    shard: float
    held: float
    launch: float
    launch_picture: float
    input_bytes: float

    @property
    def total(self) -> float:
        """Seconds of processors of one picture on the CPU, borders of shards left out."""
        return self.read + self.decode + self.model + self.write


@dataclass(frozen=True)
class Ledger:
    """What accounting for the inputs costs, in seconds for each input, in one process.

    Args:
        open: listing and planning a new export.
        resume: listing again and comparing.
        close: the manifest.
    """

    open: float
    resume: float
    close: float


@dataclass(frozen=True)
class Figures:
    """All that is measured on a machine.

    Args:
        kinds: ``Stages`` by "heatmaps" and "features".
        ledger: the accounting.
        startup: seconds until a worker runs its first picture: a process, imports, the model.
        machine: what it is, in words.
        date: when it was measured.
        busy: how many programs wanted a processor before; above ``IDLE`` they spoil what depends on the clock.
    """

    kinds: dict[str, Stages]
    ledger: Ledger
    startup: float
    machine: str
    date: str
    busy: float

    def save(self, path: Path) -> None:
        """Keep them as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Figures:
        """Read what ``save`` wrote.

        Raises:
            ValueError: the file is of another shape.
        """
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            kinds = {kind: Stages(**stages) for kind, stages in found.pop("kinds").items()}
            return cls(kinds=kinds, ledger=Ledger(**found.pop("ledger")), **found)
        except (KeyError, TypeError, AttributeError) as error:
            known = ", ".join(one.name for one in fields(cls))
            raise ValueError(f"{path} does not hold the figures {known}: {error}. Measure anew with --save.") from error
