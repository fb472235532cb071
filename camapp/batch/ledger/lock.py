"""One run a folder: a lock that outlives no process, with or without the file system's help."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from camapp.errors import UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "lock."
# Runs that start in the same moment settle it in this time; a killed run's workers notice its end in that.
SETTLE_SECONDS = 1.5
ORPHANS_SECONDS = 15.0
# How often in a row the end of another run may take the folder away just as this one comes.
RACES = 20


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock.

    Args:
        pid: its number.
        host: the machine.
        started: when it started, as its system says it; tells it from a later process of the same number.
        locked: whether its file is locked as well.
    """

    pid: int
    host: str
    started: str | None
    locked: bool


class Lock:
    """A lock on a folder.

    Each run that wants the folder puts a file of its own there, ``lock.*``, then looks for others. It has the lock if
    there is none of a living process; if there is, the file goes again, so that never two have it. No file is ever
    taken over, and so there is no race for a dead run's: whoever sees it may remove it.

    A process lives as long as its file is locked (``flock``), which the system ends with it and with the workers that
    it forked. Where the file system has no locks, it lives if its number is in use on this machine by a process that
    started at the same time; of another machine nobody can tell, and it is taken to live.
    """

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._file: int | None = file

    @classmethod
    def take(cls, folder: Path) -> Lock:
        """Take the lock of a folder, which is made if missing.

        Raises:
            UsageError: another run has it.
            OSError: the folder cannot be written.
        """
        start, lock = time.monotonic(), None
        try:
            while True:
                lock = lock or cls._put_down(folder)
                rivals = lock._living()
                if not rivals:
                    held, lock = lock, None
                    return held
                patience = ORPHANS_SECONDS if all(map(_orphaned, rivals.values())) else SETTLE_SECONDS
                if time.monotonic() - start > patience:
                    raise UsageError(_refusal(folder.parent, *next(iter(rivals.items()))))
                if min(rivals).name < lock._path.name:  # of two, one stays and looks again, the other steps back
                    lock.release()
                    lock = None
                time.sleep(random.uniform(0.02, 0.08))
        finally:
            if lock is not None:
                lock.release()

    def release(self) -> None:
        """Give the lock back, and remove the folder where nothing else is in it."""
        if self._file is None:
            return
        # Windows removes no file that is open, and elsewhere nobody may see it unlocked: the name goes first.
        with suppress(OSError):
            self._path.unlink()
        os.close(self._file)
        self._file = None
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):
            self._path.parent.rmdir()

    @classmethod
    def _put_down(cls, folder: Path) -> Lock:
        for _ in range(RACES):
            with suppress(FileNotFoundError):  # another run's end took the folder away, or swept the file
                return cls._put_down_once(folder)
        return cls._put_down_once(folder)  # there are places, such as /proc, where nothing is ever found

    @classmethod
    def _put_down_once(cls, folder: Path) -> Lock:
        name = uuid4().hex[:12]
        path, part = folder / f"{PREFIX}{name}", folder / f".{PREFIX}{name}.{name}.part"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            try:
                # Locked and complete before anybody sees it, who might take it for dead or damaged.
                locked = _locked(file, exclusive=True)
                owner = Owner(os.getpid(), socket.gethostname(), _started(os.getpid()), bool(locked))
                os.write(file, json.dumps(asdict(owner)).encode())
                if locked:
                    part.replace(path)
                    return cls(path, file)
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # Windows renames no file that is open
            part.replace(path)
            return cls(path, os.open(path, os.O_RDWR))
        except BaseException:
            part.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
            raise

    def _living(self) -> dict[Path, Owner | None]:
        """The lock files of other living runs with their owners; those of dead ones are removed."""
        living: dict[Path, Owner | None] = {}
        for path in sorted(self._path.parent.glob(f"{PREFIX}*")):
            if path == self._path:
                continue
            try:
                file = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
            try:
                owner = _read_owner(file)
                lives = _lives(owner, file)
            finally:
                os.close(file)
            if lives:
                living[path] = owner
            else:
                path.unlink(missing_ok=True)
        return living


def _refusal(out: Path, path: Path, owner: Owner | None) -> str:
    who = f"process {owner.pid} on {owner.host}" if owner else "a process that left no name"
    if owner and _orphaned(owner):
        who = f"workers of process {owner.pid} on {owner.host}, which has ended itself"
    return (
        f"Another run is writing into {out}: {who}. Wait for its end, or give another folder. If it has ended for "
        f"sure, remove {path}."
    )


def _lives(owner: Owner | None, file: int) -> bool:
    locked = _locked(file, exclusive=False) if owner is None or owner.locked else None
    if locked is not None:
        return not locked
    return owner is None or owner.host != socket.gethostname() or _is_running(owner)


def _orphaned(owner: Owner | None) -> bool:
    """Whether a process of this machine has ended while its lock is held: by workers that it forked."""
    return owner is not None and owner.locked and owner.host == socket.gethostname() and not _is_running(owner)


def _read_owner(file: int) -> Owner | None:
    try:
        return Owner(**json.loads(os.read(file, 4096)))
    except (OSError, ValueError, TypeError):
        return None


def _locked(file: int, *, exclusive: bool) -> bool | None:
    """Lock an open file: True if that succeeds, False where somebody has it, None where there are no such locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_running(owner: Owner) -> bool:
    if sys.platform != "win32":  # on Windows, os.kill(pid, 0) ends the process
        try:
            os.kill(owner.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # it is another user's
            return True
    started = _started(owner.pid)
    if started is None:
        return sys.platform not in ("linux", "win32")
    return owner.started in (None, started)


def _started(pid: int) -> str | None:
    """When a process started, in its system's own terms; None where there is no such process, or it has ended."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
    if sys.platform == "win32":
        return _started_on_windows(pid)
    asked = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    )
    return asked.stdout.strip() or None


def _started_on_windows(pid: int) -> str | None:
    import ctypes

    kernel = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
    kernel.OpenProcess.restype = ctypes.c_void_p
    process = kernel.OpenProcess(0x1000, False, pid)  # PROCESS_QUERY_LIMITED_INFORMATION
    if not process:
        return None
    try:
        times = [ctypes.c_uint64() for _ in range(4)]  # created, ended, in the kernel, of the user
        known = kernel.GetProcessTimes(ctypes.c_void_p(process), *map(ctypes.byref, times))
        return str(times[0].value) if known and not times[1].value else None
    finally:
        kernel.CloseHandle(ctypes.c_void_p(process))
