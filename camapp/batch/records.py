"""What flows through an export: one input of the source, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["done", "failed"]


@dataclass(frozen=True)
class Item:
    """One input of a source.

    Args:
        name: what manifests and outputs call it: its path inside the source, with forward slashes; unique in a run.
        path: the file, or the archive that it lies in; a path or a URL.
        member: its name inside the archive; None for a file of its own.
        offset: of an uncompressed archive's member, where its bytes begin in ``path``; None elsewhere.
        length: how many bytes it has there, or as an object of its own in a store that tells; None elsewhere.
        label: the subfolder, or what the table says; None where there is none.
        target: the class to explain that the table names; None where there is none.
        stamp: what tells this version of an object in a store, or of its archive there, from others; only of inputs
            that were just listed.
    """

    name: str
    path: str
    member: str | None = None
    offset: int | None = None
    length: int | None = None
    label: str | None = None
    target: str | None = None
    stamp: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Guess:
    """A class that the model found likely.

    Args:
        index: of the class.
        label: its name.
        probability: from 0 to 1.
    """

    index: int
    label: str
    probability: float


@dataclass(frozen=True)
class Row:
    """What became of one input: one row of the manifest.

    Args:
        number: of the input in the source, from 0.
        item: the input.
        status: ``"done"`` or ``"failed"``.
        reason: why it failed; empty where it did not.
        width: of the picture as it is shown, in pixels; 0 where it could not be read.
        height: the same.
        notes: what was done to read it (``"turned as its EXIF says"``), and reasons for blank maps.
        predictions: the likeliest classes, best first.
        explained: the targets that were explained, in the order of the files.
        files: what was written, relative to the export's folder, with forward slashes.
        shard: the number of the shard that it was done in, from 0.
        seconds: how long it took; the only figure that differs from run to run.
    """

    number: int
    item: Item
    status: Status
    reason: str = ""
    width: int = 0
    height: int = 0
    notes: tuple[str, ...] = ()
    predictions: tuple[Guess, ...] = ()
    explained: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    shard: int = 0
    seconds: float = field(default=0.0, compare=False)
