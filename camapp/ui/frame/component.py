"""What our own kinds of Gradio's components need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gradio import component_meta


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
