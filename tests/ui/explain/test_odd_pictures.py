"""Every odd picture through the page itself: the right way up and in the right colours, or refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.images.odd_pictures import ODD_PICTURES, Odd

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.parametrize("odd", ODD_PICTURES, ids=lambda odd: odd.file[:40])
def test_an_odd_picture_is_shown_right_or_refused(explainer: Any, tmp_path: Path, odd: Odd) -> None:
    path = odd.write(tmp_path)
    status, toast = explainer.page.locator("#status"), explainer.page.locator("[data-testid=toast-body]")
    by_ending = path.suffix in ("", ".txt")  # the browser's own word: it takes pictures by their ending
    if odd.refusal or by_ending:
        explainer.upload(path)
        if by_ending:
            expect(toast).to_be_visible(timeout=10_000)
            return
        expect(status).to_contain_text(re.compile(odd.refusal or "", re.DOTALL), timeout=20_000)
        expect(explainer.viewer).to_have_attribute("data-state", "empty")
        return
    explainer.after(lambda: explainer.upload(path))
    width, height = odd.size
    assert explainer.facts["Picture"].endswith(f"{width} × {height}")
    explainer.turn("opacity", 0)
    explainer.page.locator(".viewer-canvas").blur()
    if min(width, height) > 24:
        np.testing.assert_allclose(explainer.pixel(0, 0), odd.corner, atol=14)  # shown as a JPEG
    for note in odd.notes:
        expect(explainer.page.locator("#summary")).to_contain_text(re.compile(note))
