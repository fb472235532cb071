"""What Gradio reads from the environment, settled before it is imported; and the private folder of temporary files."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from pathlib import Path

from camapp.errors import UsageError

KEPT_SECONDS = 3600

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
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)


def private_folder() -> Path:
    """The folder of uploads, of files made for API callers and of Gradio's own copies."""
    settle()
    assert _folder is not None
    return _folder


def new_result_folder() -> Path:
    """An empty folder of a random name for one caller's files; folders older than an hour are deleted on the way."""
    results = private_folder() / "results"
    results.mkdir(exist_ok=True)
    for old in results.iterdir():
        if time.time() - old.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=results))


def refuse_vibe_mode() -> None:
    """Refuse to start where Gradio would let visitors rewrite the program.

    Raises:
        UsageError: ``GRADIO_VIBE_MODE`` is set.
    """
    if os.environ.get("GRADIO_VIBE_MODE"):
        raise UsageError(
            "GRADIO_VIBE_MODE is set: with it Gradio runs code that visitors of the page write. Unset it, then start."
        )
