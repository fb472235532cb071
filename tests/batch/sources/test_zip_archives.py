"""Zip archives: what Python's own module packs is read back, and nothing that an archive claims is believed."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.batch.sources import Reader, list_items
from camapp.batch.sources.zip_archives import read_member
from camapp.batch.sources.zip_directory import ZipDirectory
from camapp.errors import DecodeError, UsageError
from camapp.images.decode import Limits


def pack(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def only(path: Path, limits: Limits | None = None) -> bytes:
    with Reader(limits) as reader:
        return reader.read(next(list_items(path)))


def patch(path: Path, *changes: tuple[int, str, int]) -> None:
    """Change numbers in the first (and only) entry of an archive's directory: offset in the entry, format, value."""
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\1\2")
    for offset, form, value in changes:
        struct.pack_into(form, data, entry + offset, value)
    path.write_bytes(data)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda name: "\0" not in name), st.binary(max_size=300)),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    st.binary(max_size=40),
    st.binary(max_size=40).filter(lambda comment: b"PK" not in comment),
)
def test_the_directory_says_what_pythons_own_module_says(
    members: dict[str, bytes], method: int, before: bytes, comment: bytes
) -> None:
    file = io.BytesIO(before)
    file.seek(0, io.SEEK_END)
    with zipfile.ZipFile(file, "a", method) as archive:
        archive.comment = comment
        for name, content in members.items():
            try:
                archive.writestr(zipfile.ZipInfo(name), content, method)
            except UnicodeEncodeError:  # a lone surrogate
                continue
    with zipfile.ZipFile(file) as archive:
        expected = [(i.filename, i.file_size, i.compress_size, i.CRC, i.header_offset) for i in archive.infolist()]
        contents = [archive.read(info) for info in archive.infolist()]
    found = ZipDirectory(file)
    entries = list(found)
    assert [(e.name, e.size, e.packed, e.crc, e.offset) for e in entries] == expected
    assert [found.find(name) for name, *_ in expected] == entries
    assert [read_member(file, entry, Limits()) for entry in entries] == contents
    assert found.find("not there at all") is None


def test_members_are_listed_as_packed_and_read_back(tmp_path: Path) -> None:
    members = {"cat/b.jpg": b"B" * 70_000, "cat/more/a.png": b"A", "ü 猫.jpg": b"U", "n.txt": b"n", "A.JPG": b"a"}
    items = list(list_items(pack(tmp_path / "z.zip", members)))
    assert [(item.name, item.label) for item in items] == [
        ("cat/b.jpg", "cat"),
        ("cat/more/a.png", "cat"),
        ("ü 猫.jpg", None),
        ("A.JPG", None),
    ]
    with Reader() as reader:
        assert [reader.read(item) for item in reversed(items)] == [b"a", b"U", b"A", b"B" * 70_000]


def test_names_lead_nowhere_else_and_hidden_files_and_links_are_left_out(tmp_path: Path) -> None:
    names = ["../../up.jpg", "/abs/a.jpg", "C:\\dir\\b.jpg", "__MACOSX/._c.jpg", ".h/d.jpg", "folder.jpg/"]
    path = pack(tmp_path / "z.zip", dict.fromkeys(names, b"x"))
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("link.jpg")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    items = list(list_items(path))
    assert [item.name for item in items] == ["up.jpg", "abs/a.jpg", "dir/b.jpg"]
    with Reader() as reader:
        assert all(reader.read(item) == b"x" for item in items)


def test_of_two_members_of_one_name_the_last_counts(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"a.jpg": b"old"})
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.jpg", b"new")
    assert len(list(list_items(path))) == 1
    assert only(path) == b"new"


@pytest.mark.parametrize(("raw", "name"), [("ü.jpg".encode(), "ü.jpg"), (b"\x81.jpg", "ü.jpg")])
def test_names_without_the_flag_of_utf8_are_read_as_what_they_are(raw: bytes, name: str, tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"?" * (len(raw) - 4) + ".jpg": b"x"})
    path.write_bytes(path.read_bytes().replace(b"?" * (len(raw) - 4) + b".jpg", raw))
    assert next(list_items(path)).name == name
    assert only(path) == b"x"


