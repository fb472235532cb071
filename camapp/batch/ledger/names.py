"""Names of outputs: the source's folders kept, safe on every file system, no two alike on any."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from functools import lru_cache

# File systems take 255 bytes a name, and some 1,024 a path; the rest is left for what is appended and put before.
LONGEST_COMPONENT_BYTES = 200
LONGEST_FOLDERS_BYTES = 500
# What an export calls its own files, at the top of its folder.
OWN_STEMS = ("manifest", "run")

# What some file system refuses, and signs that would break a line or a terminal.
_UNSAFE = re.compile('[\x00-\x1f\x7f-\x9f<>:"/\\\\|?*\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]')
# Numbers are no ending: frame.0001 and frame.0002 are two pictures.
_ENDING = re.compile(r"(?<=.)\.([A-Za-z][A-Za-z0-9]{0,15})$")
# Windows knows these as devices, also with an ending.
_DEVICES = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"]
    + [f"{port}{n}" for port in ("COM", "LPT") for n in "0123456789¹²³"]
)
_VARIATION_SELECTORS = re.compile("[\ufe00-\ufe0f]")


class Stems:
    """Gives each input the name of its outputs, without an ending, in the order of the source.

    A stem depends on the names before it only, so that a source that grew at its end keeps all stems. Of a name given
    out, 8 bytes are kept: a million names take some 100 MB. Should two keys ever have the same 8 bytes (once in 40
    million exports of a million), one input gets a number that it did not need.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._next_number: dict[int, int] = {}
        for stem in OWN_STEMS:
            self._is_free(stem)

    def stem(self, name: str) -> str:
        """The stem of an input's outputs, relative to the export's folder.

        Folders are kept and the ending is dropped (``a/b.jpg`` becomes ``a/b``). What some file system refuses becomes
        ``_``; names of Windows' devices get a ``_`` in front; dots and spaces at either end go; a folder named like a
        file (``b.png``) gets ``_`` for the dot, so that it is never in the way of one. A component of more than 200
        bytes is cut at a character and ends in 8 digits of its hash; folders of more than 500 bytes together become
        one. Letters stay as they are, composed (NFC).

        Args:
            name: of the input: its path in the source, with forward slashes.

        Returns:
            The stem, with forward slashes. Where it is taken, ignoring case, Unicode normalisation and invisible
            signs, it ends in ``_2``, ``_3`` ...: the first that is free.
        """
        folders, _, last = name.rpartition("/")
        folder = _safe_folders(folders)
        base = _safe(_ENDING.sub("", last)) if last else "_"
        stem = folder + base
        if self._is_free(stem):
            return stem
        key = _hash(stem)
        number = self._next_number.get(key, 2)
        while not self._is_free(stem := folder + _fitted(base, LONGEST_COMPONENT_BYTES, f"_{number}")):
            number += 1
        self._next_number[key] = number + 1
        return stem

    def _is_free(self, stem: str) -> bool:
        """Whether nobody has the stem yet; somebody has from now on."""
        key = _hash(stem)
        if key in self._taken:
            return False
        self._taken.add(key)
        return True


@lru_cache(maxsize=4096)
def _safe_folders(folders: str) -> str:
    """Folders as they may be called, each with a slash behind it; empty for none."""
    parts = [_fitted(_device_free(_ENDING.sub(r"_\1", _clean(part)))) for part in folders.split("/") if part]
    safe = "/".join(parts)
    if len(safe.encode()) > LONGEST_FOLDERS_BYTES:
        safe = _fitted(safe.replace("/", "_"))
    return f"{safe}/" if safe else ""


def _safe(component: str) -> str:
    return _fitted(_device_free(_clean(component)))


def _clean(component: str) -> str:
    return _UNSAFE.sub("_", unicodedata.normalize("NFC", component)).strip(" .") or "_"


def _device_free(component: str) -> str:
    return f"_{component}" if component.partition(".")[0].rstrip(" ").upper() in _DEVICES else component


def _fitted(text: str, limit: int = LONGEST_COMPONENT_BYTES, ending: str = "") -> str:
    """``text + ending`` in ``limit`` bytes; where it is cut, 8 digits of its hash stand for the rest."""
    encoded = text.encode()
    if len(encoded) + len(ending) <= limit:
        return text + ending
    mark = f"_{hashlib.sha256(encoded).hexdigest()[:8]}"
    return encoded[: limit - len(mark) - len(ending)].decode(errors="ignore") + mark + ending


def _hash(stem: str) -> int:
    """The same for all names that some file system takes for one."""
    key = stem.lower() if stem.isascii() else _folded(stem)
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")


def _folded(stem: str) -> str:
    # Upper case first: file systems that compare upper case take the dotless i for an i, which casefold does not.
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", stem).upper().casefold())
    # HFS+ does not see joiners and direction marks at all.
    seen = "".join(sign for sign in folded if unicodedata.category(sign) != "Cf")
    return _VARIATION_SELECTORS.sub("", seen)
