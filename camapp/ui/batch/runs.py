"""Batches while they run, and for an hour after: their pictures, their files, and how each is stopped."""

from __future__ import annotations

import shutil
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from camapp.batch.live import Given
from camapp.batch.live.class_table import TableClasses
from camapp.errors import UsageError
from camapp.ui.batch.choices import BatchChoices
from camapp.ui.environment import KEPT_SECONDS, new_result_folder
from camapp.ui.frame.results import Results

ARCHIVE = "heatmaps.zip"
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
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, choices: BatchChoices, given: Given, classes: TableClasses | None, owner: str) -> Run:
        """A new run, whose files are served from now on as they are made; whoever begins it sets ``running`` to False.

        Raises:
            UsageError: too many are running.
        """
        with self._lock:
            self._make_room()
            running = sum(one.running for one in self._runs.values())
            if running >= MOST_RUNNING:
                raise UsageError(f"{running} batches are running already. Try again when one of them is done.")
            run = Run(choices, given, classes, owner, new_result_folder(), "")
            files = [run.archive, *map(run.preview, range(len(given.items)))]
            run.token = self._results.keep_files({file.name: file for file in files})
            self._runs[run.token] = run
        return run

    def find(self, token: str) -> Run | None:
        """The run of a token; None where it is no longer kept."""
        with self._lock:
            return self._runs.get(token)

    def is_running(self, owner: str) -> bool:
        """Whether a batch of somebody's is running."""
        with self._lock:
            return any(run.running for run in self._runs.values() if run.owner == owner)

    def stop(self, owner: str) -> None:
        """Stop what is running of somebody's; what is done of it is kept."""
        with self._lock:
            for run in self._runs.values():
                if run.owner == owner:
                    run.stopping.set()

    def _make_room(self) -> None:
        """Forget runs past their time, and the oldest while there are too many, with their files."""
        for token, run in list(self._runs.items()):
            too_old = time.monotonic() - run.since > KEPT_SECONDS
            too_many = len(self._runs) >= MOST_KEPT
            too_large = sum(one.bytes for one in self._runs.values()) > MOST_BYTES_KEPT
            if not run.running and (too_old or too_many or too_large):
                del self._runs[token]
                run.remove()