def test_archives_beyond_the_old_limits_are_read(tmp_path: Path) -> None:
    path = tmp_path / "z.zip"
    with zipfile.ZipFile(path, "w") as archive, archive.open("a.jpg", "w", force_zip64=True) as member:
        member.write(b"A")
    # what Python writes only beyond 4 GiB: sizes and offset of the member, and the end of the directory, in Zip64
    data = path.read_bytes()
    start = data.index(b"PK\1\2")
    entry = bytearray(data[start : data.index(b"PK\5\6")])
    struct.pack_into("<LL", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<L", entry, 42, 0xFFFFFFFF)
    extra = struct.pack("<HH2x", 7, 2) + struct.pack("<HHQQQ", 1, 24, 1, 1, 0)
    struct.pack_into("<H", entry, 30, len(extra))
    entry = entry[: 46 + len("a.jpg")] + extra
    end = start + len(entry)
    end64 = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, len(entry), start)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4sHHHHLLH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path.write_bytes(data[:start] + entry + end64 + locator + last)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("a.jpg") == b"A"
    assert only(path) == b"A"


def test_a_size_past_the_limit_is_refused_before_anything_is_unpacked(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"bomb.jpg": b"\0" * 2_000_000})
    assert path.stat().st_size < 3000
    with pytest.raises(DecodeError, match=r"2,000,000 bytes .* the limit is 1,000,000"):
        only(path, Limits(max_bytes=1_000_000))
    assert len(only(path, Limits(max_bytes=2_000_000))) == 2_000_000  # flat pictures may pack as well as deflate can


def test_a_member_that_holds_more_than_it_claims_is_refused_on_the_way(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"bomb.jpg": b"\0" * 2_000_000})
    patch(path, (24, "<L", 5000))
    with pytest.raises(DecodeError, match="holds more than the 5,000 bytes it claims"):
        only(path)


def test_a_member_that_claims_more_than_deflate_can_pack_is_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"bomb.jpg": b"\0" * 100})
    patch(path, (24, "<L", 19_000_000))
    with pytest.raises(DecodeError, match="19,000,000 bytes cannot lie in"):
        only(path)
    patch(path, (24, "<L", 1000))
    with pytest.raises(DecodeError, match="100 of 1,000 bytes are there"):
        only(path)


def test_deflate_reaches_the_ratio_that_is_taken_for_its_most_and_not_more() -> None:
    size = 50_000_000
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = len(packer.compress(bytes(size)) + packer.flush())
    assert 1020 < size / packed <= 1032


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([(8, "<H", 1)], "encrypted"),
        ([(8, "<H", 0x41)], "encrypted"),
        ([(10, "<H", 12)], "packed with bzip2, which is not read"),
        ([(10, "<H", 77)], "packed with method 77"),
        ([(16, "<L", 1)], "checksum is wrong"),
        ([(42, "<L", 7)], "header is missing"),
        ([(42, "<L", 0x7FFFFFFF)], "header is missing"),
    ],
)
def test_members_that_cannot_be_read_say_why(changes: list[tuple[int, str, int]], says: str, tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"a.jpg": b"0123456789" * 20})
    patch(path, *changes)
    with pytest.raises(DecodeError, match=says):
        only(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_bytes_never_pass_for_a_picture(method: int, tmp_path: Path) -> None:
    content = bytes(range(256))
    path = pack(tmp_path / "z.zip", {"a.jpg": content}, method)
    data = path.read_bytes()
    start, end = 30 + len("a.jpg"), data.index(b"PK\1\2")
    for place in range(start, end, 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        with pytest.raises(DecodeError, match="damaged in its archive"):
            only(path)


def test_one_encrypted_member_stops_no_other(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"a.jpg": b"A", "b.jpg": b"B"})
    patch(path, (8, "<H", 1))
    first, second = list_items(path)
    with Reader() as reader:
        with pytest.raises(DecodeError, match="encrypted"):
            reader.read(first)
        assert reader.read(second) == b"B"


def test_archives_that_are_cut_off_or_none_are_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"a.jpg": b"A" * 200, "b.jpg": b"B"}, zipfile.ZIP_STORED)
    whole = path.read_bytes()
    for content in (b"", b"PK", whole[:-1], whole[:300], whole[150:], b"no archive" * 50):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=r"z\.zip cannot be read as \.zip"):
            list(list_items(path))
    path.write_bytes(whole.replace(b"PK\1\2", b"PK\1\3", 1))
    with pytest.raises(UsageError, match="directory is damaged at byte"):
        list(list_items(path))
    pack(path, {"n.txt": b""})
    with pytest.raises(UsageError, match="no picture in the archive"):
        list_items(path)


def test_names_whose_hashes_agree_are_not_taken_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(tmp_path / "z.zip", {"a.jpg": b"A"})
    with path.open("rb") as file:
        found = ZipDirectory(file)
        monkeypatch.setattr(found, "_place_of", lambda name: found._start)
        assert found.find("b.jpg") is None
        assert found.find("a.jpg") is not None
