"""Fingerprints change when a source does, and only then."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from camapp.batch.records import Item
from camapp.batch.sources import Fingerprint, fingerprint_of, list_items


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("cat/a.jpg", "cat/b.jpg", "dog/c.jpg"):
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
        os.utime(path, ns=(10**18, 10**18))
    return tmp_path / "set"


def of(source: Path) -> str:
    return fingerprint_of(list_items(source))


def test_it_stays_when_nothing_changed_or_all_was_moved(folder: Path) -> None:
    before = of(folder)
    (folder / "cat" / "a.jpg").read_bytes()
    (folder / "notes.txt").write_text("no picture")
    assert of(folder) == before
    moved = folder.rename(folder.with_name("moved"))
    assert of(moved) == before


def test_it_grows_item_by_item(folder: Path) -> None:
    fingerprint = Fingerprint()
    digests = [fingerprint.hexdigest()]
    for item in list_items(folder):
        fingerprint.add(item)
        digests.append(fingerprint.hexdigest())
    assert digests[-1] == of(folder)
    assert len(set(digests)) == 4


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "written", "touched", "relabelled"])
def test_it_changes_with_the_files(change: str, folder: Path) -> None:
    before = of(folder)
    first = folder / "cat" / "a.jpg"
    if change == "added":
        shutil.copy2(first, folder / "cat" / "d.jpg")
    elif change == "removed":
        first.unlink()
    elif change == "renamed":
        first.rename(folder / "cat" / "aa.jpg")
    elif change == "written":
        first.write_bytes(b"22")
        os.utime(first, ns=(10**18, 10**18))
    elif change == "touched":
        os.utime(first, ns=(10**18, 10**18 + 1))
    else:
        (folder / "cat").rename(folder / "lion")
    assert of(folder) != before


def test_it_changes_with_labels_targets_and_order() -> None:
    one, two = Item("a", "/none/a", label="x"), Item("b", "/none/b")
    prints = [
        [one, two],
        [two, one],
        [one],
        [replace(one, label="y"), two],
        [replace(one, label=None), two],
        [replace(one, label=None, target="x"), two],
        [replace(one, label="x\0"), two],
        [one, one],
    ]
    assert len({fingerprint_of(items) for items in prints}) == len(prints)


def test_it_changes_with_the_archive_and_with_files_that_vanish(tmp_path: Path) -> None:
    path = tmp_path / "z.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jpg", b"1")
        archive.writestr("b.jpg", b"2")
    items = list(list_items(path))
    before = fingerprint_of(items)
    assert fingerprint_of(items) == before
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("n.txt", b"3")
    changed = fingerprint_of(items)
    path.unlink()
    assert len({before, changed, fingerprint_of(items)}) == 3


def test_it_is_the_same_digest_everywhere() -> None:
    """A change of this value makes every unfinished export refuse to resume."""
    expected = hashlib.sha256(rb"('\xfc.jpg', 'cat', None, None)").hexdigest()
    assert fingerprint_of([Item("ü.jpg", "/none/ü.jpg", label="cat")]) == expected
