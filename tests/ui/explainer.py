"""The few words in which the browser tests speak of the page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import expect


@dataclass
class Explainer:
    """The page in one browser window, and all that it asked the network for."""

    page: Any
    url: str
    requests: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def wait_for_result(self, status: str = "Done") -> None:
        """Wait for a result on show: the status says so, and the viewer has drawn it."""
        expect(self.page.locator("#status")).to_contain_text(status, timeout=30_000)
        expect(self.viewer).to_have_attribute("data-state", "result")

    def after(self, action: Any, status: str = "Done") -> None:
        """Do something that leads to a new result, and wait for just that one: the old one stays while it runs."""
        before = self.token
        action()
        self.page.wait_for_function(
            "before => { const now = document.querySelector('#viewer .viewer')?.dataset.token;"
            " return now && now !== before && document.querySelector('#summary .summary')?.dataset.token === now; }",
            arg=before,
            timeout=30_000,
        )
        self.wait_for_result(status)

    def sample(self, name: str) -> None:
        self.after(lambda: self.page.locator(f"#samples button[data-sample='{name}.jpg']").click())

    def upload(self, path: str | Path) -> None:
        self.page.set_input_files("#picture input[type=file]", path)

    def choose(self, control: str, text: str) -> None:
        """Search a list and take the first hit; the list filters on key events, so the text is typed."""
        box = self.page.locator(f"#{control} input")
        box.click()
        box.press("ControlOrMeta+a")
        box.press_sequentially(text, delay=10)
        self.page.locator(f"#{control} [role=option]").filter(has_text=text).first.wait_for()
        box.press("Enter")

    def pick(self, control: str, value: str) -> None:
        """Open a picker and click one of its options, as a hand does."""
        picker = self.page.locator(f"#{control}")
        if not picker.locator(".picker-panel").is_visible():
            picker.locator(".picker-button").click()
        picker.locator("label").filter(has=self.page.locator(f"input[value='{value}']")).click()

    def pick_only(self, control: str, value: str) -> None:
        """Of a picker that takes several: pick one, and put away what was picked before."""
        before = self.picked(control)
        self.pick(control, value)
        for one in before:
            self.pick(control, one)
        self.page.keyboard.press("Escape")

    def settles_on(self, layer: str) -> None:
        """Wait until the result is of one layer."""
        fact = self.page.locator("#summary dt:text-is('Layer') + dd")
        expect(fact).to_have_text(re.compile("^" + re.escape(layer)), timeout=30_000)
        self.wait_for_result()

    def picked(self, control: str) -> list[str]:
        """What is picked."""
        return self.page.locator(f"#{control} input:checked").evaluate_all("boxes => boxes.map(one => one.value)")

    def turn(self, knob: str, value: int) -> None:
        """Set one of the viewer's sliders, as a drag does."""
        self.page.locator(f".viewer-{knob}").fill(str(value))
        self.painted()

    def painted(self) -> None:
        """Wait for the next frame: drawing is put off until then."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def pixel(self, x: int, y: int) -> tuple[int, int, int]:
        script = (
            "([x, y]) => [...document.querySelector('.viewer-canvas').getContext('2d').getImageData(x, y, 1, 1).data]"
        )
        red, green, blue, _ = self.page.evaluate(script, [x, y])
        return red, green, blue

    @property
    def canvas_size(self) -> list[int]:
        return self.page.locator(".viewer-canvas").evaluate("canvas => [canvas.width, canvas.height]")

    def download(self, what: str) -> Any:
        with self.page.expect_download() as started:
            self.page.locator(f".viewer-download-{what}").click()
        return started.value

    @property
    def viewer(self) -> Any:
        return self.page.locator("#viewer .viewer")

    @property
    def token(self) -> str | None:
        return self.viewer.get_attribute("data-token")

    @property
    def classes(self) -> list[str]:
        return self.page.locator("#summary button > span:first-child").all_inner_texts()

    @property
    def facts(self) -> dict[str, str]:
        names = self.page.locator("#summary dt").all_inner_texts()
        return dict(zip(names, self.page.locator("#summary dd").all_inner_texts(), strict=True))
