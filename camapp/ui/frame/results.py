"""Results kept for a while, so that their files are made when someone asks for them, and as the page shows them."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypeAlias
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from camapp.errors import CamappError
from camapp.ui.environment import KEPT_SECONDS

MOST_KEPT = 200
MOST_BYTES = 512 * 2**20
GONE = "This result has expired. Make it again, then download it."

# What a file's content is, or makes it of the query of the request.
Content: TypeAlias = bytes | Path | Callable[[Mapping[str, str]], bytes]

# Encoding a picture of 50 million pixels takes a second and a few hundred megabytes.
_encoders = threading.BoundedSemaphore(2)

_MEDIA_TYPES = {".png": "image/png", ".json": "application/json", ".zip": "application/zip", ".csv": "text/csv"}


@dataclass(frozen=True)
class _Kept:
    files: Mapping[str, Content]
    label: str
    size: int
    since: float


class Results:
    """Files by an unguessable token; the oldest make room for new ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def keep_files(self, files: Mapping[str, Content], label: str = "", *, size: int = 0) -> str:
        """Keep files for an hour, or until there are too many.

        Args:
            files: what is served at ``result/TOKEN/NAME``, by name: the content; a file, which whoever made it also
                deletes; or a function of the request's query, called at each download. A ``CamappError`` or
                ``ValueError`` of it is told to the visitor.
            label: what the names of the downloads begin with.
            size: bytes of memory that they hold.

        Returns:
            The token.
        """
        token = secrets.token_urlsafe(16)
        held = size + sum(len(content) for content in files.values() if isinstance(content, bytes))
        with self._lock:
            self._kept[token] = _Kept(dict(files), label, held, time.monotonic())
            self._make_room()
        return token

    def holds(self, token: str) -> bool:
        """Whether the files of a token are still kept."""
        return self._find(token) is not None

    def route(self) -> Route:
        """``GET /result/TOKEN/FILE``: the files of a result."""
        return Route("/result/{token}/{file}", self._answer, methods=["GET"])

    def _find(self, token: str) -> _Kept | None:
        with self._lock:
            self._make_room()
            return self._kept.get(token)

    def _answer(self, request: Request) -> Response:
        kept, file = self._find(request.path_params["token"]), request.path_params["file"]
        if kept is None:
            return PlainTextResponse(GONE, 404)
        content = kept.files.get(file)
        if content is None:
            return PlainTextResponse("There is no such file.", 404)
        name = f"{kept.label}.{file}" if kept.label else file
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(name)}",
            "cache-control": "private, no-store",
        }
        media_type = _MEDIA_TYPES.get(PurePath(file).suffix, "application/octet-stream")
        if isinstance(content, Path):
            if not content.is_file():
                return PlainTextResponse(GONE, 404)
            return FileResponse(content, media_type=media_type, headers=headers)
        try:
            with _encoders:
                made = content if isinstance(content, bytes) else content(request.query_params)
        except (CamappError, ValueError) as error:
            return PlainTextResponse(str(error), 400)
        return Response(made, media_type=media_type, headers=headers)

    def _make_room(self) -> None:
        """Drop results past their time, and the oldest while there are too many; the newest stays until its time."""
        total = sum(kept.size for kept in self._kept.values())
        while self._kept:
            oldest = next(iter(self._kept.values()))
            too_old = time.monotonic() - oldest.since > KEPT_SECONDS
            too_many = len(self._kept) > MOST_KEPT or total > MOST_BYTES
            if not too_old and not (too_many and len(self._kept) > 1):
                break
            self._kept.popitem(last=False)
            total -= oldest.size
        if self._kept and self._timer is None:
            self._timer = threading.Timer(KEPT_SECONDS / 60, self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _sweep(self) -> None:
        """Run every minute while there are results: they go also when nobody asks for anything any more."""
        with self._lock:
            self._timer = None
            self._make_room()
