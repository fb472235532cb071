"""Stores that URLs lead to, by fsspec: S3, Google Cloud Storage, Azure, web servers and whatever else it knows."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, unquote

from camapp.batch.sources.names import is_hidden
from camapp.batch.sources.ranges import Fetch, RangeFile, buffered
from camapp.batch.sources.store_failures import missing_package, named_store_failures, said_by, shown, unknown_protocol
from camapp.batch.sources.stores import Found, protocol_of, without_query
from camapp.errors import DecodeError, StoreError
from camapp.images.decode import Limits, check_bytes, read_bytes
from camapp.sources.folders import is_picture_name

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

# What stores call that which changes with an object's content; the first that is there counts.
_VERSIONS = ("etag", "md5hash", "content-md5", "content_md5", "checksum", "digest", "crc32c")
_TIMES = ("lastmodified", "last-modified", "last_modified", "mtime", "updated", "modified", "created")
# Where a listing is a walk from page to page, links may lead around for ever.
_DEEPEST = 32


def remote_store(url: str) -> RemoteStore:
    """The store of a URL, for this thread.

    Raises:
        StoreError: the protocol is not known, its package is missing, or it does not take such a URL.
    """
    import fsspec

    protocol = protocol_of(url)
    try:
        kind = fsspec.get_filesystem_class(protocol)
    except ValueError as error:
        raise unknown_protocol(url, protocol, fsspec.available_protocols()) from error
    except ImportError as error:
        raise missing_package(url, protocol) from error
    with named_store_failures(url):
        # fsspec keeps one file system a thread, and gives it again for the same host and options.
        system = fsspec.filesystem(protocol, **kind._get_kwargs_from_urls(url))
    return WebStore(system) if protocol in ("http", "https") else RemoteStore(system)


class RemoteStore:
    """A store of objects, or of files on another machine.

    Args:
        system: fsspec's way to it.
    """

    def __init__(self, system: AbstractFileSystem) -> None:
        self._system = system

    def info(self, path: str) -> Found | None:
        """What is at a URL; one request or two.

        Raises:
            StoreError: it cannot be asked.
        """
        with named_store_failures(path):
            try:
                facts = self._system.info(self._inside(path))
            except FileNotFoundError as error:
                if said_by(error) is not error:
                    raise  # it may well be there
                return None
        return self._found(path, posixpath.basename(without_query(path).rstrip("/")), facts)

    def pictures(self, folder: str) -> Iterator[Found]:
        """The pictures under a URL, from one listing, which also tells sizes and versions.

        Raises:
            StoreError: it cannot be listed.
        """
        with named_store_failures(folder):
            self._system.invalidate_cache()  # it would not see what came since
            listed = self._system.find(self._inside(folder), detail=True, **self._walking())
            found = list(self._under(_base(folder), listed))
        pictures = [one for one in found if is_picture_name(one.name) and not is_hidden(one.name)]
        # As folders are walked: a folder's files lie where its own name does, before "a.jpg" that of "a".
        return iter(sorted(pictures, key=lambda one: one.name.replace("/", "\0")))

    def matching(self, pattern: str) -> list[Found]:
        """What a pattern matches, as ``glob`` does on this machine: hidden files only where it names them.

        Raises:
            StoreError: it cannot be listed.
        """
        base = _fixed(pattern, self._is_open)
        with named_store_failures(pattern):
            self._system.invalidate_cache()
            hits: Any = self._system.glob(self._inside(pattern), detail=True)
            found = list(self._under(base, hits))
        hidden = is_hidden(pattern[len(base) :])
        return sorted((one for one in found if hidden or not is_hidden(one.name)), key=lambda one: one.name)

    def names(self, folder: str) -> list[str]:
        """The names in a folder."""
        with named_store_failures(folder):
            listed = self._system.ls(self._inside(folder), detail=False)
            return [posixpath.basename(str(name).rstrip("/")) for name in listed]

    def open(self, path: str, block: int) -> BinaryIO:
        """A file that is fetched in ranges.

        Raises:
            StoreError: it is not there, or its size is not told.
        """
        found = self.info(path)
        if found is None:
            raise StoreError(f"{shown(path)} is not there. Check the URL and its spelling.")
        if found.size is None:
            raise StoreError(f"The store does not say how large {shown(path)} is. Download it, and give the file.")
        return buffered(RangeFile(self._fetch(path, found.size), found.size, block, found.stamp))

    def read(self, path: str, size: int | None, limits: Limits) -> bytes:
        """All bytes of an object; those past the limit are not asked for.

        Raises:
            DecodeError: it is empty or too large.
            StoreError: it is gone, or cannot be read.
        """
        if size is None:
            found = self.info(path)
            if found is None:
                raise StoreError(f"{shown(path)} is not there. Check the URL and its spelling.")
            if found.is_folder:
                raise DecodeError(f"{shown(path)} is a folder, not a picture. Give one of the files in it.")
            size = found.size
        check_bytes(size or 0, limits.max_bytes)
        with named_store_failures(path):
            content = self._whole(path, size, limits) if size != 0 else b""  # no range of nothing can be asked for
        if not content:
            raise DecodeError(f"{shown(path)} is empty (0 bytes). Copy it there again.")
        check_bytes(len(content), limits.max_bytes)
        return content

    def join(self, folder: str, path: str) -> str:
        """A path that a list names, within the list's own bucket or host, which no ``..`` leaves."""
        scheme, _, rest = without_query(folder).partition("://")
        root, _, inside = rest.partition("/")
        parts: list[str] = []
        path = self._quoted(path)
        for part in (path if path.startswith("/") else f"{inside}/{path}").split("/"):
            if part == "..":
                parts = parts[:-1]
            elif part not in ("", "."):
                parts.append(part)
        return f"{scheme}://{'/'.join([root, *parts] if root else parts)}"

    def _inside(self, url: str) -> str:
        """A URL as the file system spells it."""
        return str(self._system._strip_protocol(url))

    def _is_open(self, part: str) -> bool:
        return re.search(r"[*?\[]", part) is not None

    def _quoted(self, path: str) -> str:
        return path

    def _unquoted(self, name: str) -> str:
        return name

    def _walking(self) -> dict[str, Any]:
        """Options of a listing that fsspec makes by walking: it leaves out what fails unless it is told (2026.9)."""
        from fsspec import AbstractFileSystem
        from fsspec.asyn import AsyncFileSystem

        kind: Any = type(self._system)
        if issubclass(kind, AsyncFileSystem):
            walks = kind._find is AsyncFileSystem._find
        else:
            walks = kind.find is AbstractFileSystem.find
        return {"maxdepth": _DEEPEST, "on_error": "raise"} if walks else {}

    def _under(self, base: str, listed: Mapping[str, Mapping[str, Any]]) -> Iterator[Found]:
        """What a listing holds under a URL, folders aside."""
        start = self._inside(base).rstrip("/") + "/"
        for place, facts in listed.items():
            if facts.get("type") != "directory" and place.startswith(start):
                name = place[len(start) :]
                if ".." not in name.split("/"):  # a page's link to elsewhere
                    yield self._found(base + name, self._unquoted(name), facts)

    def _found(self, path: str, name: str, facts: Mapping[str, Any]) -> Found:
        size = facts.get("size")
        size = size if isinstance(size, int) and facts.get("type") != "directory" else None
        return Found(path, name, size, _stamp(size, facts), facts.get("type") == "directory")

    def _fetch(self, path: str, size: int) -> Fetch:
        inside = self._inside(path)

        def fetch(start: int, stop: int) -> bytes:
            with named_store_failures(path):
                content: bytes = self._system.cat_file(inside, start=start, end=stop)
            if len(content) != stop - start:
                raise StoreError(f"{shown(path)} gave {len(content):,} bytes for {stop - start:,}: it changed.")
            return content

        return fetch

    def _whole(self, path: str, size: int | None, limits: Limits) -> bytes:
        content: bytes = self._system.cat_file(self._inside(path), start=0, end=limits.max_bytes + 1)
        return content


