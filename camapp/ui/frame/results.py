"""Results kept for a while, so that their files are made when someone asks for them, and as the page shows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypeAlias
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from camapp.errors import CamappError
from camapp.ui.frame.kept import Kept

MOST_KEPT = 200
MOST_BYTES = 512 * 2**20
GONE = "This result has expired. Make it again, then download it."

# What a file's content is, or makes it of the query of the request.
Content: TypeAlias = bytes | Path | Callable[[Mapping[str, str]], bytes]

# Encoding a picture of 50 million pixels takes a second and a few hundred megabytes.
_encoders = threading.BoundedSemaphore(2)

_MEDIA_TYPES = {".png": "image/png", ".json": "application/json", ".zip": "application/zip", ".csv": "text/csv"}


@dataclass(frozen=True)
class _Result:
    files: Mapping[str, Content]
    label: str
    size: int
    in_use: Callable[[], bool]


class Results:
    """Files by an unguessable token, of all visitors; see ``Kept`` for which go when there is no room."""

    def __init__(self) -> None:
        self._kept: Kept[_Result] = Kept(
            GONE,
            size_of=lambda result: result.size,
            most=MOST_KEPT,
            most_bytes=MOST_BYTES,
            in_use=lambda result: result.in_use(),
        )

    def keep_files(
        self,
        files: Mapping[str, Content],
        label: str = "",
        *,
        size: int = 0,
        owner: str = "",
        in_use: Callable[[], bool] = lambda: False,
    ) -> str:
        """Keep files for an hour, or until there are too many.

        Args:
            files: what is served at ``result/TOKEN/NAME``, by name: the content; a file, which whoever made it also
                deletes; or a function of the request's query, called at each download. A ``CamappError`` or
                ``ValueError`` of it is told to the visitor.
            label: what the names of the downloads begin with.
            size: bytes of memory that they hold.
            owner: whose they are, as ``owner_of`` says.
            in_use: whether they are still being made, and must stay.

        Returns:
            The token.
        """
        held = size + sum(len(content) for content in files.values() if isinstance(content, bytes))
        return self._kept.keep(_Result(dict(files), label, held, in_use), owner)

    def holds(self, token: str) -> bool:
        """Whether the files of a token are still kept."""
        return self._kept.get(token) is not None

    def route(self) -> Route:
        """``GET /result/TOKEN/FILE``: the files of a result."""
        return Route("/result/{token}/{file}", self._answer, methods=["GET"])

    def _answer(self, request: Request) -> Response:
        kept, file = self._kept.get(request.path_params["token"]), request.path_params["file"]
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
        if isinstance(content, bytes):
            return Response(content, media_type=media_type, headers=headers)
        try:
            with _encoders:
                made = content(request.query_params)
        except (CamappError, ValueError) as error:
            return PlainTextResponse(str(error), 400)
        return Response(made, media_type=media_type, headers=headers)
