"""How the page looks: theme, style sheet, and the few lines of script that mend Gradio's controls."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

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
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_700",
        button_primary_text_color="white",
    )


def style() -> str:
    """The page's style sheet."""
    return (_HERE / "page.css").read_text(encoding="utf-8")


def head() -> str:
    """The page's script, as an element of its head."""
    return f"<script>\n{(_HERE / 'page.js').read_text(encoding='utf-8')}</script>\n"
