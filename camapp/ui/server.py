"""How the page is served: safe settings that every way of launching it keeps, and headers on every answer."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import gradio as gr
import torch
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from camapp.errors import UsageError
from camapp.ui.environment import keep_swept, refuse_vibe_mode, wipe
from camapp.ui.foreign import refuse_urls
from camapp.ui.frame import look
from camapp.ui.guard import LOOPBACK, MOST_BODY_BYTES, Guard, allowed_hosts
from camapp.ui.passwords import Passwords

HOST = "127.0.0.1"
WORKERS = 64  # most of them wait for the scheduler, which runs two tasks at a time
SESSIONS = 200
MOST_TORCH_THREADS = 8

_LAUNCH_ONLY: dict[str, Any] = {
    "share": False,
    "num_workers": 0,
    "strict_cors": True,
    "max_threads": WORKERS,
    "state_session_capacity": SESSIONS,
}


class Page(gr.Blocks):
    """``gr.Blocks`` whose ``launch`` keeps to this machine, whatever the shell says and whoever calls it.

    Args:
        routes: answered by the same server, before Gradio's own.
        style: the page's style sheet.
        options: as for ``gr.Blocks``.
    """

    def __init__(self, routes: list[BaseRoute], style: str, **options: Any) -> None:
        refuse_urls()
        # Gradio's own sweeping leaves empty folders, and what it did not make itself
        super().__init__(analytics_enabled=False, delete_cache=None, **options)
        keep_swept()
        health = Route("/healthz", _healthy)
        self.own_routes = [health, *routes]
        self._style = style

    def launch(
        self, *arguments: Any, passwords: Passwords | None = None, trusted_hosts: Sequence[str] = (), **options: Any
    ) -> Any:
        """Serve the page, on 127.0.0.1 unless ``server_name`` or ``GRADIO_SERVER_NAME`` says otherwise.

        Args:
            arguments: as for ``gr.Blocks.launch``.
            passwords: who may use it; by default everyone who reaches it.
            trusted_hosts: names under which a proxy hands requests on; beside those of this machine and of
                ``root_path``, and needed only where the page listens on this machine.
            options: as for ``gr.Blocks.launch``, those that keep it safe excepted.

        Raises:
            UsageError: the port is taken, or ``GRADIO_VIBE_MODE`` is set.
        """
        refuse_vibe_mode()
        host = options.get("server_name") or os.environ.get("GRADIO_SERVER_NAME") or HOST
        root_path = options.get("root_path") or os.environ.get("GRADIO_ROOT_PATH") or ""
        guard = Middleware(Guard, hosts=allowed_hosts(host, root_path, trusted_hosts))
        options |= {"server_name": host, **_LAUNCH_ONLY, **self._settings(guard, passwords)}
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
                self.block_thread(host, guarded=passwords is not None)
            else:
                self._greet(host, guarded=passwords is not None)
        return launched

    def mount(self, app: FastAPI, path: str, passwords: Passwords | None = None) -> None:
        """Make the page a part of another application, with the same safe settings.

        Args:
            app: the application; who may ask it for what, and under which names, is its own business.
            path: where the page lies in it.
            passwords: as for ``launch``.
        """
        refuse_vibe_mode()
        torch.set_num_threads(_torch_threads())
        gr.mount_gradio_app(app, self, path, **self._settings(Middleware(Guard), passwords))
        inner = app.router.lifespan_context

        @contextlib.asynccontextmanager
        async def lifespan(application: Any) -> AsyncIterator[Any]:
            async with inner(application) as state:
                yield state
            wipe()  # a server that is ended by a signal runs nothing of the kind that atexit does

        app.router.lifespan_context = lifespan

    def block_thread(self, host: str = HOST, *, guarded: bool = False) -> None:
        """Say where the page is, and serve until interrupted (Ctrl+C) or terminated (SIGTERM)."""
        try:
            self._greet(host, guarded=guarded)
            while self.is_running:
                time.sleep(0.1)
        except (KeyboardInterrupt, OSError):
            self._end()

    def _end(self) -> None:
        print("camapp: closing the page.", flush=True)
        server = getattr(self, "server", None)
        if server is not None:
            server.close()

    def _settings(self, guard: Middleware, passwords: Passwords | None) -> dict[str, Any]:
        """What no caller changes, whether the page is launched or mounted."""
        asked: dict[str, Any] = {}
        if passwords is not None:
            asked = {"auth": passwords.admit, "auth_message": "This page asks for a name and a password."}
        return {
            **asked,
            "run_history": False,
            "ssr_mode": False,
            "show_error": False,
            "allowed_paths": [],
            "mcp_server": False,
            "pwa": False,
            "enable_monitoring": False,
            "max_file_size": MOST_BODY_BYTES,  # as archives may be; the decoder keeps the limit of a picture
            "footer_links": ["api"],  # hidden by the style sheet; the top bar has a button for it
            "theme": look.theme(),
            "css": self._style,
            "head": look.head(),
            "app_kwargs": {"middleware": [guard], "routes": self.own_routes},
        }

    def _greet(self, host: str, *, guarded: bool) -> None:
        print(f"camapp: the page is at {self.local_url} (Ctrl+C ends it)", flush=True)
        if host in LOOPBACK:
            return
        if guarded:
            print("camapp: names and passwords travel unencrypted: put a proxy with TLS in front of it.", flush=True)
        else:
            print(
                f"camapp: WARNING: on {host} everyone who reaches this machine can use the page. Ask for passwords "
                "(camapp serve --auth-file), and put a proxy with TLS and rate limits in front of it.",
                flush=True,
            )


async def _healthy(request: Request) -> JSONResponse:
    """Answered by the event loop itself: the threads may all wait for downloads."""
    return JSONResponse({"status": "ok"})


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
