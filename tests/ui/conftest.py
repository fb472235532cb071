"""A real server in a hostile environment, and a real Chromium."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect, sync_playwright

from camapp.ui.frame.models import ModelPool
from tests.ui.explainer import Explainer
from tests.ui.served import HOSTILE, ROOT, Served, serving

# A busy machine answers late; what never comes still fails.
expect.set_options(timeout=20_000)

_CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="session", autouse=True)
def _no_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield


@pytest.fixture(scope="session")
def pool() -> ModelPool:
    """The page's models, loaded once for all tests that change nothing about them."""
    return ModelPool(device="cpu")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving([sys.executable, str(ROOT / "app.py")], tmp_path_factory.mktemp("server"), **HOSTILE) as served:
        yield served


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        missing = "no Chromium on this machine (looked for chromium, chromium-browser, google-chrome)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, headless=True, args=_CHROMIUM_OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(server: Served, chromium: Any) -> Iterator[Any]:
    """Opens windows on the page; at the end none of them may have asked a foreign host or met an error."""
    opened: list[tuple[Any, Explainer]] = []

    def note_failure(explainer: Explainer, answer: Any) -> None:
        if answer.status >= 400:
            explainer.faults.append(f"{answer.status} {answer.url}")

    def open_window(query: str = "", ready: str = "Top prediction", **context: Any) -> Explainer:
        window = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        explainer = Explainer(window.new_page(), server.url)
        opened.append((window, explainer))
        page = explainer.page
        page.on("request", lambda request: explainer.requests.append(request.url))
        page.on("console", lambda line: line.type == "error" and explainer.faults.append(f"console: {line.text}"))
        page.on("pageerror", lambda error: explainer.faults.append(f"page error: {error}"))
        page.on(
            "response", lambda answer: answer.status >= 400 and explainer.faults.append(f"{answer.status} {answer.url}")
        )
        page.goto(server.url + query)
        expect(page.locator("#samples img")).to_have_count(4, timeout=30_000)
        expect(page.locator("#target input")).to_have_value(ready)
        return explainer

    yield open_window
    for window, explainer in opened:
        window.close()
        foreign = [url for url in explainer.requests if not url.startswith((server.url, "data:", "blob:"))]
        assert not foreign
        assert not explainer.faults


@pytest.fixture
def explainer(open_page: Any) -> Explainer:
    return open_page()
