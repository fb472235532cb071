"""A real server process, in an environment of the test's choice."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "assets"

# The look-ups of all hosts are written down by the server itself, whichever library makes them.
_RECORD_LOOKUPS = """
import os, socket
_ask = socket.getaddrinfo
def getaddrinfo(host, *rest, **options):
    with open(os.environ["LOOKUPS"], "a") as file:
        print(host, file=file)
    return _ask(host, *rest, **options)
socket.getaddrinfo = getaddrinfo
"""

# What a careless shell, or someone with bad intent, may have left behind.
HOSTILE = {
    "GRADIO_SHARE": "True",
    "GRADIO_RUN_HISTORY": "True",
    "GRADIO_SSR_MODE": "True",
    "GRADIO_MCP_SERVER": "True",
    "GRADIO_ANALYTICS_ENABLED": "True",
    "GRADIO_ALLOWED_PATHS": "/etc",
    "GRADIO_NUM_WORKERS": "2",
}


@dataclass
class Served:
    """A server process, and what it left on disk."""

    url: str
    process: subprocess.Popen[str]
    folder: Path

    @property
    def temporary(self) -> list[Path]:
        """What lies in its folder of temporary files."""
        return sorted((self.folder / "tmp").iterdir())

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def says(self, text: str, seconds: float = 20) -> bool:
        """Whether its log holds ``text``, now or soon: it answers requests before it greets."""
        deadline = time.monotonic() + seconds
        while text not in self.log and time.monotonic() < deadline:
            time.sleep(0.05)
        return text in self.log

    @property
    def foreign_lookups(self) -> set[str]:
        asked = set((self.folder / "lookups").read_text().split())
        return asked - {"127.0.0.1", "localhost", "None", "0.0.0.0", "::1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(
    command: list[str], folder: Path, *, files: dict[str, Path] | None = None, probe: str = "config", **environment: str
) -> Iterator[Served]:
    """Start a server in an empty working folder (or one of ``files``), wait until it answers, and end it by its id."""
    port = int(environment.get("GRADIO_SERVER_PORT") or free_port())
    for name in ("tmp", "site", "cwd"):
        (folder / name).mkdir(parents=True)
    for name, source in (files or {}).items():
        shutil.copyfile(source, folder / "cwd" / name)
    (folder / "lookups").touch()
    (folder / "site" / "sitecustomize.py").write_text(_RECORD_LOOKUPS)
    settings = {
        **os.environ,
        "GRADIO_SERVER_PORT": str(port),
        "TMPDIR": str(folder / "tmp"),
        "LOOKUPS": str(folder / "lookups"),
        "PYTHONPATH": os.pathsep.join((str(folder / "site"), str(ROOT))),
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONUNBUFFERED": "1",
        **environment,
    }
    settings.pop("GRADIO_TEMP_DIR", None)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=settings, cwd=folder / "cwd", stdout=log, stderr=log, text=True)
        try:
            served = Served(f"http://127.0.0.1:{port}/", process, folder)
            _wait_until_it_answers(served, probe)
            yield served
        finally:
            end(process)


def end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_answers(served: Served, probe: str) -> None:
    until = time.monotonic() + 240  # on a busy machine a start takes minutes
    while served.process.poll() is None and time.monotonic() < until:
        if _answers(f"{served.url}{probe}"):
            return
        time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{served.log}")


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False
