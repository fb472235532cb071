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
        (HERE / "page.jpg").write_bytes(photograph(address))
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


def photograph(address: str) -> bytes:
    """The page with the cat explained, as JPEG."""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 1080})
        page.goto(address)
        page.locator("#samples button").first.click()
        expect(page.locator("#status")).to_contain_text("Done", timeout=60_000)
        expect(page.locator("[data-state=result]")).to_be_visible()
        page.mouse.move(0, 0)
        shot = page.screenshot()
        browser.close()
    buffer = io.BytesIO()
    Image.open(io.BytesIO(shot)).convert("RGB").save(buffer, "JPEG", quality=88, optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
