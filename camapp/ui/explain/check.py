"""The check of a heatmap: curves of the class's probability while pixels come and go, beside those of random maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from camapp.faithfulness import Faithfulness
from camapp.ui.frame.component import view

_HERE = Path(__file__).parent


def check_view(**options: Any) -> gr.HTML:
    """The component; its value is None, ``{"ready": True}``, made by ``check_of``, or ``{"error": message}``.

    Its button triggers ``start``.
    """
    return view(
        _HERE, "check", html_template='<section class="check" aria-label="Check of the heatmap"></section>', **options
    )


def check_of(found: Faithfulness) -> dict[str, Any]:
    """What the check shows: plain data."""
    return {
        "label": found.label,
        "verdict": found.verdict,
        "shares": found.shares,
        "panels": [
            _panel("Insertion", "higher is better", found.insertion, found.random_insertion),
            _panel("Deletion", "lower is better", found.deletion, found.random_deletion),
        ],
        "rows": [
            ["Insertion AUC", f"{found.insertion_auc:.3f}", f"{found.random_insertion_auc:.3f}", "higher"],
            ["Deletion AUC", f"{found.deletion_auc:.3f}", f"{found.random_deletion_auc:.3f}", "lower"],
        ],
    }


def _panel(title: str, better: str, curve: tuple[float, ...], others: tuple[tuple[float, ...], ...]) -> dict[str, Any]:
    return {"title": title, "better": better, "curve": curve, "random": others}
