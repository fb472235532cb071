"""What our own kinds of Gradio's components need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr
from gradio import component_meta

Kind = TypeVar("Kind", bound=gr.HTML)


def view(folder: Path, name: str, *, kind: type[Kind] = gr.HTML, **options: Any) -> Kind:  # type: ignore[assignment]
    """A component of our own: ``NAME.html``, ``NAME.js`` and, where there is one, ``NAME.css`` of a folder.

    Args:
        folder: where they lie.
        name: of the files.
        kind: of the component.
        options: for ``gr.HTML``; ``html_template`` where there is no file of it.
    """
    files = {"html_template": ".html", "js_on_load": ".js"}
    if (folder / f"{name}.css").is_file():
        files["css_template"] = ".css"
    own = {
        option: (folder / f"{name}{ending}").read_text(encoding="utf-8")
        for option, ending in files.items()
        if option not in options
    }
    return kind(**{"value": None, "apply_default_css": False, **own, **options})


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
