"""How the page is served: safe settings that every way of launching it keeps, and headers on every answer."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import gradio as gr
import torch
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from camapp.errors import UsageError
from camapp.images.decode import Limits
from camapp.ui.environment import refuse_vibe_mode
from camapp.ui.foreign import refuse_urls
from camapp.ui.frame import look

HOST = "127.0.0.1"
WORKERS = 64  # most of them wait for the scheduler, which runs two tasks at a time
SESSIONS = 200
MOST_TORCH_THREADS = 8

# A request may hold several files (Gradio takes a thousand); this bounds them together.
MOST_BODY_BYTES = 200 * 2**20

_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


class Page(gr.Blocks):
    """``gr.Blocks`` whose ``launch`` keeps to this machine, whatever the shell says and whoever calls it.

    Args:
        routes: answered by the same server, before Gradio's own.
        style: the page's style sheet.
        options: as for ``gr.Blocks``.
    """

    def __init__(self, routes: list[BaseRoute], style: str, **options: Any) -> None:
        refuse_urls()
        super().__init__(analytics_enabled=False, delete_cache=(600, 3600), **options)
        self._routes, self._style = routes, style

    def launch(self, *arguments: Any, **options: Any) -> Any:
        """Serve the page, on 127.0.0.1 unless ``server_name`` or ``GRADIO_SERVER_NAME`` says otherwise.

        Raises:
            UsageError: the port is taken, or ``GRADIO_VIBE_MODE`` is set.
        """
        refuse_vibe_mode()
        host = options.get("server_name") or os.environ.get("GRADIO_SERVER_NAME") or HOST
        options |= {"server_name": host, **_kept_settings(self._routes, self._style)}
        options.setdefault("quiet", True)
        blocking = not options.get("prevent_thread_lock", False)
        torch.set_num_threads(_torch_threads())
        with _terminated_like_interrupted():
            try:
                # Gradio 6.31 reports a port that is taken as OSError
                launched = super().launch(*arguments, **{**options, "prevent_thread_lock": True})
            except OSError as error:
                raise UsageError(
                    f"Cannot serve on {host}, port {options.get('server_port') or 7860}: the port is taken or may not "
                    "be used. Choose another: camapp serve --port 7861, or GRADIO_SERVER_PORT=7861 make app."
                ) from error
            except KeyboardInterrupt:  # while it was starting: it answers requests before launch() returns
                if not blocking:
                    raise
                self._end()
                return None
            if self._is_running_in_reload_thread or not self.is_running:
                return launched
            if blocking:
                self.block_thread(host)
            else:
                self._greet(host)
        return launched

    def block_thread(self, host: str = HOST) -> None:
        """Say where the page is, and serve until interrupted (Ctrl+C) or terminated (SIGTERM)."""
        try:
            self._greet(host)
            while self.is_running:
                time.sleep(0.1)
        except (KeyboardInterrupt, OSError):
            self._end()

    def _end(self) -> None:
        print("camapp: closing the page.", flush=True)
        server = getattr(self, "server", None)
        if server is not None:
            server.close()

    def _greet(self, host: str) -> None:
        print(f"camapp: the page is at {self.local_url} (Ctrl+C ends it)", flush=True)
        if host not in _LOOPBACK:
            print(
                f"camapp: WARNING: on {host} everyone who reaches this machine can use the page. Put a proxy with TLS, "
                "passwords and rate limits in front of it.",
                flush=True,
            )


class Guard:
    """Adds the safety headers to each answer, and refuses bodies past a limit; leaves event streams unbuffered.

    Args:
        app: the application inside.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [
            (b"content-security-policy", content_security_policy().encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MOST_BODY_BYTES:
            refusal = PlainTextResponse("The request is too large.", 413)
            await refusal(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            # a chunked body states no length
            return {"type": "http.disconnect"} if received > MOST_BODY_BYTES else message

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        await self._app(scope, counted, with_headers)


def content_security_policy() -> str:
    """A policy that lets the page load from, connect to and be framed by nobody else.

    Gradio 6.31 needs ``unsafe-eval`` for any script attached to an event or a component.
    """
    # a Hugging Face Space is shown inside of huggingface.co
    framed_by = "https://huggingface.co" if os.environ.get("SPACE_ID") else "'none'"
    return "; ".join(
        (
            "default-src 'self'",
            "img-src 'self' data: blob:",
            "media-src 'self' blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "style-src 'self' 'unsafe-inline'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            f"frame-ancestors {framed_by}",
        )
    )


def _kept_settings(routes: list[BaseRoute], style: str) -> dict[str, Any]:
    """What no caller of ``launch`` changes."""
    health = Route("/healthz", lambda request: JSONResponse({"status": "ok"}))
    return {
        "share": False,
        "ssr_mode": False,
        "run_history": False,
        "show_error": False,
        "allowed_paths": [],
        "mcp_server": False,
        "pwa": False,
        "enable_monitoring": False,
        "num_workers": 0,
        "strict_cors": True,
        "max_file_size": Limits.from_environment().max_bytes,
        "max_threads": WORKERS,
        "state_session_capacity": SESSIONS,
        "footer_links": ["api"],  # hidden by the style sheet; the title bar has a button for it
        "theme": look.theme(),
        "css": style,
        "head": look.head(),
        "app_kwargs": {"middleware": [Middleware(Guard)], "routes": [health, *routes]},
    }


def _torch_threads() -> int:
    """As many as this process has cores; past a few, one picture is explained no faster."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, MOST_TORCH_THREADS))


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end the program as Ctrl+C does, so that temporary files are wiped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
