"""Headers of tar archives, against Python's own module."""

from __future__ import annotations

import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.batch.sources.tar_headers import TarEntry, ordinary_files

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
KINDS = [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE]
members = st.tuples(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8),
    st.sampled_from([1, 12, 40]),  # how often the name is repeated: some fit no plain header
    st.sampled_from(KINDS),
    st.binary(max_size=600),
    st.sampled_from([0, 1.5]),  # a time of parts of a second takes a pax header
    st.sampled_from([{}, {"comment": "a=b\n c"}, {"VENDOR.key": "ü"}]),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(members, max_size=6), st.sampled_from(FORMATS), st.sampled_from([{}, {"comment": "all"}]))
def test_files_lie_where_pythons_own_module_finds_them(
    packed: list[tuple[str, int, bytes, bytes, float, dict[str, str]]], form: int, everywhere: dict[str, str]
) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form, pax_headers=everywhere) as archive:
        for name, repeats, kind, content, time, facts in packed:
            member = tarfile.TarInfo(name * repeats)
            member.type, member.mtime, member.pax_headers = kind, time, facts
            is_folder = kind == tarfile.AREGTYPE and name.endswith("/")  # of the oldest kind, which has no content
            member.size = len(content) if kind in tarfile.REGULAR_TYPES and not is_folder else 0
            try:
                archive.addfile(member, io.BytesIO(content) if member.size else None)
            except ValueError:  # too long a name for the oldest form
                continue
        archive.addfile(tarfile.TarInfo("last"))  # tarfile refuses an archive of nothing but facts for all
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        expected = [(one.name, one.offset_data, one.size) for one in archive if one.isreg()]
    assert [(one.name, one.offset, one.size) for one in ordinary_files(file)] == expected


def test_the_file_may_be_read_elsewhere_meanwhile() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in "abc":
            archive.addfile(tarfile.TarInfo(name))
    found = []
    for entry in ordinary_files(file):
        found.append(entry)
        file.seek(7)
    assert found == [TarEntry("a", 512, 0), TarEntry("b", 1024, 0), TarEntry("c", 1536, 0)]


@pytest.mark.parametrize("size", [b"\xff" * 11 + b"\x00", b"-0000001000\0", b"7777777777x\0"])
def test_sizes_that_none_can_have_do_not_lead_back_for_ever(size: bytes) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"))
        archive.addfile(tarfile.TarInfo("b"))
    data = bytearray(file.getvalue())
    data[512 + 124 : 512 + 136] = size
    data[512 + 148 : 512 + 156] = b" " * 8
    data[512 + 148 : 512 + 156] = b"%06o\0 " % sum(data[512:1024])
    with pytest.raises(tarfile.TarError):
        list(ordinary_files(io.BytesIO(data)))


def test_a_size_of_more_than_eight_gibibytes_is_read_as_tarfile_reads_it() -> None:
    member = tarfile.TarInfo("a")
    member.size = 9 << 30
    file = io.BytesIO(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(tarfile.TarError, match="cut off"):
        list(ordinary_files(file))
