"""gather: what was sent becomes pictures with names and labels, and nothing an archive claims is believed."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from camapp.batch.sources.gathered import GatherLimits, gather, inert
from camapp.errors import UsageError
from camapp.images.decode import Limits


def pack(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "unpacked"
    made.mkdir()
    return made


def test_folders_of_an_archive_are_labels_and_members_become_numbered_files(tmp_path: Path, folder: Path) -> None:
    archive = pack(tmp_path / "a.zip", {"hat/1.jpg": b"one", "hat/notes.txt": b"no", "shoe/2.PNG": b"two"})
    gathered = gather([archive], folder)
    assert [(one.name, one.label) for one in gathered.pictures] == [("hat/1.jpg", "hat"), ("shoe/2.PNG", "shoe")]
    assert [one.path.read_bytes() for one in gathered.pictures] == [b"one", b"two"]
    assert sorted(path.name for path in folder.iterdir()) == ["00000", "00001"]
    assert gathered.labelled


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["train/hat/1.jpg", "train/shoe/1.jpg"], ["hat", "shoe"]),
        (["a/b/hat/1.jpg", "a/b/hat/2.jpg"], ["hat", "hat"]),
        (["hat/1.jpg", "hat/2.jpg"], ["hat", "hat"]),
        (["set/hat/1.jpg", "set/loose.jpg"], ["set", "set"]),
        (["1.jpg", "hat/2.jpg"], [None, "hat"]),
        (["train/hat/1.jpg", "test/hat/1.jpg"], ["train", "test"]),
    ],
)
def test_a_folder_that_all_lie_in_is_no_label_where_one_below_tells(
    tmp_path: Path, folder: Path, names: list[str], labels: list[str | None]
) -> None:
    archive = pack(tmp_path / "a.zip", dict.fromkeys(names, b"x"))
    assert [one.label for one in gather([archive], folder).pictures] == labels


def test_files_and_archives_together_have_unique_names(tmp_path: Path, folder: Path) -> None:
    single = tmp_path / "1.jpg"
    single.write_bytes(b"single")
    archives = [pack(tmp_path / f"{number}.zip", {"1.jpg": b"%d" % number}) for number in (1, 2)]
    gathered = gather([single, *archives], folder)
    assert [one.name for one in gathered.pictures] == ["1.jpg", "1.jpg (2)", "1.jpg (3)"]
    assert [one.path.read_bytes() for one in gathered.pictures] == [b"single", b"1", b"2"]
    assert not gathered.labelled


def test_names_that_climb_out_stay_texts(tmp_path: Path, folder: Path) -> None:
    archive = pack(tmp_path / "a.zip", {"../../hat/1.jpg": b"x", "/etc/2.jpg": b"x", "C:\\3.jpg": b"x"})
    gathered = gather([archive], folder)
    assert [one.name for one in gathered.pictures] == ["hat/1.jpg", "etc/2.jpg", "3.jpg"]
    assert {one.path.parent for one in gathered.pictures} == {folder}


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("=SUM(A1).jpg", "'=SUM(A1).jpg"),
        ("@x", "'@x"),
        ("-1/a.jpg", "'-1/a.jpg"),
        ("a\nb\u202egpj.exe", "a_b_gpj.exe"),
        ("héllo <b>.jpg", "héllo <b>.jpg"),
    ],
)
def test_names_are_one_line_and_no_formula(text: str, safe: str) -> None:
    assert inert(text) == safe


def test_what_is_hidden_or_a_link_is_left_out(tmp_path: Path, folder: Path) -> None:
    archive = pack(tmp_path / "a.zip", {"__MACOSX/._1.jpg": b"x", ".hidden/2.jpg": b"x", "3.jpg": b"x"})
    with zipfile.ZipFile(archive, "a") as file:
        link = zipfile.ZipInfo("link.jpg")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        file.writestr(link, "/etc/passwd")
    assert [one.name for one in gather([archive], folder).pictures] == ["3.jpg"]


def test_a_member_that_is_encrypted_or_lies_is_left_out_with_its_reason(tmp_path: Path, folder: Path) -> None:
    archive = pack(tmp_path / "a.zip", {"locked.jpg": b"x", "good.jpg": b"y"})
    data = bytearray(archive.read_bytes())
    struct.pack_into("<H", data, data.index(b"PK\1\2") + 8, 1)
    archive.write_bytes(data)
    gathered = gather([archive], folder)
    assert [one.name for one in gathered.pictures] == ["good.jpg"]
    ((name, reason),) = gathered.failures
    assert name == "locked.jpg"
    assert "encrypted" in reason


def test_an_archive_of_nothing_but_failures_is_refused_with_the_first_reason(tmp_path: Path, folder: Path) -> None:
    archive = pack(tmp_path / "a.zip", {"1.jpg": bytes(2000)})
    with pytest.raises(UsageError, match=r"None of the 1 picture.*1\.jpg: .*2,000 bytes"):
        gather([archive], folder, GatherLimits(picture=Limits(max_bytes=1000)))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (GatherLimits(pictures=2), "3 pictures are more than the 2"),
        (GatherLimits(total_bytes=2_000_000), "3 MB of pictures are more than the 2 MB"),
        (GatherLimits(members=2), "more than 2 members"),
    ],
)
def test_more_than_the_limits_is_refused_before_anything_is_unpacked(
    tmp_path: Path, folder: Path, limits: GatherLimits, said: str
) -> None:
    archive = pack(tmp_path / "a.zip", {f"{number}.jpg": bytes(2**20) for number in range(3)})
    with pytest.raises(UsageError, match=said):
        gather([archive], folder, limits)
    assert not list(folder.iterdir())


def test_members_that_share_their_bytes_are_refused(tmp_path: Path, folder: Path) -> None:
    archive = pack(tmp_path / "a.zip", {"1.jpg": bytes(range(256)) * 8, "2.jpg": b"x"})
    data = bytearray(archive.read_bytes())
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    struct.pack_into("<L", data, second + 20, len(data))
    archive.write_bytes(data)
    with pytest.raises(UsageError, match="its members overlap"):
        gather([archive], folder)


def test_limits_count_over_all_files(tmp_path: Path, folder: Path) -> None:
    archives = [pack(tmp_path / f"{number}.zip", {"1.jpg": b"x", "2.jpg": b"x"}) for number in range(2)]
    with pytest.raises(UsageError, match="4 pictures are more than the 3"):
        gather(archives, folder, GatherLimits(pictures=3))


@pytest.mark.parametrize(
    ("content", "said"), [(b"no archive at all", r"a\.zip cannot be read as \.zip"), (b"", r"cannot be read as \.zip")]
)
def test_no_archive_is_named_as_such(tmp_path: Path, folder: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        gather([tmp_path / "a.zip"], folder)


def test_nothing_and_archives_without_pictures_are_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match="No files were given"):
        gather([], folder)
    with pytest.raises(UsageError, match=r"no picture in the archive a\.zip"):
        gather([pack(tmp_path / "a.zip", {"notes.txt": b"x"})], folder)
