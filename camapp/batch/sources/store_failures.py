"""What goes wrong between here and a store, in words: whatever its package raises becomes a StoreError."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from camapp.errors import CamappError, StoreError

# What to install for the protocols that fsspec knows but does not bring.
PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss", "adl"), "adlfs"),
    **dict.fromkeys(("http", "https"), "aiohttp"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    **dict.fromkeys(("oci", "ocilake"), "ocifs"),
    "hf": "huggingface_hub",
    "oss": "ossfs",
    "smb": "smbprotocol",
    "webdav": "webdav4",
}
_LONGEST_REASON = 200


def shown(url: str) -> str:
    """A URL as messages show it: without a password, and without a query, which may be a signature."""
    url = re.sub(r"^([^:/?#]+://)[^/?#]*@", r"\1", url)
    return re.sub(r"\?.*", "?...", url, flags=re.DOTALL)


def said_by(error: Exception) -> BaseException:
    """What kept a file from being found: of the web, fsspec says that none is there whatever went wrong (2026.9)."""
    cause = error.__cause__
    if not isinstance(error, FileNotFoundError) or cause is None or getattr(cause, "status", None) in (404, 410):
        return error
    of_the_web = isinstance(cause, OSError | TimeoutError) or type(cause).__module__.startswith("aiohttp")
    return cause if of_the_web else error


@contextmanager
def named_store_failures(url: str) -> Iterator[None]:
    """Turns whatever a block raises as it talks to a store into a ``StoreError`` that names the URL."""
    try:
        yield
    except CamappError:
        raise
    except Exception as error:  # each package has classes of its own
        raise StoreError(f"{shown(url)} {_reason(error, url)}") from error


def missing_package(url: str, protocol: str) -> StoreError:
    """The package of a protocol is not installed."""
    package = PACKAGES.get(protocol)
    cure = f"pip install {package}" if package else f"Install a package that reads {protocol}:// through fsspec"
    return StoreError(f"{shown(url)} needs a package that is not installed. {cure}.")


def unknown_protocol(url: str, protocol: str, known: list[str]) -> StoreError:
    """Nobody reads such URLs."""
    likely = [name for name in ("s3", "gs", "az", "https", "hf", "sftp", "file") if name in known]
    return StoreError(
        f'{shown(url)} begins with "{protocol}://", which is not known. Known are {", ".join(likely)} and others that '
        "fsspec lists; a path of this machine begins with none."
    )


def _reason(error: Exception, url: str) -> str:
    first = said_by(error)
    status = getattr(first, "status", None) or getattr(first, "code", None)
    kind = type(first).__name__
    if status in (401, 403) or isinstance(first, PermissionError) or "Credentials" in kind:
        return f"may not be read: access is refused ({_told(first, url)}). Check your credentials and its permissions."
    if status in (404, 410) or isinstance(first, FileNotFoundError):
        return "is not there. Check the URL and its spelling."
    if isinstance(first, NotADirectoryError | IsADirectoryError):
        return "is a folder, not a file. Give one of the files in it."
    if "range requests" in str(first):
        return "cannot be read in parts: the server gives whole files only. Download it, and give the file."
    if isinstance(first, TimeoutError | ConnectionError) or "Connect" in kind or "Timeout" in kind:
        return f"cannot be reached ({_told(first, url)}). Check the network and the name of the store; then go on."
    return f"could not be read ({_told(first, url)}). Check the URL and the store."


def _told(error: BaseException, url: str) -> str:
    """What an error says, in one line and without what a URL may hide."""
    text = " ".join(str(error).replace(url, shown(url)).split())
    text = re.sub(r"\?\S+", "?...", re.sub(r"://[^/\s?#]*@", "://", text))
    kind = type(error).__name__
    return f"{kind}: {text[:_LONGEST_REASON]}" if text else kind
