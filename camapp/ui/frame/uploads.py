"""An image input that hands over the path of a file which really was uploaded, and leaves reading it to the decoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from camapp.ui.environment import kept_text, private_folder
from camapp.ui.frame.component import own_component


def picture_input(**options: Any) -> PictureInput:
    """A picture that the user uploads, pastes or picks; its value is the path of the file as it came."""
    return PictureInput(type="filepath", image_mode=None, sources=["upload", "clipboard"], **options)


with own_component():

    class PictureInput(gr.Image):
        """``gr.Image`` without its own reading of the file; made by ``picture_input``.

        ``gr.Image`` opens the file itself before our code runs, and misreads much of what people upload (16-bit files
        turn white, a GIF becomes palette indices) or fails without a message. This one opens nothing.
        """

        # no __init__ of its own: Gradio 6.31 tells the page only of the arguments in the signature of the class itself
        is_template = True  # else the page asks for a custom component's JavaScript, and never finishes loading (6.31)

        def preprocess(self, payload: Any) -> str | None:
            """The path of the upload, or None; a picture given as data or as a URL is not taken."""
            if payload is None or not payload.path:
                return None
            return str(uploaded(payload.path))

        def example_payload(self) -> dict[str, Any]:
            """What the description of the API shows; Gradio's own example is a URL, which is not taken."""
            return {"path": "picture.jpg", "meta": {"_type": "gradio.FileData"}}


def uploaded(path: str) -> Path:
    """The path, if it is one of a file that this process received.

    Gradio 6.31 makes this check only where the request says ``"meta"``; without it, any file of the server is taken.

    Raises:
        gr.Error: the file lies elsewhere, or is no longer there.
    """
    file = Path(path).resolve()
    if not file.is_relative_to(private_folder()):
        raise gr.Error("That file was not uploaded to this page.", print_exception=False)
    if not file.is_file():
        raise gr.Error(
            f"That picture is no longer on the server: uploads are kept for {kept_text()}. Upload it again.",
            print_exception=False,
        )
    return file
