"""What somebody gives: pictures or one archive, within limits, with nothing believed that an archive claims."""

from __future__ import annotations

import stat
import struct
import zipfile
from pathlib import Path

import pytest

from camapp.batch.live import GivenLimits, pictures_given
from camapp.batch.live.given import NO_PICTURE
from camapp.batch.sources import Reader
from camapp.errors import DecodeError, UsageError


def pack(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def claim(path: Path, size: int) -> None:
    """Let the directory say that its first member unpacks to so many bytes."""
    data = bytearray(path.read_bytes())
    struct.pack_into("<L", data, data.index(b"PK\1\2") + 24, size)
    path.write_bytes(data)


def test_files_keep_their_order_and_the_names_that_their_owner_gave_them(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    given = pictures_given([(tmp_path / "p1.jpg", "photo (1).jpg"), tmp_path / "b.png", tmp_path / "x" / "b.png"])
    assert [item.name for item in given.items] == ["photo (1).jpg", "b.png", "b.png (2)"]
    assert given.called == {"photo (1).jpg": "photo (1).jpg", "b.png": "b.png", "b.png (2)": "b.png"}
    assert given.items[2].path == str(tmp_path / "x" / "b.png")


def test_a_name_never_leads_out_of_a_folder(tmp_path: Path) -> None:
    names = ["../../up.jpg", "/etc/passwd", "C:\\dir\\b.jpg", "..\\..\\up.jpg", "a\u202egpj\n.exe"]
    given = pictures_given([(tmp_path / "a.jpg", name) for name in names])
    assert [item.name for item in given.items] == ["up.jpg", "etc/passwd", "dir/b.jpg", "up.jpg (2)", "a_gpj_.exe"]


def test_of_an_archive_the_pictures_are_taken_and_what_is_none_is_refused_by_itself(tmp_path: Path) -> None:
    members = {"a/": b"", "a/cat.JPG": b"c", "a/notes.txt": b"n", "inner.zip": b"PK", "b.png": b"b"}
    members |= {"__MACOSX/a/._cat.JPG": b"m", "a/.hidden.png": b"h", "Thumbs.db": b"t", "a/desktop.ini": b"d"}
    path = pack(tmp_path / "z.zip", members)
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("link.jpg")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    given = pictures_given([path])
    assert [item.name for item in given.items] == ["a/cat.JPG", "a/notes.txt", "inner.zip", "b.png"]
    assert given.refused == {"a/notes.txt": NO_PICTURE, "inner.zip": NO_PICTURE}
    with Reader() as reader:
        assert reader.read(given.items[0]) == b"c"


def test_members_that_lead_elsewhere_are_read_from_the_archive_under_a_tame_name(tmp_path: Path) -> None:
    given = pictures_given([pack(tmp_path / "z.zip", {"../../etc/up.jpg": b"u", "/abs.jpg": b"a"})])
    assert [item.name for item in given.items] == ["etc/up.jpg", "abs.jpg"]
    with Reader() as reader:
        assert [reader.read(item) for item in given.items] == [b"u", b"a"]


def test_of_two_members_of_one_name_the_last_counts(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"a.jpg": b"old"})
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.jpg", b"new")
    given = pictures_given([path])
    with Reader() as reader:
        assert [reader.read(item) for item in given.items] == [b"new"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "There is no picture yet"),
        ([f"{number}.jpg" for number in range(1000)], "1,000 files: that is more than the 50 of one batch"),
        (["a.jpg", "z.zip"], "not 2 files with z.zip among them"),
        (["z.zip", "y.ZIP"], "one .zip of them"),
    ],
)
def test_what_is_no_batch_is_refused(files: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pictures_given(files)


@pytest.mark.parametrize(
    ("members", "limits", "said"),
    [
        ({"a.txt": b"x"}, GivenLimits(), "no picture in z.zip"),
        ({f"{n}.jpg": b"x" for n in range(51)}, GivenLimits(), "Z.zip holds 51 pictures: that is more than the 50"),
        ({f"{n}.txt": b"x" for n in range(30)}, GivenLimits(members=20), "z.zip has more than 20 members"),
        ({"a.bmp": bytes(3 << 20)}, GivenLimits(unpacked=2 << 20), "come to 3 MiB unpacked; the limit is 2 MiB"),
        ({"a.bmp": bytes(3 << 20)}, GivenLimits(surely_fine=1 << 20), "claim to unpack to 3,145,728"),
    ],
)
def test_an_archive_past_a_limit_is_refused_by_its_directory(
    members: dict[str, bytes], limits: GivenLimits, said: str, tmp_path: Path
) -> None:
    path = pack(tmp_path / "upload.zip", members)
    with pytest.raises(UsageError, match=said):
        pictures_given([(path, "z.zip")], limits)


@pytest.mark.parametrize("content", [b"", b"PK\3\4 and no more", b"<html>not found</html>"])
def test_what_is_no_archive_is_refused_under_the_name_that_its_owner_knows(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "u.zip").write_bytes(content)
    with pytest.raises(UsageError, match=r"^mine\.zip cannot be read as \.zip") as caught:
        pictures_given([(tmp_path / "u.zip", "mine.zip")])
    assert str(tmp_path) not in str(caught.value)


def test_members_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"a.jpg": bytes(range(256)) * 40}, zipfile.ZIP_STORED)
    data = path.read_bytes()
    at = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    entries = b"".join(data[at:end].replace(b"a.jpg", b"%c.jpg" % letter) for letter in b"abcd")
    tail = struct.pack("<4s4x2H2LH", b"PK\5\6", 4, 4, len(entries), at, 0)
    path.write_bytes(data[:at] + entries + tail)
    with pytest.raises(UsageError, match="its members overlap"):
        pictures_given([path])


def test_a_bomb_whose_directory_lies_is_stopped_while_it_is_read(tmp_path: Path) -> None:
    path = pack(tmp_path / "z.zip", {"a.bmp": bytes(40 << 20)})
    assert path.stat().st_size < 50_000
    claim(path, 1000)
    given = pictures_given([path])
    with Reader() as reader, pytest.raises(DecodeError, match="holds more than the 1,000 bytes it claims"):
        reader.read(given.items[0])


def test_a_bomb_whose_directory_is_honest_is_one_bad_picture(tmp_path: Path) -> None:
    given = pictures_given([pack(tmp_path / "z.zip", {"a.bmp": bytes(40 << 20)})])
    with Reader() as reader, pytest.raises(DecodeError, match="limit is 20,971,520 bytes"):
        reader.read(given.items[0])
