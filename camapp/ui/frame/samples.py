"""The sample pictures: a strip of thumbnails, and a copy of each where the page may take it from."""

from __future__ import annotations

import html
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from camapp.errors import UsageError
from camapp.files import write_atomically
from camapp.resources import resource_folder
from camapp.ui.environment import private_folder
from camapp.ui.frame.component import view
from camapp.ui.frame.pictures import data_url

THUMBNAIL_SIDE = 144

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Sample:
    """One sample picture: its file's name, what it is called, and what it shows."""

    file: str
    title: str
    shows: str


SAMPLES = (
    Sample("chelsea.jpg", "Cat", "a tabby cat, close up"),
    Sample("coffee.jpg", "Coffee", "a cup of espresso on a wooden table"),
    Sample("astronaut.jpg", "Astronaut", "a smiling astronaut in an orange suit"),
    Sample("rocket.jpg", "Rocket", "a rocket taking off at night"),
)


def sample_strip(**options: Any) -> gr.HTML:
    """The component; a click on a thumbnail triggers ``pick`` with the file's name as ``sample``."""
    buttons = "".join(_button(sample) for sample in SAMPLES)
    strip = f'<div class="samples" role="group" aria-label="Sample pictures">{buttons}</div>'
    return view(_HERE, "samples", html_template=strip, **options)


def sample_path(file: str) -> str:
    """Where the sample ``file`` lies among this process's own files, as an upload does.

    Raises:
        UsageError: there is no such sample.
    """
    if file not in {sample.file for sample in SAMPLES}:
        there = ", ".join(sample.file for sample in SAMPLES)
        raise UsageError(f"There is no sample picture {str(file)[:40]!r}. There are {there}.")
    copy = private_folder() / "samples" / file
    if not copy.is_file():
        copy.parent.mkdir(exist_ok=True)
        write_atomically(copy, (resource_folder("assets") / file).read_bytes())
    return str(copy)


def is_sample(path: str | None) -> bool:
    """Whether a picture is one of the samples, so that an address may name it."""
    return path is not None and Path(path).parent == private_folder() / "samples"


def _button(sample: Sample) -> str:
    title, shows = html.escape(sample.title), html.escape(sample.shows)
    thumbnail = _thumbnail(resource_folder("assets") / sample.file)
    return (
        f'<button type="button" data-sample="{sample.file}" title="{title}: {shows}">'
        f'<img alt="" src="{thumbnail}"><span>{title}</span></button>'
    )


def _thumbnail(path: Path) -> str:
    with Image.open(path) as picture:
        small = picture.convert("RGB")
    small.thumbnail((2 * THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=82)
    return data_url("image/jpeg", buffer.getvalue())
