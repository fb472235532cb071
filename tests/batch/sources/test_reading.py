"""Reading inputs: their bytes, or why not."""

from __future__ import annotations

import os
import pickle
import tarfile
import zipfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from camapp.batch.records import Item
from camapp.batch.sources import Reader, list_items
from camapp.errors import DecodeError
from camapp.images.decode import Limits


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    """The same picture as a file, in a zip and in a tar."""
    (tmp_path / "folder").mkdir()
    picture = tmp_path / "folder" / "a.jpg"
    picture.write_bytes(b"picture" * 100)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(picture, "a.jpg")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(picture, "a.jpg")
    return {"folder": tmp_path / "folder", "zip": tmp_path / "a.zip", "tar": tmp_path / "a.tar"}


def test_a_picture_reads_the_same_wherever_it_lies(sources: dict[str, Path]) -> None:
    with Reader() as reader:
        for item in list_items(list(sources.values())):
            assert reader.read(item) == b"picture" * 100


def test_names_of_one_picture_in_several_sources_stay_apart(sources: dict[str, Path]) -> None:
    assert [item.name for item in list_items(list(sources.values()))] == ["a.jpg", "a.jpg (2)", "a.jpg (3)"]


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
def test_a_size_past_the_limit_is_refused(kind: str, sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    item = next(list_items(sources[kind]))
    with Reader(Limits(max_bytes=700)) as reader:
        assert len(reader.read(item)) == 700
    with Reader(Limits(max_bytes=699)) as reader, pytest.raises(DecodeError, match=r"700 bytes .*limit is 699"):
        reader.read(item)
    monkeypatch.setenv("CAMAPP_MAX_BYTES", "10")
    with Reader() as reader, pytest.raises(DecodeError, match="limit is 10"):
        reader.read(item)


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
def test_what_is_gone_or_no_file_is_refused(kind: str, sources: dict[str, Path]) -> None:
    item = next(list_items(sources[kind]))
    os.unlink(item.path)
    with Reader() as reader:
        with pytest.raises(DecodeError, match="No such file"):
            reader.read(item)
        os.mkfifo(item.path)  # opening it would wait for ever
        with pytest.raises(DecodeError, match=r"not a file|no longer a file"):
            reader.read(item)
        os.unlink(item.path)
        os.mkdir(item.path)
        with pytest.raises(DecodeError, match=r"a folder|no longer a file"):
            reader.read(item)


def test_a_path_that_none_can_have_is_refused() -> None:
    with Reader() as reader, pytest.raises(DecodeError, match="could not be read"):
        reader.read(Item("a", "a\0b.jpg"))


def test_empty_pictures_are_refused_everywhere(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a.jpg").touch()
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr("a.jpg", b"")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("a.jpg"))
    with Reader() as reader:
        for item in list_items([tmp_path / "f", tmp_path / "a.zip", tmp_path / "a.tar"]):
            with pytest.raises(DecodeError, match="empty"):
                reader.read(item)


def test_archives_that_changed_after_they_were_listed_are_noticed(sources: dict[str, Path]) -> None:
    tar, packed = next(list_items(sources["tar"])), next(list_items(sources["zip"]))
    sources["tar"].write_bytes(sources["tar"].read_bytes()[: (tar.offset or 0) + 88])
    with zipfile.ZipFile(sources["zip"], "w") as archive:
        archive.writestr("b.jpg", b"x")
    with Reader() as reader:
        with pytest.raises(DecodeError, match="cut off: 88 of 700 bytes"):
            reader.read(tar)
        with pytest.raises(DecodeError, match="no longer in its archive"):
            reader.read(packed)
    sources["zip"].write_bytes(b"damaged")
    with Reader() as reader, pytest.raises(DecodeError, match="archive cannot be read"):
        reader.read(packed)


def test_archives_stay_open_but_not_too_many(tmp_path: Path) -> None:
    for number in range(20):
        with zipfile.ZipFile(tmp_path / f"{number:02}.zip", "w") as packed:
            packed.writestr("a.jpg", f"{number}")
    items = list(list_items(tmp_path / "*.zip"))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with Reader() as reader:
        assert [reader.read(item) for item in items + items] == [f"{number}".encode() for number in range(20)] * 2
        if before:
            assert len(os.listdir("/proc/self/fd")) - before <= 8
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_reader_can_be_pickled_and_keeps_its_limits(sources: dict[str, Path]) -> None:
    item = next(list_items(sources["zip"]))
    with Reader(Limits(max_bytes=900)) as reader:
        reader.read(item)
        copy = pickle.loads(pickle.dumps(reader))
    assert copy.limits == Limits(max_bytes=900)
    with copy:
        assert copy.read(item) == b"picture" * 100


def test_workers_read_with_readers_sent_to_them(sources: dict[str, Path]) -> None:
    items = list(list_items([sources["zip"], sources["tar"]]))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert list(pool.map(Reader().read, items)) == [b"picture" * 100] * 2
