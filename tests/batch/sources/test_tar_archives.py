"""Tar archives: places of members, labels of WebDataset samples, and what is left out or refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from camapp.batch.sources import Reader, list_items
from camapp.errors import DecodeError, UsageError


def pack(path: Path, members: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def labels(path: Path) -> dict[str, str | None]:
    return {item.name: item.label for item in list_items(path)}


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_read_from_their_places_in_the_archives_order(form: int, tmp_path: Path) -> None:
    long = "d" * 90 + "/" + "x" * 96 + ".jpg"
    members = {"./cat/b.jpg": b"B" * 700, "cat/a.jpg": b"A", long: b"L" * 512, "ü 猫\n.png": b"U" * 513, "n.txt": b""}
    path = pack(tmp_path / "t.tar", members, form)
    items = list(list_items(path))
    assert [item.name for item in items] == ["cat/b.jpg", "cat/a.jpg", long, "ü 猫\n.png"]
    assert [item.label for item in items] == ["cat", "cat", "d" * 90, None]
    with Reader() as reader:
        assert [reader.read(item) for item in items] == list(members.values())[:4]
    whole = path.read_bytes()
    assert all(whole[item.offset : item.offset + item.length] == members[item.member] for item in items)  # type: ignore[operator,index]


def test_names_lead_nowhere_else_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    members = {"../../up.jpg": b"1", "/abs/a.jpg": b"2", "a\\b.jpg": b"3", ".h.jpg": b"4", "x/.git/b.jpg": b"5"}
    items = list(list_items(pack(tmp_path / "t.tar", members)))
    assert [(item.name, item.member) for item in items] == [
        ("up.jpg", "../../up.jpg"),
        ("abs/a.jpg", "/abs/a.jpg"),
        ("a/b.jpg", "a\\b.jpg"),
    ]
    with Reader() as reader:
        assert [reader.read(item) for item in items] == [b"1", b"2", b"3"]


def test_links_devices_and_folders_are_no_inputs(tmp_path: Path) -> None:
    path = pack(tmp_path / "t.tar", {"a.jpg": b"A"})
    with tarfile.open(path, "a") as archive:
        kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)
        for number, kind in enumerate(kinds):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    assert list(labels(path)) == ["a.jpg"]


def test_labels_of_webdataset_samples_come_before_or_after_their_pictures(tmp_path: Path) -> None:
    members = {
        "000.cls": b"7\n",
        "000.jpg": b"x",
        "001.jpg": b"x",
        "001.json": b'{"label": "cat", "width": 3}',
        "002.left.jpg": b"x",
        "002.json": b'{"class": 4, "label": null}',
        "002.right.png": b"x",
        "002.CLS": "Löwe".encode(),
        "003.jpg": b"x",
        "003.json": b"[broken",
        "004.jpg": b"x",
        "004.json": b'["label"]',
        "005.jpg": b"x",
    }
    assert labels(pack(tmp_path / "t.tar", members)) == {
        "000.jpg": "7",
        "001.jpg": "cat",
        "002.left.jpg": "Löwe",
        "002.right.png": "Löwe",
        "003.jpg": None,
        "004.jpg": None,
        "005.jpg": None,
    }


def test_a_label_belongs_to_the_samples_folder_and_wins_over_its_name(tmp_path: Path) -> None:
    members = {"a/0.jpg": b"x", "a/0.cls": b"one", "b/0.jpg": b"x", "b/0.txt": b"caption"}
    assert labels(pack(tmp_path / "t.tar", members)) == {"a/0.jpg": "one", "b/0.jpg": "b"}


def test_pictures_that_only_share_the_part_before_a_dot_are_all_listed(tmp_path: Path) -> None:
    members = {f"photo.{number:03}.jpg": b"x" for number in range(200)}
    assert list(labels(pack(tmp_path / "t.tar", members))) == list(members)


def test_a_sparse_member_fails_alone(tmp_path: Path) -> None:
    path = pack(tmp_path / "t.tar", {"a.jpg": b"A", "b.jpg": b"B" * 512}, tarfile.GNU_FORMAT)
    data = bytearray(path.read_bytes())
    header = data[1024:1536]
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:410] = b"%011o\0%011o\0" % (512, 512)  # the one piece: where it goes, how long it is
    header[483:495] = b"%011o\0" % 1024  # how long the file is with its hole
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    data[1024:1536] = header
    path.write_bytes(data)
    first, second = list_items(path)
    with Reader() as reader:
        assert reader.read(first) == b"A"
        with pytest.raises(DecodeError, match="stored in pieces"):
            reader.read(second)


@pytest.mark.parametrize("cut", [600, 1024 + 100, 1024 + 512 + 30])
def test_an_archive_that_is_cut_off_is_refused(cut: int, tmp_path: Path) -> None:
    path = pack(tmp_path / "t.tar", {"a.jpg": b"A" * 500, "b.jpg": b"B" * 500})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(UsageError, match=r"t\.tar is no \.tar without compression, or is damaged"):
        list(list_items(path))


def test_an_archive_with_a_damaged_header_in_the_middle_does_not_end_there_silently(tmp_path: Path) -> None:
    path = pack(tmp_path / "t.tar", {"a.jpg": b"A", "b.jpg": b"B", "c.jpg": b"C"})
    data = bytearray(path.read_bytes())
    data[2048 + 3] ^= 0xFF
    path.write_bytes(data)
    items = list_items(path)
    assert next(items).name == "a.jpg"
    with pytest.raises(UsageError, match=r"damaged header at byte 2,048"):
        list(items)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is damaged"), (b"no archive" * 100, "is damaged"), (b"\0" * 10240, "no picture in the archive")],
)
def test_what_is_no_archive_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.tar").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        list_items(tmp_path / "t.tar")


@pytest.mark.parametrize("name", ["t.tar.gz", "t.tgz", "t.tar.zst", "t.7z"])
def test_archives_compressed_as_a_whole_are_refused_with_the_remedy(name: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / name, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.jpg"))
    for source in (tmp_path / name, tmp_path / f"*{name[1:]}"):
        with pytest.raises(UsageError, match=r"compressed as a whole.*Unpack it"):
            list_items(source)
