"""Stores to try sources with: a folder copied into memory, a store that counts and fails, a web server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


def put(folder: Path, url: str) -> None:
    """Copy a folder's files to a URL."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with fsspec.open(f"{url}/{path.relative_to(folder).as_posix()}", "wb") as file:
                file.write(path.read_bytes())


class CountedStore(MemoryFileSystem):
    """A store in memory, ``counted://``, that counts requests and fails where it is told to."""

    protocol = "counted"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    calls: ClassVar[Counter[str]] = Counter()
    fetched: ClassVar[list[int]] = []
    failures: ClassVar[dict[str, Exception]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("counted://", "memory://"))

    @classmethod
    def reset(cls) -> None:
        """As new."""
        for one in (cls.store, cls.calls, cls.fetched, cls.failures):
            one.clear()

    def info(self, path: str, **options: Any) -> Any:
        self._called("info", path)
        return super().info(path, **options)

    def find(self, path: str, **options: Any) -> Any:
        self._called("find", path)
        paths = [place for place in self.store if place.startswith(self._strip_protocol(path) + "/")]
        return {place: {**MemoryFileSystem.info(self, place), "ETag": f"v{self.store[place].size}"} for place in paths}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        self._called("cat_file", path)
        content = super().cat_file(path, start=start, end=end)
        self.fetched.append(len(content))
        return content

    def _called(self, what: str, path: str) -> None:
        self.calls[what] += 1
        for part, error in self.failures.items():
            if part in path:
                raise error


fsspec.register_implementation("counted", CountedStore, clobber=True)


class _Handler(SimpleHTTPRequestHandler):
    """Files of a folder, with or without ranges; what is named "secret" is refused."""

    def __init__(self, *args: Any, ranges: bool, asked: list[str], **options: Any) -> None:
        self._ranges, self._asked = ranges, asked
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        self._asked.append(f"GET {self.path}")
        if "secret" in self.path:
            self.send_error(403)
            return
        path = Path(self.translate_path(self.path))
        wanted = self.headers.get("Range")
        if not (self._ranges and wanted and path.is_file()):
            super().do_GET()
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        whole = path.read_bytes()
        part = whole[int(first) : int(last) + 1 if last else None]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(whole)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def do_HEAD(self) -> None:
        self._asked.append(f"HEAD {self.path}")
        if "secret" in self.path:
            self.send_error(403)
            return
        super().do_HEAD()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def web_server(folder: Path, *, ranges: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Serve a folder on this machine; gives its URL, and the list of requests, which grows."""
    asked: list[str] = []
    handler = partial(_Handler, ranges=ranges, asked=asked, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()
