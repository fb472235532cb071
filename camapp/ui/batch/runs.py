"""Batches while they run, and for an hour after: their pictures, their files, and how each is stopped."""

from __future__ import annotations

import shutil
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from camapp.batch.live import Given
from camapp.batch.live.class_table import TableClasses
from camapp.errors import UsageError
from camapp.ui.batch.choices import BatchChoices
from camapp.ui.environment import new_result_folder
from camapp.ui.frame.kept import Kept
from camapp.ui.frame.results import Results

ARCHIVE = "heatmaps.zip"
GONE = "This batch has expired. Run it again."
MOST_RUNNING = 4
MOST_KEPT = 50
MOST_BYTES_KEPT = 4 * 2**30


@dataclass(eq=False)
class Run:
    """One batch.

    Args:
        choices: what was asked for.
        given: its pictures.
        classes: what a table says of them; None without one.
        owner: who waits for it.
        folder: of its files, its own.
        token: under which they are served.
    """

    choices: BatchChoices
    given: Given
    classes: TableClasses | None
    owner: str
    folder: Path
    token: str
    stopping: threading.Event = field(default_factory=threading.Event)
    running: bool = True
    since: float = field(default_factory=time.monotonic)

    @property
    def archive(self) -> Path:
        """Where its archive lies once it is over."""
        return self.folder / ARCHIVE

    @property
    def bytes(self) -> int:
        """What its archive takes on the disk."""
        return self.archive.stat().st_size if self.archive.is_file() else 0

    def preview(self, number: int) -> Path:
        """Where the preview of a picture lies."""
        return self.folder / f"{number + 1}.jpg"

    def remove(self) -> None:
        """Delete its files."""
        shutil.rmtree(self.folder, ignore_errors=True)


class Runs:
    """The batches of all visitors.

    Args:
        results: where their files are offered for download.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._runs: Kept[Run] = Kept(
            GONE,
            size_of=lambda run: run.bytes,
            most=MOST_KEPT,
            most_bytes=MOST_BYTES_KEPT,
            in_use=lambda run: run.running,
            dropped=Run.remove,
        )
        self._lock = threading.Lock()

    def begin(self, choices: BatchChoices, given: Given, classes: TableClasses | None, owner: str) -> Run:
        """A new run, whose files are served from now on as they are made; whoever begins it sets ``running`` to False.

        Raises:
            UsageError: too many are running.
        """
        with self._lock:
            running = sum(one.running for one in self._runs.things())
            if running >= MOST_RUNNING:
                raise UsageError(f"{running} batches are running already. Try again when one of them is done.")
            run = Run(choices, given, classes, owner, new_result_folder(), "")
            files = [run.archive, *map(run.preview, range(len(given.items)))]
            served = {file.name: file for file in files}
            run.token = self._results.keep_files(served, owner=owner, in_use=lambda: run.running)
            self._runs.keep(run, owner, token=run.token)
        return run

    def find(self, token: str) -> Run:
        """The run of a token.

        Raises:
            UsageError: it is no longer kept.
        """
        return self._runs.find(token)

    def is_running(self, owner: str) -> bool:
        """Whether a batch of somebody's is running."""
        return any(run.running for run in self._runs.things() if run.owner == owner)

    def stop(self, owner: str) -> None:
        """Stop what is running of somebody's; what is done of it is kept."""
        for run in self._runs.things():
            if run.owner == owner:
                run.stopping.set()
