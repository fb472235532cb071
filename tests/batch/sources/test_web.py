"""Sources on a web server: a page of links, lists, and archives of which parts are fetched."""

from __future__ import annotations

import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from camapp.batch.records import Item
from camapp.batch.sources import Reader, fingerprint_of, list_items
from camapp.errors import DecodeError, StoreError, UsageError
from camapp.images.decode import Limits
from tests.batch.sources.stores import web_server

pytest.importorskip("aiohttp", reason="fsspec reads http:// with it")

NAMES = ["a.jpg", "a/z.webp", "a/b/c.jpg", "b.PNG", "two words.jpg", "ü 猫.jpg", "#1.jpg", "50%.jpg", "q?.jpg", "n.txt"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    for number, name in enumerate(NAMES):
        path = root / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{name} ".encode() * (number + 1))
    (root / "l.txt").write_text("photos/a.jpg\nphotos/two words.jpg\nphotos/#1.jpg\nphotos/50%.jpg\nphotos/q?.jpg\n")
    (root / "t.csv").write_text("path,label,target\nphotos/a/z.webp,x,3\nphotos/ü 猫.jpg,y,4\n")
    with zipfile.ZipFile(root / "z.zip", "w") as packed, tarfile.open(root / "t.tar", "w") as archive:
        for number in range(8):
            (tmp_path / "one.jpg").write_bytes(os.urandom(150_000))
            packed.write(tmp_path / "one.jpg", f"x/{number}.jpg")
            archive.add(tmp_path / "one.jpg", f"x/{number}.jpg")
    return root


def told(items: list[Item]) -> list[tuple[object, ...]]:
    return [(item.name, item.label, item.target, item.member, item.offset) for item in items]


def contents(items: list[Item]) -> list[bytes]:
    with Reader() as reader:
        return [reader.read(item) for item in items]


@pytest.mark.parametrize("source", ["photos/", "photos", "photos/*.jpg", "l.txt", "t.csv", "z.zip", "t.tar", "*.zip"])
def test_it_lists_and_reads_what_the_folder_does(source: str, folder: Path) -> None:
    here = list(list_items(folder / source if "*" not in source else str(folder / source)))
    with web_server(folder) as (url, asked):
        there = list(list_items(f"{url}/{source}"))
        assert told(there) == told(here)
        assert contents(there) == contents(here)
        before = fingerprint_of(list_items(f"{url}/{source}"))
        assert fingerprint_of(list_items(f"{url}/{source}")) == before
        changed = folder / source if source[1] == "." and source[0] in "zt" else folder / "photos" / "a.jpg"
        if source not in ("t.csv", "*.zip"):
            os.utime(changed, (1e9, 1e9))
            assert fingerprint_of(list_items(f"{url}/{source}")) != before
    assert not any("n.txt" in line for line in asked)


def test_pictures_may_have_a_query_and_their_names_do_not(folder: Path) -> None:
    with web_server(folder) as (url, _):
        items = list(list_items([f"{url}/photos/a.jpg?sig=1", f"{url}/t.csv?sig=2", f"{url}/z.zip?sig=3"]))
        assert [item.name for item in items[:4]] == ["a.jpg", "photos/a/z.webp", "photos/ü 猫.jpg", "x/0.jpg"]
        assert contents(items)[0] == b"a.jpg "


def test_of_archives_only_what_is_read_is_fetched(folder: Path) -> None:
    with web_server(folder) as (url, asked):
        items = list(list_items(f"{url}/z.zip"))
        asked.clear()
        assert len(contents(items[:2])[1]) == 150_000
        assert asked[0].startswith("HEAD")
        assert len([line for line in asked if line.startswith("GET")]) == 3  # the directory, and one a member


def test_a_server_without_ranges_gives_pictures_and_lists_and_says_so_of_archives(folder: Path) -> None:
    with web_server(folder, ranges=False) as (url, _):
        assert contents(list(list_items(f"{url}/l.txt"))) == contents(list(list_items(folder / "l.txt")))
        for archive in ("z.zip", "t.tar"):
            named = rf"{archive} cannot be read in parts: the server gives whole files only"
            with pytest.raises(StoreError, match=named):
                list_items(f"{url}/{archive}")


def test_one_picture_that_is_refused_or_gone_stops_no_other(folder: Path) -> None:
    (folder / "photos" / "secret.jpg").write_bytes(b"x")
    with web_server(folder) as (url, _):
        (folder / "m.txt").write_text("photos/secret.jpg\nphotos/gone.jpg\nphotos/a.jpg\n")
        secret, gone, fine = list_items(f"{url}/m.txt")
        with Reader() as reader:
            with pytest.raises(StoreError, match=r"photos/secret\.jpg may not be read: access is refused .*403"):
                reader.read(secret)
            with pytest.raises(StoreError, match=r"photos/gone\.jpg is not there"):
                reader.read(gone)
            assert reader.read(fine) == b"a.jpg "
        with pytest.raises(StoreError, match=r"secret\.jpg may not be read"):
            list_items(f"{url}/photos/secret.jpg")
        with pytest.raises(UsageError, match=r"There is nothing at .*gone\.csv"):
            list_items(f"{url}/gone.csv")
    with Reader() as reader, pytest.raises(StoreError, match=r"a\.jpg cannot be reached"):
        reader.read(fine)
    with pytest.raises(StoreError, match=r"t\.csv cannot be reached"):
        list_items(f"{url}/t.csv")


def test_a_picture_past_the_limit_is_not_fetched(folder: Path) -> None:
    with web_server(folder) as (url, asked), Reader(Limits(max_bytes=100_000)) as reader:
        (folder / "photos" / "big.jpg").write_bytes(bytes(100_001))
        for item in list_items([f"{url}/photos/big.jpg", f"{url}/z.zip"]):
            asked.clear()
            with pytest.raises(DecodeError, match="limit is 100,000"):
                reader.read(item)
            assert not any("big" in line for line in asked)


def test_a_subfolder_that_may_not_be_listed_is_named(folder: Path) -> None:
    (folder / "photos" / "secret").mkdir()
    with web_server(folder) as (url, _), pytest.raises(StoreError, match=r"photos/ may not be read: .*403"):
        list_items(f"{url}/photos/")