class WebStore(RemoteStore):
    """A web server: folders are its pages of links, names are quoted, and ranges and sizes are not to be relied on."""

    def info(self, path: str) -> Found | None:
        """What is at a URL; a page of links is a folder.

        Raises:
            StoreError: the server cannot be asked.
        """
        found = super().info(path)
        return found._replace(name=unquote(found.name)) if found else None

    def _inside(self, url: str) -> str:
        return url

    def _is_open(self, part: str) -> bool:
        return re.search(r"[*\[]", part) is not None  # "?" begins a query

    def _quoted(self, path: str) -> str:
        return quote(path)

    def _unquoted(self, name: str) -> str:
        return unquote(name)

    def _found(self, path: str, name: str, facts: Mapping[str, Any]) -> Found:
        page = facts.get("mimetype") == "text/html" and "." not in posixpath.basename(without_query(path))
        return super()._found(path, name, facts)._replace(is_folder=page)

    def _fetch(self, path: str, size: int) -> Fetch:
        """By the file that fsspec opens, since ``cat_file`` takes all that a server without ranges sends (2026.9)."""
        with named_store_failures(path):
            file: Any = self._system.open(path, "rb", cache_type="none", size=size)

        def fetch(start: int, stop: int) -> bytes:
            with named_store_failures(path):
                file.seek(start)
                content: bytes = file.read(stop - start)
            return content

        return fetch

    def _whole(self, path: str, size: int | None, limits: Limits) -> bytes:
        with self._system.open(path, "rb", block_size=0, size=size or 1) as stream:
            return read_bytes(stream, limits)


def _base(folder: str) -> str:
    """A folder's URL with one slash at its end, to which names are joined."""
    scheme, _, rest = folder.partition("://")
    rest = rest.rstrip("/")
    return f"{scheme}://{rest}/" if rest else f"{scheme}://"


def _fixed(pattern: str, is_open: Callable[[str], bool]) -> str:
    """The part of a pattern before the first folder or file that it leaves open."""
    scheme, _, rest = pattern.partition("://")
    parts = rest.split("/")[:-1]
    fixed = next((at for at, part in enumerate(parts) if is_open(part)), len(parts))
    return _base(f"{scheme}://{'/'.join(parts[:fixed])}")


def _stamp(size: int | None, facts: Mapping[str, Any]) -> str | None:
    """Size and version of an object; its time where the store has no versions, and None where it has neither."""
    plain = {name.lower(): value for name, value in facts.items() if value}
    known = next((str(plain[name]) for name in (*_VERSIONS, *_TIMES) if name in plain), None)
    return None if known is None and size is None else f"{size} {known}"
