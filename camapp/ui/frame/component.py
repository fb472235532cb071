"""What our own kinds of Gradio's components need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
from gradio import component_meta


def view(folder: Path, name: str, *, kind: type[gr.HTML] = gr.HTML, **options: Any) -> Any:
    """A component of our own: ``NAME.html``, ``NAME.css`` and ``NAME.js`` of a folder, those that are there.

    Args:
        folder: where they lie.
        name: of the files.
        kind: of the component.
        options: for ``gr.HTML``; ``html_template`` where there is no file of it.
    """
    files = {"html_template": ".html", "css_template": ".css", "js_on_load": ".js"}
    there = {option: folder / f"{name}{ending}" for option, ending in files.items() if option not in options}
    read = {option: path.read_text(encoding="utf-8") for option, path in there.items() if path.is_file()}
    return kind(**{"value": None, "apply_default_css": False, **read, **options})


@contextlib.contextmanager
def own_component() -> Iterator[None]:
    """Keep Gradio from writing files while the block subclasses a component.

    Gradio 6.31 writes a .pyi, a copy of the module's source, beside each module that does so.
    """
    write_stub = component_meta.create_or_modify_pyi
    component_meta.create_or_modify_pyi = lambda *_: None
    try:
        yield
    finally:
        component_meta.create_or_modify_pyi = write_stub
