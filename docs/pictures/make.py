"""Makes the pictures of the documentation anew: python docs/pictures/make.py (needs the test extra and Chromium)."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

import camapp

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def main() -> None:
    explanation = camapp.explain("efficientnet_lite0", ROOT / "assets" / "chelsea.jpg", targets="tiger cat")
    explanation.overlay(0).save(HERE / "chelsea-overlay.png", optimize=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    server = subprocess.Popen([sys.executable, "-m", "camapp", "serve", "--port", str(port)], env=environment)
    try:
        wait_for(f"{address}/healthz")
        for name, shot in photographs(address):
            (HERE / name).write_bytes(shot)
    finally:
        server.terminate()
        server.wait(30)


def wait_for(address: str) -> None:
    for _ in range(240):
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except OSError:
            time.sleep(0.25)
    raise RuntimeError(f"{address} does not answer")


# File, tab, height of the window, and how the status line begins once the tab is done.
SHOTS = (
    ("page.jpg", "explain", 1080, "Done"),
    ("compare.jpg", "compare", 1000, "Done"),
    ("batch.jpg", "batch", 1000, "Done"),
    ("features.jpg", "features", 1080, "Done"),
    ("inspect.jpg", "inspect", 1080, "Done"),
)


def photographs(address: str) -> Iterator[tuple[str, bytes]]:
    """Each tab at work on the sample pictures, as JPEG."""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, tab, height, done in SHOTS:
            page = browser.new_page(viewport={"width": 1280, "height": height})
            page.goto(f"{address}/?tab={tab}&sample=chelsea.jpg")
            expect(page.locator(f"#{tab}-panel")).to_be_visible(timeout=60_000)
            if tab in ("batch", "features"):
                page.set_input_files(
                    f"#{tab}-controls input[type=file] >> nth=0", sorted((ROOT / "assets").glob("*.jpg"))
                )
                page.get_by_text("chelsea", exact=False).first.wait_for()
                page.locator(f"#{tab}-run").click()
            expect(page.locator(f"#{tab}-panel [role=status]").first).to_contain_text(done, timeout=120_000)
            page.mouse.move(0, 0)
            page.wait_for_timeout(500)
            yield name, as_jpeg(page.screenshot())
            page.close()
        browser.close()


def as_jpeg(shot: bytes) -> bytes:
    """A screenshot, small enough for a guide."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(shot)).convert("RGB").save(buffer, "JPEG", quality=86, optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
