"""Gradio fetches public URLs for anyone who asks its server to; the server of this page fetches none."""

from __future__ import annotations

from typing import NoReturn

import gradio as gr
from fastapi import HTTPException
from gradio import processing_utils, routes
from starlette.requests import Request


def refuse_urls() -> None:
    """Close the two doors by which a request makes Gradio 6.31 contact the host it names.

    One is a file given by a URL, as any event takes it; the other is ``GET /gradio_api/file=URL``.
    """
    processing_utils.async_ssrf_protected_get = _refuse_input
    routes.secure_url_stream_response = _refuse_file


async def _refuse_input(url: str) -> NoReturn:
    raise gr.Error("Pictures cannot be loaded from a URL. Upload the file instead.", print_exception=False)


async def _refuse_file(url: str, request: Request) -> NoReturn:
    raise HTTPException(403, "This server fetches no URLs.")
