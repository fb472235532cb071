"""The ledger of an export: opened, worked through shard by shard, and closed with a manifest."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from camapp.batch.ledger.folder import (
    NEXT_PLAN,
    PLAN,
    WORKSHOP,
    State,
    begin_discarding,
    clean_up,
    discard,
    missing_folders,
    state_of,
    sweep,
    unmake,
)
from camapp.batch.ledger.lock import Lock
from camapp.batch.ledger.manifest import MANIFEST, write_manifest
from camapp.batch.ledger.plan import Fingerprint, Planned, fingerprint_again, write_plan
from camapp.batch.ledger.refusals import refuse, source_changed, usable_folder
from camapp.batch.ledger.run_file import RUN_FILE, RunState, checked_settings, json_bytes
from camapp.batch.ledger.shards import ShardHandle
from camapp.batch.records import Item, Row
from camapp.errors import CamappError, UsageError
from camapp.files import write_atomically
from camapp.sources.pictures import check_count
from camapp.version import versions

if TYPE_CHECKING:
    import pyarrow as pa


class Counts(NamedTuple):
    """How far an export is, in inputs.

    Args:
        done: of finished shards, those that were explained.
        failed: of finished shards, those that were not.
        total: of the source.
    """

    done: int
    failed: int
    total: int


class Ledger:
    """What an export has to do and has done; a context manager, which holds the folder's lock.

    While an export runs, ``OUT/.camapp`` holds ``lock.*``; ``plan.parquet``, every input with the stem of its outputs;
    ``run.json``, settings and fingerprint; and ``shards/00012.parquet``, the rows of a finished shard. At its end there
    are ``OUT/manifest.parquet`` and ``OUT/run.json``, and ``.camapp`` is gone. Killed at any point and opened again, it
    ends with the same bytes as an unbroken run, times aside, and no finished shard is done twice.

    Example:
        with Ledger.open(out, settings, items, Fingerprint, shard_size=256) as ledger:
            for shard in ledger.todo():
                ledger.finish_shard(shard, [work(one) for one in ledger.items(shard)])
            ledger.close_export({"model": "resnet50"})
    """

    def __init__(self, out: Path, lock: Lock, state: RunState, shards: ShardHandle) -> None:
        self._out = out
        self._lock = lock
        self._state = state
        self._shards = shards
        self._failed: dict[int, int] = {}

    @classmethod
    def open(
        cls,
        out: str | os.PathLike[str],
        settings: Mapping[str, Any],
        items: Callable[[], Iterator[Item]],
        fingerprint: Callable[[], Fingerprint],
        *,
        shard_size: int,
        overwrite: bool = False,
        resume: bool = True,
    ) -> Ledger:
        """Begin an export, or go on with one that was stopped.

        Args:
            out: the folder, made if missing.
            settings: all that the outputs depend on, as JSON can hold it.
            items: lists the source, in the same order each time.
            fingerprint: makes a fingerprint that items are added to.
            shard_size: inputs a shard, 1 or more.
            overwrite: begin anew where there is an export, whose files are removed: those that it names, and no others.
            resume: go on with an unfinished export.

        Raises:
            UsageError: the folder holds a finished export, an unfinished one of other settings or another source, or
                files of something else; it cannot be written; another run is writing into it. Nothing was changed.
        """
        check_count("shard_size", shard_size, 1)
        out, wanted = usable_folder(out), checked_settings(settings)
        state = state_of(out)
        if state != "finished" or not (out / WORKSHOP).exists():  # else a run was killed at its very end: see below
            refuse(out, state, wanted, shard_size, overwrite, resume)
        made = missing_folders(out)
        try:
            lock = Lock.take(out / WORKSHOP)
        except OSError as error:
            unmake(made)
            raise UsageError(
                f"{out} cannot be written ({error.strerror}). Give another folder, or change its rights."
            ) from error
        try:
            state = state_of(out)
            if state == "finished" and not overwrite:
                clean_up(out)
            refuse(out, state, wanted, shard_size, overwrite, resume)
            if state == "unfinished" and not overwrite:
                return cls._resumed(out, lock, items(), fingerprint())
            return cls._begun(out, lock, state, wanted, items(), fingerprint(), shard_size)
        except BaseException:
            lock.release()
            unmake(made)
            raise

    @classmethod
    def _begun(
        cls,
        out: Path,
        lock: Lock,
        state: State,
        settings: dict[str, Any],
        items: Iterator[Item],
        fingerprint: Fingerprint,
        shard_size: int,
    ) -> Ledger:
        workshop = out / WORKSHOP
        total = write_plan(workshop / NEXT_PLAN, items, fingerprint, shard_size)  # if it fails, the old export stays
        begin_discarding(out, state)
        discard(out)
        sweep(out)
        try:
            (workshop / NEXT_PLAN).replace(workshop / PLAN)
            now = time.time()
            run = RunState(settings, shard_size, fingerprint.hexdigest(), total, versions(), _iso(now), now)
            shards = ShardHandle(workshop, _digest(run), shard_size, total)
            shards.shards_folder.mkdir(exist_ok=True)
            run.save(workshop / RUN_FILE)
        except BaseException:
            discard(out)
            raise
        return cls(out, lock, run, shards)

    @classmethod
    def _resumed(cls, out: Path, lock: Lock, items: Iterator[Item], fingerprint: Fingerprint) -> Ledger:
        workshop = out / WORKSHOP
        run = RunState.load(workshop / RUN_FILE)
        digest, total = fingerprint_again(items, fingerprint)
        if digest != run.fingerprint:
            raise UsageError(source_changed(out, run.total, total))
        shards = ShardHandle(workshop, _digest(run), run.shard_size, run.total)
        now, others = versions(), run.other_versions
        if now not in (run.versions, *others):
            others = (*others, now)
        spent = run.seconds + _worked(shards, run.session)
        run = replace(run, session=time.time(), seconds=spent, other_versions=others)
        ledger = cls(out, lock, run, shards)
        ledger.sweep()
        ledger._drop_damaged()
        run.save(workshop / RUN_FILE)
        return ledger

    def todo(self) -> list[int]:
        """The shards that are not done, in order."""
        done = set(self._shards.done())
        return [shard for shard in range(self._shards.count) if shard not in done]

    def items(self, shard: int) -> list[Planned]:
        """The inputs of a shard, in order: ``(number, item, stem)``; reads no others."""
        return self._shards.items(shard)

    def finish_shard(self, shard: int, rows: Sequence[Row]) -> None:
        """Say that a shard is done; see ``ShardHandle.finish_shard``."""
        self._shards.finish_shard(shard, rows)

    def handle(self) -> ShardHandle:
        """What a worker needs, in any process: ``items`` and ``finish_shard``; small to pickle."""
        return replace(self._shards)

    def counts(self) -> Counts:
        """How many inputs are done and failed; reads of each finished shard one number, once."""
        self._drop_damaged()
        failed = sum(self._failed.values())
        through = sum(len(self._shards.numbers(shard)) for shard in self._failed)
        return Counts(through - failed, failed, self._shards.total)

    def sweep(self) -> int:
        """Remove the temporary files that a killed run left, anywhere in the export; done when it is resumed."""
        return sweep(self._out)

    def close_export(self, facts: Mapping[str, Any] | None = None) -> Counts:
        """Write ``manifest.parquet`` and ``run.json``, and remove ``.camapp``; the ledger is closed.

        Args:
            facts: what else run.json says, such as the model and where its weights are from.

        Returns:
            How many inputs were done and failed.

        Raises:
            CamappError: a shard is not done.
            OSError: a file could not be written; nothing is lost, and the next run goes on from here.
        """
        self._drop_damaged()
        missing = self.todo()
        if missing:
            raise CamappError(
                f"{len(missing)} of {self._shards.count} shards of {self._out} are not done (the first is "
                f"{missing[0]}). Run the export again with the same settings; it goes on with them."
            )
        counts = self.counts()
        write_manifest(self._out / MANIFEST, self._tables())
        write_atomically(self._out / RUN_FILE, json_bytes(self._summary(counts, dict(facts or {}))))
        self._shards.close()
        clean_up(self._out)
        self.close()
        return counts

    def close(self) -> None:
        """Give the folder back; an unfinished export can be opened again."""
        self._shards.close()
        self._lock.release()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _drop_damaged(self) -> None:
        """Shards that a crash of the machine damaged, or that a worker of another run left, are not done."""
        for shard in self._shards.done():
            if shard in self._failed:
                continue
            failed = self._shards.failed(shard)
            if failed is None:
                self._shards.path(shard).unlink()
            else:
                self._failed[shard] = failed

    def _tables(self) -> Iterable[pa.Table]:
        return (self._shards.read(shard) for shard in range(self._shards.count))

    def _summary(self, counts: Counts, facts: dict[str, Any]) -> dict[str, Any]:
        run, now = self._state, time.time()
        seconds = run.seconds + max(0.0, now - run.session)
        return {
            "format": 1,
            "versions": run.versions,
            **({"other_versions": list(run.other_versions)} if run.other_versions else {}),
            "settings": run.settings,
            "shard_size": run.shard_size,
            "facts": facts,
            "source": {"inputs": run.total, "fingerprint": run.fingerprint},
            "counts": counts._asdict(),
            "started": run.started,
            "finished": _iso(now),
            "seconds": round(seconds, 3),
            "inputs_per_second": round(run.total / seconds, 3) if seconds else None,
        }


def _digest(run: RunState) -> str:
    """What tells a run from one of other settings or another source."""
    return hashlib.sha256(json_bytes([run.settings, run.shard_size, run.fingerprint, run.total])).hexdigest()


def _worked(shards: ShardHandle, since: float) -> float:
    """Seconds from the start of a session to its last finished shard."""
    with os.scandir(shards.shards_folder) as entries:
        return max([0.0, *(entry.stat().st_mtime - since for entry in entries)])


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")
