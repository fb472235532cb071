"""What Gradio reads from the environment, settled before it is imported; and the private folder of temporary files."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

from camapp.errors import UsageError


def _kept_seconds() -> float:
    told = os.environ.get("CAMAPP_KEEP_SECONDS", "3600")
    try:
        seconds = float(told)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 30 * 86400:
        raise UsageError(f"CAMAPP_KEEP_SECONDS={told}: give the seconds, from 1, that uploads and results are kept.")
    return seconds


#: How long uploads, results and trained classifiers are kept.
KEPT_SECONDS = _kept_seconds()

# The process that runs the page contacts no foreign host, and no variable left in a shell may open it to the world.
_FORCED = {
    "GRADIO_ANALYTICS_ENABLED": "False",  # Gradio 6.31 otherwise asks api.gradio.app at import and at launch
    "GRADIO_RUN_HISTORY": "False",
    "GRADIO_SHARE": "False",
    "GRADIO_SSR_MODE": "False",
    "GRADIO_MCP_SERVER": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
}
# Gradio 6.31 reads these even where launch() is given an empty list or nothing.
_REMOVED = ("GRADIO_ALLOWED_PATHS", "GRADIO_NUM_WORKERS")

_SWEEPER = "camapp sweeper"

_folder: Path | None = None


def settle() -> None:
    """Set the environment for this process, and make the private folder (mode 0700) that is wiped at exit.

    A ``GRADIO_TEMP_DIR`` of the user's is where the private folder is made, not the folder itself: another program may
    write into it, and what lies there would pass for an upload.
    """
    global _folder
    if _folder is not None:
        return
    os.environ.update(_FORCED)
    for name in _REMOVED:
        os.environ.pop(name, None)
    parent = os.environ.get("GRADIO_TEMP_DIR")
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
    _folder = Path(tempfile.mkdtemp(prefix="camapp-", dir=parent or None)).resolve()
    os.environ["GRADIO_TEMP_DIR"] = str(_folder)
    atexit.register(wipe)


def kept_text() -> str:
    """How long uploads and results are kept, in words."""
    for unit, name in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if unit <= KEPT_SECONDS:
            count = round(KEPT_SECONDS / unit)
            return f"{count} {name}{'s' * (count != 1)}"
    return "a moment"


def wipe() -> None:
    """Delete the private folder and all that is in it, at the end of the process or of its application."""
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)


def private_folder() -> Path:
    """The folder of uploads, of files made for API callers and of Gradio's own copies."""
    settle()
    assert _folder is not None
    return _folder


def new_result_folder() -> Path:
    """An empty folder of a random name for one caller's files, which ``sweep`` deletes after their time."""
    results = private_folder() / "results"
    results.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(dir=results))


def sweep() -> None:
    """Delete files in the private folder that are past their time, and folders that are left empty."""
    now = time.time()
    for folder, _, files in os.walk(private_folder(), topdown=False):
        for path in (*(Path(folder) / name for name in files), Path(folder)):
            if path == private_folder() or "samples" in path.parts[len(private_folder().parts) :]:
                continue
            with contextlib.suppress(OSError):  # gone meanwhile, or a folder that is not empty
                if now - path.lstat().st_mtime > KEPT_SECONDS:
                    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def keep_swept() -> None:
    """Sweep now and then, in a thread of its own, for as long as this process lives."""

    def often() -> None:
        while True:
            time.sleep(min(60, KEPT_SECONDS / 4))
            sweep()

    if not any(thread.name == _SWEEPER for thread in threading.enumerate()):
        threading.Thread(target=often, name=_SWEEPER, daemon=True).start()


def refuse_vibe_mode() -> None:
    """Refuse to start where Gradio would let visitors rewrite the program.

    Raises:
        UsageError: ``GRADIO_VIBE_MODE`` is set.
    """
    if os.environ.get("GRADIO_VIBE_MODE"):
        raise UsageError(
            "GRADIO_VIBE_MODE is set: with it Gradio runs code that visitors of the page write. Unset it, then start."
        )
