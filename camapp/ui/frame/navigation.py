"""The row of tabs: its value is the name of the open one."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.ui.frame.component import view

_HERE = Path(__file__).parent


def navigation(tabs: Sequence[tuple[str, str]], **options: Any) -> gr.HTML:
    """The component. Set as an output, it opens a tab; the panels are the elements ``#NAME-panel``.

    Args:
        tabs: name and title of each, the first being open at first.
        options: for ``gr.HTML``.
    """
    buttons = "".join(
        f'<button type="button" role="tab" id="{name}-tab" data-tab="{name}" aria-controls="{name}-panel" '
        f'aria-keyshortcuts="{number}">{html.escape(title)}</button>'
        for number, (name, title) in enumerate(tabs, 1)
    )
    return view(
        _HERE,
        "navigation",
        value=tabs[0][0],
        html_template=f'<nav class="tabs" aria-label="Views"><div role="tablist">{buttons}</div></nav>',
        **options,
    )
