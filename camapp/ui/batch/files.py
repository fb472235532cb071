"""A file input that hands over what was really uploaded, by the names that visitors know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import gradio as gr
from gradio.data_classes import ListFiles

from camapp.ui.frame.component import own_component
from camapp.ui.frame.uploads import uploaded

_LONGEST_NAME = 255


@dataclass(frozen=True)
class NamedFile:
    """An upload.

    Args:
        path: where it lies.
        name: what its owner calls it, without a folder.
    """

    path: Path
    name: str


with own_component():

    class NamedFiles(gr.File):
        """``gr.File`` whose value is a list of ``NamedFile``, also of a single file.

        Gradio keeps an upload under a name without brackets and the like ("photo (1).jpg" becomes "photo 1.jpg"),
        which a table of classes would not know.
        """

        # no __init__ of its own: Gradio 6.31 tells the page only of the arguments in the signature of the class itself
        is_template = True  # else the page asks for a custom component's JavaScript, and never finishes loading (6.31)

        def preprocess(self, payload: Any) -> list[NamedFile]:  # type: ignore[override]
            """The uploads, each known to be one."""
            files = payload if isinstance(payload, ListFiles) else [payload]
            return [_named(file) for file in files if file is not None]

        def example_payload(self) -> Any:
            """What the description of the API shows; Gradio's own example is a URL, which is not taken."""
            example = {"path": "picture.jpg", "meta": {"_type": "gradio.FileData"}}
            return example if self.file_count == "single" else [example]


def _named(file: Any) -> NamedFile:
    path = uploaded(file.path)
    name = PurePosixPath((file.orig_name or path.name).replace("\\", "/")).name
    return NamedFile(path, name[:_LONGEST_NAME] or path.name)
