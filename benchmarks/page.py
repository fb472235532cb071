"""The page: how much it adds to the engine's own time, and what many visitors at a time do to each other."""

from __future__ import annotations

import contextlib
import io
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.measure import Row
from camapp.resources import resource_folder

# What a visitor bears without noticing, in seconds.
LATENCY = 0.15

CLIENTS, REQUESTS = 32, 10
QUICK, SLOW = "gradcam", "ablationcam"
# One request of eight is slow.
SLOW_SHARE = 0.125


def run(rounds: int) -> Iterator[Row]:
    """Latency in a browser, then the load of many clients."""
    with served() as server:
        yield latency(server, max(rounds, 20))
        lone = median(load(server, slow_share=0.0, clients=1).seconds[QUICK])
        quick = load(server, slow_share=0.0)
        before = server.megabytes
        mixed = load(server, slow_share=SLOW_SHARE)
        yield Row(
            f"{CLIENTS} clients x {REQUESTS}, one in eight slow: p95 of quick requests against {CLIENTS} x one alone",
            mixed.p95(QUICK) / (CLIENTS * lone),
            "<= 4",
            f"{mixed.p95(QUICK):.2f} s against {CLIENTS} x {lone:.3f} s; {mixed.told()}",
        )
        yield Row(
            "the same against as many clients with quick requests only",
            mixed.p95(QUICK) / quick.p95(QUICK),
            "<= 4",
            f"{mixed.p95(QUICK):.2f} s against {quick.p95(QUICK):.2f} s; {quick.told()}",
        )
        yield Row("requests answered wrongly", mixed.wrong + quick.wrong, "<= 0", f"of {mixed.count + quick.count}")
        yield Row(
            "memory of the server after that load against before",
            server.megabytes / before,
            "<= 1.25",
            f"{server.megabytes:.0f} MB against {before:.0f} MB",
        )


@dataclass
class Server:
    """A page in a process of its own."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def megabytes(self) -> float:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 2**20


@contextlib.contextmanager
def served() -> Iterator[Server]:
    """A page on a free port, until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ["NO_PROXY"] = "127.0.0.1"
    process = subprocess.Popen(
        [sys.executable, "-m", "camapp", "serve", "--port", str(port), "--max-queue", str(CLIENTS)],
        stdout=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}/"
    try:
        for _ in range(240):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}healthz", timeout=2).close()
                break
            time.sleep(0.25)
        yield Server(url, process)
    finally:
        process.terminate()
        process.wait(30)


def latency(server: Server, rounds: int) -> Row:
    """From a click in a browser to the heatmap drawn, beyond the seconds that the engine took for it."""
    from playwright.sync_api import sync_playwright

    beyond, whole = [], []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        picture = Path(folder) / "cat.png"
        with Image.open(resource_folder("assets") / "chelsea.jpg") as cat:
            cat.resize((640, 480)).save(picture)
        path = shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(server.url)
        page.locator("#samples img").first.wait_for()
        page.set_input_files("#picture input[type=file]", picture)
        page.wait_for_function("document.querySelector('#viewer .viewer')?.dataset.token")
        for number in range(rounds + 3):
            seconds, engine = page.evaluate(_CLICK)
            if number >= 3:
                beyond.append(seconds - engine)
                whole.append(seconds)
        browser.close()
    return Row(
        "from a click to the heatmap on show, beyond the engine, of 150 ms",
        median(beyond) / LATENCY,
        "<= 1",
        f"{median(beyond) * 1000:.0f} ms; {median(whole) * 1000:.0f} ms in all, median of {rounds}",
    )


# Clicks Explain, and waits for the viewer to draw another result; seconds in all, and of the engine.
_CLICK = """() => new Promise((done) => {
  const viewer = document.querySelector("#viewer .viewer");
  const before = viewer.dataset.token;
  const start = performance.now();
  new MutationObserver((_, observer) => {
    if (!viewer.dataset.token || viewer.dataset.token === before) return;
    observer.disconnect();
    const seconds = (performance.now() - start) / 1000;
    setTimeout(() => {
      const facts = [...document.querySelectorAll("#summary dt")].find((one) => one.textContent === "Time");
      done([seconds, parseFloat(facts.nextElementSibling.textContent)]);
    }, 300);
  }).observe(viewer, { attributes: true });
  document.querySelector("#explain-run").click();
})"""


@dataclass
class Load:
    """What became of the requests of many clients."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {QUICK: [], SLOW: []})
    outcomes: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def count(self) -> int:
        """How many requests there were."""
        return sum(self.outcomes.values())

    @property
    def wrong(self) -> int:
        """How many were answered with another one's map, or with an error."""
        return self.outcomes["wrong"] + self.outcomes["failed"]

    def p95(self, method: str) -> float:
        """The seconds within which 95 of 100 requests of a method were answered."""
        return float(np.percentile(self.seconds[method], 95))

    def told(self) -> str:
        """What became of them, in words."""
        return ", ".join(f"{count} {what}" for what, count in sorted(self.outcomes.items()))


def load(server: Server, slow_share: float, clients: int = CLIENTS) -> Load:
    """Many clients at a time, each with a picture of its own, which the answer has to be of."""
    found = Load()
    with tempfile.TemporaryDirectory() as folder:
        visits = [
            threading.Thread(target=_visit, args=(server, number, slow_share, Path(folder), found))
            for number in range(clients)
        ]
        for visit in visits:
            visit.start()
        for visit in visits:
            visit.join()
    return found


def _visit(server: Server, number: int, slow_share: float, folder: Path, found: Load) -> None:
    from gradio_client import Client, handle_file

    chance = random.Random(number)
    picture = folder / f"client {number}.png"
    size = (300 + number, 200 + 2 * number)  # so that every client knows its own map
    with Image.open(resource_folder("assets") / "chelsea.jpg") as cat:
        cat.resize(size).save(picture)
    client = Client(server.url, verbose=False, download_files=str(folder / str(number)))
    for _ in range(REQUESTS):
        method = SLOW if chance.random() < slow_share else QUICK
        start = time.perf_counter()
        outcome = _ask(client, handle_file(str(picture)), method, size, picture.name)
        with found.lock:
            found.outcomes[outcome] += 1
            if outcome == "answered":
                found.seconds[method].append(time.perf_counter() - start)
        if outcome == "refused":
            time.sleep(1)


def _ask(client: Any, picture: Any, method: str, size: tuple[int, int], name: str) -> str:
    from gradio_client.exceptions import AppError

    try:
        overlay, _, _, summary = client.predict(picture, method=method, api_name="/explain")
    except AppError as error:
        return "refused" if "queue is full" in str(error).lower() else "failed"
    with Image.open(io.BytesIO(Path(overlay).read_bytes())) as painted:
        own = painted.size == size and summary["input"] == name and summary["method"] == method
    return "answered" if own else "wrong"
