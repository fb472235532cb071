"""What stands before every request: whose it is, how large it may be, and what every answer says."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A request may hold several files (Gradio takes a thousand); this bounds them together.
MOST_BODY_BYTES = 200 * 2**20

# A name or an address, and perhaps a port: nothing else, as whatever else passes for a name may be another's.
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]@/\s]+)(:\d+)?")

LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


def allowed_hosts(listens_on: str, root_path: str = "", named: Sequence[str] = ()) -> frozenset[str] | None:
    """Names under which requests are answered; None for any.

    A page that listens on this machine only is still reached by every web site that its user visits, once that site's
    name leads here too (DNS rebinding): so it answers under this machine's own names. A page that listens on a network
    cannot know its names, unless it is told.

    Args:
        listens_on: the address.
        root_path: the address of the page behind a proxy, or its path.
        named: further names.
    """
    if listens_on not in LOOPBACK and not named:
        return None
    behind = urlsplit(root_path).hostname if "//" in root_path else None
    return frozenset(name.lower() for name in (*LOOPBACK, listens_on, *named, *([behind] if behind else [])))


class Guard:
    """Adds the safety headers to each answer, and refuses bodies past a limit; leaves event streams unbuffered.

    Args:
        app: the application inside.
        hosts: names under which it is answered; None for any.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None = None) -> None:
        self._app = app
        self._hosts = hosts
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
        headers = dict(scope["headers"])
        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
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

    def _comes_from_elsewhere(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a page of another web site makes this request, in the browser of somebody who may use this one."""
        site = headers.get(b"sec-fetch-site")
        if site is not None:
            return site == b"cross-site"
        origin = headers.get(b"origin")
        if origin is None or self._hosts is None:
            return False
        return (urlsplit(origin.decode("latin-1")).hostname or "") not in {name.strip("[]") for name in self._hosts}

    def _refusal(self, method: str, headers: dict[bytes, bytes]) -> PlainTextResponse | None:
        name = _host_name(headers.get(b"host", b"").decode("latin-1"))
        if self._hosts is not None and name not in self._hosts:
            told = f"This page does not answer under that name. If it should: camapp serve --trusted-host {name[:80]}"
            return PlainTextResponse(told, 421)
        if method not in ("GET", "HEAD", "OPTIONS") and self._comes_from_elsewhere(headers):
            return PlainTextResponse("Requests that other web sites make are not taken.", 403)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MOST_BODY_BYTES:
            return PlainTextResponse(f"The request is larger than {MOST_BODY_BYTES // 2**20} MiB.", 413)
        return None


def _host_name(host: str) -> str:
    """A Host header without its port, in small letters."""
    match = _HOST.fullmatch(host.strip().lower())
    return match["name"] if match else ""


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
