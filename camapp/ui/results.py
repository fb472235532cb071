"""Results kept for a while, so that their files are made when someone asks for them, and as the viewer shows them."""

from __future__ import annotations

import io
import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from camapp.errors import UsageError
from camapp.explanation import Explanation
from camapp.files import safe_name, safe_stem
from camapp.images.render import ALPHA, heatmap_16bit, png_bytes
from camapp.ui.environment import KEPT_SECONDS

MOST_KEPT = 200
MOST_BYTES = 512 * 2**20
GONE = "This result has expired. Explain the picture again, then download it."

# Encoding a picture of 50 million pixels takes a second and a few hundred megabytes.
_encoders = threading.BoundedSemaphore(2)


@dataclass(frozen=True)
class _Kept:
    explanation: Explanation
    since: float

    @property
    def bytes(self) -> int:
        return self.explanation.picture.rgb.nbytes


class Results:
    """Explanations by an unguessable token; the oldest make room for new ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def keep(self, explanation: Explanation) -> str:
        """Keep a result for an hour, or until there are too many; its token."""
        token = secrets.token_urlsafe(16)
        with self._lock:
            self._kept[token] = _Kept(explanation, time.monotonic())
            self._make_room()
        return token

    def find(self, token: str) -> Explanation | None:
        """The result of a token, or None where it is no longer kept."""
        with self._lock:
            self._make_room()
            kept = self._kept.get(token)
        return kept.explanation if kept else None

    def route(self) -> Route:
        """``GET /result/TOKEN/FILE``: the files of a result."""
        return Route("/result/{token}/{file}", self._answer, methods=["GET"])

    def _answer(self, request: Request) -> Response:
        explanation = self.find(request.path_params["token"])
        make = _MAKERS.get(request.path_params["file"])
        if make is None:
            return PlainTextResponse("There is no such file.", 404)
        if explanation is None:
            return PlainTextResponse(GONE, 404)
        try:
            with _encoders:
                content = make(explanation, request)
        except (UsageError, ValueError) as error:
            return PlainTextResponse(str(error), 400)
        name = f"{safe_stem(explanation.picture.name)}-{safe_name(explanation.classes[0].label)[:40]}"
        file = request.path_params["file"]
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(f'{name}.{file}')}",
            "cache-control": "private, no-store",
        }
        return Response(content, media_type=_MEDIA_TYPES[file.rpartition(".")[2]], headers=headers)

    def _make_room(self) -> None:
        """Drop results past their time, and the oldest while there are too many; the newest stays until its time."""
        total = sum(kept.bytes for kept in self._kept.values())
        while self._kept:
            oldest = next(iter(self._kept.values()))
            too_old = time.monotonic() - oldest.since > KEPT_SECONDS
            too_many = len(self._kept) > MOST_KEPT or total > MOST_BYTES
            if not too_old and not (too_many and len(self._kept) > 1):
                break
            self._kept.popitem(last=False)
            total -= oldest.bytes
        if self._kept and self._timer is None:
            self._timer = threading.Timer(KEPT_SECONDS / 60, self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _sweep(self) -> None:
        """Run every minute while there are results: they go also when nobody asks for anything any more."""
        with self._lock:
            self._timer = None
            self._make_room()


def _overlay(explanation: Explanation, request: Request) -> bytes:
    look = request.query_params
    painted = explanation.overlay(
        0,
        alpha=float(look.get("opacity", ALPHA)),
        colormap=look.get("colors", "viridis"),
        hide_below=float(look.get("threshold", 0.0)),
    )
    return png_bytes(np.asarray(painted))


def _heatmap(explanation: Explanation, request: Request) -> bytes:
    return png_bytes(heatmap_16bit(explanation.heatmap(0)))


def _values(explanation: Explanation, request: Request) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, explanation.heatmap(0))
    return buffer.getvalue()


def _summary(explanation: Explanation, request: Request) -> bytes:
    return json.dumps(explanation.to_dict(), indent=2, ensure_ascii=False).encode()


_MAKERS: dict[str, Callable[[Explanation, Request], bytes]] = {
    "overlay.png": _overlay,
    "heatmap.png": _heatmap,
    "npy": _values,
    "json": _summary,
}
_MEDIA_TYPES = {"png": "image/png", "npy": "application/octet-stream", "json": "application/json"}
