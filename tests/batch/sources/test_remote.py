"""Sources in a store are what the same sources in a folder are: names, labels, order, bytes."""

from __future__ import annotations

import os
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from camapp.batch.records import Item
from camapp.batch.sources import Reader, fingerprint_of, list_items
from camapp.errors import DecodeError, StoreError, UsageError
from camapp.images.decode import Limits
from tests.batch.sources.stores import CountedStore, put

NAMES = [
    "a.jpg",
    "a/z.webp",
    "a/b/c.jpg",
    "b.PNG",
    "two words.jpg",
    "ü 猫.jpg",
    "#1.jpg",
    "50%.jpg",
    ".h/x.jpg",
    "n.txt",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files like pictures, and lists, tables and archives of them."""
    root = tmp_path / "set"
    for number, name in enumerate(NAMES):
        path = root / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"{name} ".encode() * (number + 1))
    (root / "lists").mkdir()
    (root / "lists" / "l.txt").write_text("../photos/a.jpg\n# none\n../photos/two words.jpg\n../photos/gone.jpg\n")
    rows = [("../photos/a/z.webp", "x", 3), ("../photos/#1.jpg", "y", 4), ("../photos/a.jpg", "x", 5)]
    (root / "lists" / "t.csv").write_text("path,label,target\n" + "".join(f"{p},{la},{t}\n" for p, la, t in rows))
    table = pa.table({"path": [row[0] for row in rows], "label": [row[1] for row in rows]})
    pq.write_table(table, root / "lists" / "t.parquet")
    with zipfile.ZipFile(root / "z.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for name in [*NAMES, "../up.jpg"]:
            packed.writestr(name, f"{name} ".encode() * 50)
    with tarfile.open(root / "t.tar", "w") as archive:
        for name in NAMES:
            archive.add(root / "photos" / name, name)
    return root


@pytest.fixture(params=["memory", "counted"])
def url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    CountedStore.reset()
    root = f"{request.param}://bucket/set"
    put(folder, root)
    yield root
    system = fsspec.filesystem(request.param)
    system.store.clear()
    system.pseudo_dirs[:] = [""]


SOURCES = ["photos", "photos/*.jpg", "photos/**/*.jpg", "lists/l.txt", "lists/t.csv", "lists/t.parquet"]
SOURCES += ["z.zip", "t.tar", "*.zip", "photos/a.jpg", "photos/two words.jpg"]


def told(items: Iterator[Item]) -> list[tuple[object, ...]]:
    return [(item.name, item.label, item.target, item.member, item.offset) for item in items]


def contents(items: Iterator[Item]) -> list[bytes | type[Exception]]:
    with Reader() as reader:
        return [read_or_fail(reader, item) for item in items]


def read_or_fail(reader: Reader, item: Item) -> bytes | type[Exception]:
    try:
        return reader.read(item)
    except (DecodeError, StoreError):
        return DecodeError


@pytest.mark.parametrize("source", SOURCES)
def test_it_lists_and_reads_what_the_folder_does(source: str, folder: Path, url: str) -> None:
    here, there = list(list_items(str(folder / source))), list(list_items(f"{url}/{source}"))
    assert told(iter(here)) == told(iter(there))
    assert contents(iter(here)) == contents(iter(there))
    assert all(item.path.startswith(url) for item in there)


def test_several_sources_of_both_kinds_follow_each_other(folder: Path, url: str) -> None:
    both = list(list_items([folder / "photos", f"{url}/photos", f"{url}/gone.jpg"]))
    count = len(both) // 2
    assert [item.name for item in both[count:-1]] == [f"{item.name} (2)" for item in both[:count]]
    assert both[-1].name == "gone.jpg"


def test_lists_of_this_machine_may_name_urls_and_paths(folder: Path, url: str, tmp_path: Path) -> None:
    listed = tmp_path / "mixed.csv"
    listed.write_text(f"path,label\n{url}/photos/a.jpg,x\n{folder}/photos/a.jpg,y\n{url}/photos/#1.jpg,\n")
    items = list(list_items(listed))
    assert [item.label for item in items] == ["x", "y", None]
    assert items[0].name == "bucket/set/photos/a.jpg"
    assert contents(iter(items)) == [b"a.jpg ", b"a.jpg ", b"#1.jpg " * 7]
    assert [item.length for item in items] == [6, None, 49]


def test_names_of_urls_lead_nowhere_else_and_keep_no_secret(tmp_path: Path) -> None:
    listed = tmp_path / "urls.txt"
    listed.write_text("memory://user:word@bucket/../../etc/a.jpg\nhttp://127.0.0.1:9/b%2F..%2Fc.jpg?sig=secret#x\n")
    assert [item.name for item in list_items(listed)] == ["bucket/etc/a.jpg", "127.0.0.1:9/b/c.jpg"]


def test_urls_of_files_are_paths(folder: Path, tmp_path: Path) -> None:
    listed = tmp_path / "urls.txt"
    listed.write_text(f"file://{folder}/photos/a.jpg\n")
    assert [item.path for item in list_items(listed)] == [str(folder / "photos" / "a.jpg")]
    (folder / "photos" / "loop").symlink_to(folder / "photos")
    for source in SOURCES:
        assert list(list_items(f"file://{folder}/{source}")) == list(list_items(folder / source))


@pytest.mark.parametrize(
    "named", ["file:///etc/passwd", "local:///etc/passwd", "sftp://host/a.jpg", "git://repo/a.jpg"]
)
def test_a_list_from_elsewhere_names_no_file_of_this_machine(named: str, url: str) -> None:
    with fsspec.open(f"{url}/bad.txt", "w") as file:
        file.write(f"{named}\n")
    with pytest.raises(StoreError, match="which a list from elsewhere may not"):
        list_items(f"{url}/bad.txt")


def test_paths_in_a_list_from_elsewhere_stay_in_its_bucket(url: str) -> None:
    with fsspec.open(f"{url}/bad.txt", "w") as file:
        file.write("/etc/passwd.jpg\n../../../../etc/passwd.jpg\n~/x.jpg\n")
    root = url.removesuffix("/set")
    assert [item.path for item in list_items(f"{url}/bad.txt")] == [
        f"{root}/etc/passwd.jpg",
        f"{root}/etc/passwd.jpg",
        f"{url}/~/x.jpg",
    ]


@pytest.mark.parametrize("source", ["photos", "lists/t.csv", "z.zip", "t.tar", "photos/*.jpg"])
def test_the_fingerprint_changes_when_an_object_does_and_only_then(source: str, url: str) -> None:
    before = fingerprint_of(list_items(f"{url}/{source}"))
    assert fingerprint_of(list_items(f"{url}/{source}")) == before
    time.sleep(0.002)  # the store in memory knows versions by their time
    target = f"{url}/{source}" if source[1] == "." else f"{url}/photos/a.jpg"
    with fsspec.open(target, "rb") as file:
        content = file.read()
    with fsspec.open(target, "wb") as file:
        file.write(content + bytes(source[1] != "."))
    if target.endswith(".zip"):
        with fsspec.open(target, "wb") as file, zipfile.ZipFile(file, "w") as packed:
            packed.writestr("a.jpg", b"other")
    assert fingerprint_of(list_items(f"{url}/{source}")) != before


def test_a_listing_tells_sizes_and_versions_without_a_request_for_each(folder: Path) -> None:
    CountedStore.reset()
    put(folder, "counted://bucket/set")
    CountedStore.calls.clear()
    items = list(list_items("counted://bucket/set/photos"))
    assert [item.length for item in items] == [(folder / "photos" / item.name).stat().st_size for item in items]
    fingerprint_of(items)
    assert CountedStore.calls == {"info": 1, "find": 1}
    with Reader() as reader:
        for item in items:
            reader.read(item)
    assert CountedStore.calls == {"info": 1, "find": 1, "cat_file": len(items)}


def test_members_are_read_in_one_request_each_and_the_directory_once(folder: Path) -> None:
    CountedStore.reset()
    with zipfile.ZipFile(folder / "z.zip", "w") as packed:
        for number in range(40):
            packed.writestr(f"{number:02}.jpg", os.urandom(200_000))
    put(folder, "counted://bucket/set")
    items = list(list_items("counted://bucket/set/z.zip"))
    CountedStore.calls.clear()
    CountedStore.fetched.clear()
    barrier = threading.Barrier(4)

    def read(part: int) -> int:
        with Reader() as reader:
            barrier.wait()
            return sum(len(reader.read(item)) for item in items[part::4])

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(read, range(4))) == 40 * 200_000
    assert CountedStore.calls["info"] == 4
    assert CountedStore.calls["cat_file"] == 40 + 1  # the end of the archive, where its directory is
    assert sum(CountedStore.fetched) < 40 * 201_000 + (1 << 20)


def test_too_large_objects_and_members_are_refused_before_they_are_fetched(url: str) -> None:
    with fsspec.open(f"{url}/photos/big.jpg", "wb") as file:
        file.write(bytes(5000))
    with fsspec.open(f"{url}/lists/big.txt", "w") as file:
        file.write("../photos/big.jpg\n")
    with fsspec.open(f"{url}/b.zip", "wb") as file, zipfile.ZipFile(file, "w") as packed:
        packed.writestr("big.jpg", os.urandom(5000))
    items = [*list_items(f"{url}/photos/big.jpg"), *list_items(f"{url}/lists/big.txt"), *list_items(f"{url}/b.zip")]
    items.append(Item("big.jpg", f"{url}/photos/big.jpg"))  # of a plan, whose listing told no size
    CountedStore.fetched.clear()
    for item in items:
        with (
            Reader(Limits(max_bytes=4999)) as reader,
            pytest.raises(DecodeError, match=r"5,000 bytes .*limit is 4,999"),
        ):
            reader.read(item)
        with Reader(Limits(max_bytes=5000)) as reader:
            assert len(reader.read(item)) == 5000
    if url.startswith("counted"):
        assert sum(size for size in CountedStore.fetched if size >= 5000) < 7 * 6000


def test_an_object_that_grew_since_it_was_listed_is_not_fetched_past_the_limit() -> None:
    CountedStore.reset()
    with fsspec.open("counted://bucket/a.jpg", "wb") as file:
        file.write(bytes(10))
    (item,) = list_items("counted://bucket/a.jpg")
    with fsspec.open("counted://bucket/a.jpg", "wb") as file:
        file.write(bytes(100_000))
    with Reader(Limits(max_bytes=50)) as reader, pytest.raises(DecodeError, match="limit is 50"):
        reader.read(item)
    assert CountedStore.fetched == [51]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda fs, url: fs.rm(f"{url}/photos/a.jpg"), r"set/photos/a\.jpg is not there"),
        (lambda fs, url: fs.pipe_file(f"{url}/photos/a.jpg", b""), r"empty"),
    ],
)
def test_what_vanished_since_fails_alone_and_says_where(
    change: Callable[[fsspec.AbstractFileSystem, str], None], says: str, url: str
) -> None:
    items = list(list_items(f"{url}/photos"))
    change(fsspec.filesystem(url.partition(":")[0]), url)
    with Reader() as reader:
        for item in items:
            if item.name != "a.jpg":
                assert reader.read(item)
            else:
                with pytest.raises((DecodeError, StoreError), match=says):
                    reader.read(item)


def test_damaged_archives_and_empty_folders_are_refused_as_on_this_machine(url: str) -> None:
    for name, says in (("d.zip", r"cannot be read as \.zip"), ("d.tar", r"no \.tar without compression")):
        with fsspec.open(f"{url}/{name}", "wb") as file:
            file.write(b"no archive" * 60)
        with pytest.raises(UsageError, match=says):
            list_items(f"{url}/{name}")
    with pytest.raises(UsageError, match=r"There is nothing at \".*://bucket/set/gone\""):
        list_items(f"{url}/gone")
    with pytest.raises(UsageError, match="No file matches"):
        list_items(f"{url}/photos/*.gif")
    fsspec.filesystem(url.partition(":")[0]).pipe_file(f"{url}/x.tar.gz", b"x")
    with pytest.raises(UsageError, match="compressed as a whole"):
        list_items(f"{url}/x.tar.gz")
    with fsspec.open(f"{url}/shards/0.tar", "wb") as file:
        file.write(b"x")
    with pytest.raises(UsageError, match=r'no picture in the folder .*give "\w+://bucket/set/shards/\*\.tar"'):
        list_items(f"{url}/shards")
