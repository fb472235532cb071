"""How the page looks: theme, style sheet, and the few lines of script that mend Gradio's controls."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import gradio as gr

from camapp.images.render import COLORMAPS, DIVERGING, colors_of, diverging_colors

_HERE = Path(__file__).parent


def theme() -> gr.themes.Base:
    """Blue on slate, with the system's own fonts: nothing is fetched."""
    built = gr.themes.Default(
        primary_hue="blue",
        neutral_hue="slate",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
        radius_size="md",
    )
    # Gradio's own subdued texts (slate 400) and orange buttons fall short of the 4.5:1 that WCAG AA asks for.
    return built.set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_400",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_400",
        block_label_text_color="*neutral_700",
        block_label_text_color_dark="*neutral_200",
        block_title_text_color="*neutral_800",
        block_title_text_color_dark="*neutral_200",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        checkbox_border_color="*neutral_500",
        checkbox_border_color_dark="*neutral_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_700",
        button_primary_text_color="white",
    )


def style(tabs: Sequence[tuple[str, Sequence[str]]]) -> str:
    """The page's style sheet, with the rules that show the open tab's parts only.

    Args:
        tabs: name of each, and which parts of the shared selection it shows.
    """
    return (_HERE / "page.css").read_text(encoding="utf-8") + "\n".join(_shown(name, shows) for name, shows in tabs)


def head() -> str:
    """The page's scripts, as an element of its head."""
    scripts = "".join((_HERE / name).read_text(encoding="utf-8") for name in ("library.js", "address.js", "page.js"))
    return f"<script>\n{scripts}</script>\n"


@lru_cache(maxsize=1)
def encoded_colormaps() -> dict[str, str]:
    """The colour maps as the page's scripts read them: 256 RGB triples in base64, by name."""
    maps = {**{name: colors_of(name) for name in COLORMAPS}, DIVERGING: diverging_colors()}
    return {name: base64.b64encode(colors.tobytes()).decode() for name, colors in maps.items()}


def _shown(tab: str, shows: Sequence[str]) -> str:
    parts = [f"#{tab}-panel", f"#{tab}-controls", *(f"#selection-{part}" for part in shows)]
    return ", ".join(f'body[data-tab="{tab}"] {part}' for part in parts) + " { display: flex !important; }"
