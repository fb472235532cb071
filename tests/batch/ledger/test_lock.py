"""One run a folder, whatever becomes of the others; with the locks of the file system and without."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from camapp.batch.ledger import lock as locking
from camapp.batch.ledger.lock import Lock
from camapp.errors import UsageError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked")


@pytest.fixture(params=["with flock", "without flock"])
def workshop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the lock goes."""
    if request.param == "without flock":
        monkeypatch.setattr(locking, "fcntl", None)
    monkeypatch.setattr(locking, "SETTLE_SECONDS", 0.5)
    return tmp_path / "out" / ".camapp"


@pytest.fixture
def children() -> Iterator[list[int]]:
    """Processes to end at the end."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def forked(action: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return child


def holder(workshop: Path) -> int:
    """A process that has the lock, and sleeps."""
    ready, tell = os.pipe()

    def hold() -> None:
        kept = Lock.take(workshop)
        os.write(tell, b"x")
        time.sleep(60)
        kept.release()

    child = forked(hold)
    os.close(tell)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    return child


def test_a_second_run_is_refused_and_told_who_has_the_folder(workshop: Path, children: list[int]) -> None:
    children.append(holder(workshop))
    with pytest.raises(UsageError, match=f"process {children[0]} on {socket.gethostname()}"):
        Lock.take(workshop)
    assert len(list(workshop.iterdir())) == 1  # it left nothing of its own


def test_a_second_run_in_the_same_process_is_refused(workshop: Path) -> None:
    first = Lock.take(workshop)
    with pytest.raises(UsageError, match=f"process {os.getpid()}"):
        Lock.take(workshop)
    first.release()
    Lock.take(workshop).release()


def test_the_end_of_a_run_leaves_nothing(workshop: Path) -> None:
    Lock.take(workshop).release()
    assert not workshop.exists()


def test_a_killed_runs_lock_holds_nobody_up(workshop: Path, children: list[int]) -> None:
    children.append(holder(workshop))
    os.kill(children[0], signal.SIGKILL)  # and nobody has waited for it: its number is still in use
    start = time.monotonic()
    mine = Lock.take(workshop)
    assert time.monotonic() - start < 2
    assert len(list(workshop.iterdir())) == 1
    mine.release()


def test_of_many_runs_that_start_at_once_one_gets_the_folder(workshop: Path, children: list[int]) -> None:
    for _ in range(4):
        dead = holder(workshop)  # whose lock all of them may remove
        os.kill(dead, signal.SIGKILL)
        os.waitpid(dead, 0)
        begin, go = os.pipe()
        answers, tell = os.pipe()
        end, finish = os.pipe()

        def contend(begin: int = begin, go: int = go, tell: int = tell, end: int = end, finish: int = finish) -> None:
            os.close(go)
            os.close(finish)
            os.read(begin, 1)
            try:
                Lock.take(workshop)
            except UsageError:
                os.write(tell, b"-")
            else:
                os.write(tell, b"1")
            os.read(end, 1)

        contenders = [forked(contend) for _ in range(6)]
        os.close(go)
        said = b"".join(os.read(answers, 1) for _ in contenders)
        os.close(finish)
        for child in contenders:
            os.waitpid(child, 0)
        for file in (begin, answers, tell, end):
            os.close(file)
        assert sorted(said) == sorted(b"-----1")


def test_workers_of_a_killed_run_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "SETTLE_SECONDS", 0.1)
    workshop = tmp_path / ".camapp"
    ready, tell = os.pipe()

    def run_with_a_worker() -> None:
        kept = Lock.take(workshop)
        forked(lambda: time.sleep(0.8))
        os.write(tell, b"x")
        time.sleep(60)
        kept.release()

    child = forked(run_with_a_worker)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    os.close(tell)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    start = time.monotonic()
    monkeypatch.setattr(locking, "ORPHANS_SECONDS", 0.1)
    with pytest.raises(UsageError, match=f"workers of process {child} .* which has ended itself"):
        Lock.take(workshop)
    monkeypatch.setattr(locking, "ORPHANS_SECONDS", 10)
    Lock.take(workshop).release()
    assert 0.4 < time.monotonic() - start < 5


def left_by(workshop: Path, **owner: object) -> Path:
    workshop.mkdir(parents=True)
    path = workshop / "lock.0123456789ab"
    mine = {"pid": os.getpid(), "host": socket.gethostname(), "started": locking._started(os.getpid()), "locked": False}
    path.write_text(json.dumps({**mine, **owner}))
    return path


def test_a_later_process_of_the_same_number_is_not_the_one_that_locked(workshop: Path) -> None:
    left_by(workshop, started="another boot:1")
    Lock.take(workshop).release()
    assert not workshop.exists()


def test_a_running_process_is_known_by_its_start(workshop: Path) -> None:
    left_by(workshop)
    with pytest.raises(UsageError, match="Another run"):
        Lock.take(workshop)


def test_a_process_that_is_gone_is_dead(workshop: Path) -> None:
    child = forked(lambda: None)
    os.waitpid(child, 0)
    left_by(workshop, pid=child, started=None)
    Lock.take(workshop).release()


def test_a_run_on_another_machine_that_locks_nothing_is_left_alone(workshop: Path) -> None:
    path = left_by(workshop, host="elsewhere", pid=1)
    with pytest.raises(UsageError, match=f"process 1 on elsewhere.*remove {path}"):
        Lock.take(workshop)
    assert path.exists()
    path.unlink()
    Lock.take(workshop).release()


def test_a_lock_that_nobody_holds_is_stale_whichever_machine_it_names(tmp_path: Path) -> None:
    left_by(tmp_path / ".camapp", host="elsewhere", pid=1, locked=True)
    Lock.take(tmp_path / ".camapp").release()
