"""Inputs in a .tar archive, WebDataset shards included: where each lies, and the labels beside them."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from camapp.batch.records import Item
from camapp.batch.sources.names import first_folder, is_hidden, name_of
from camapp.batch.sources.stores import is_url, open_archive, open_from_its_start
from camapp.batch.sources.tables import LABEL_COLUMNS
from camapp.batch.sources.tar_headers import TarEntry, ordinary_files
from camapp.errors import UsageError
from camapp.sources.folders import is_picture_name

# Files of a WebDataset sample that may hold its label, the surest first, and how large they may be.
_LABELS = (".cls", ".json")
_LONGEST_LABEL = 1 << 20
# More files of one key are no sample; their labels are not waited for.
_LARGEST_SAMPLE = 64


def in_tar(path: str) -> Iterator[Item]:
    """The pictures of an uncompressed archive, in its order, with the places of their bytes.

    In a WebDataset shard, where ``KEY.jpg``, ``KEY.cls`` and ``KEY.json`` follow each other, the label is what
    ``KEY.cls`` says, or the "label" (or "class", "class_name", "category") of ``KEY.json``; elsewhere it is the first
    folder. Hidden files, links and devices are left out; ``..`` and leading slashes are dropped from names.

    Args:
        path: of the archive.

    Raises:
        UsageError: it is no such archive, is damaged or cut off, or holds no picture.
        StoreError: it lies where no parts of it can be read.
    """
    item = None
    try:
        with open_from_its_start(path) as file:
            for found in _items(path, file):
                if item is None and is_url(path):
                    _try_a_part(path, found)
                item = found
                yield item
    except OSError as error:
        raise UsageError(f"The archive {path} cannot be read ({error.strerror}). Check the file.") from error
    if item is None:
        raise UsageError(f"There is no picture in the archive {path} (no file that ends in .jpg, .png, .webp, ...).")


def _try_a_part(path: str, item: Item) -> None:
    """Find out from the first picture whether a server gives parts of files, and not from each of a million."""
    with open_archive(path) as archive:
        archive.seek(item.offset or 0)
        archive.read(1)


def _items(path: str, file: BinaryIO) -> Iterator[Item]:
    """The pictures, held back until their sample is complete: labels may come after them."""
    key = ""
    sample: list[Item] = []
    labels: dict[str, str] = {}
    for member in _files(path, file):
        folder, name = os.path.split(member.name)
        stem, dot, ending = name.partition(".")
        if f"{folder}/{stem}" != key or len(sample) == _LARGEST_SAMPLE:
            yield from _labelled(sample, labels)
            key, sample, labels = f"{folder}/{stem}", [], {}
        if is_picture_name(name):
            sample.append(_item(path, member))
        elif (dot + ending).lower() in _LABELS and (label := _label(file, member)):
            labels[(dot + ending).lower()] = label
    yield from _labelled(sample, labels)


def _files(path: str, file: BinaryIO) -> Iterator[TarEntry]:
    """The ordinary files of an archive that are not hidden."""
    try:
        for entry in ordinary_files(file):
            if not is_hidden(entry.name):
                yield entry
    except (tarfile.TarError, EOFError, UnicodeError) as error:
        raise UsageError(
            f"The archive {path} is no .tar without compression, or is damaged: {error}. Copy it again, or pack it "
            "anew (tar -cf)."
        ) from error


def _item(path: str, member: TarEntry) -> Item:
    name = name_of(member.name)
    if member.sparse:  # its bytes do not lie together; reading says so
        return Item(name, path, member.name, label=first_folder(name))
    return Item(name, path, member.name, member.offset, member.size, first_folder(name))


def _label(file: BinaryIO, member: TarEntry) -> str | None:
    if member.size > _LONGEST_LABEL or member.sparse:
        return None
    file.seek(member.offset)
    content = file.read(member.size)
    if member.name.lower().endswith(".cls"):
        return content.decode("utf-8-sig", "backslashreplace").strip() or None
    try:
        facts = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(facts, dict):
        return None
    for name in LABEL_COLUMNS:
        value = facts.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value).encode("utf-8", "backslashreplace").decode().strip() or None
    return None


def _labelled(sample: list[Item], labels: dict[str, str]) -> Iterator[Item]:
    label = next((labels[ending] for ending in _LABELS if ending in labels), None)
    for item in sample:
        yield item if label is None else replace(item, label=label)
