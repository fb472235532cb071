"""A file read in ranges gives what the file holds, in few requests."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.batch.sources.ranges import RangeFile, buffered, expect

CONTENT = bytes(range(256)) * 1200
STEPS = st.lists(
    st.tuples(st.sampled_from(["seek", "read", "expect"]), st.integers(0, len(CONTENT) + 300)), max_size=30
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(1, 100_000))
def test_it_reads_what_a_file_in_memory_reads(steps: list[tuple[str, int]], block: int) -> None:
    plain = io.BytesIO(CONTENT)
    asked: list[tuple[int, int]] = []

    def fetch(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return CONTENT[start:stop]

    with buffered(RangeFile(fetch, len(CONTENT), block)) as file:
        for step, number in steps:
            if step == "seek":
                assert file.seek(number) == plain.seek(number)
            elif step == "read":
                assert file.read(number) == plain.read(number)
                assert file.tell() == plain.tell()
            else:
                expect(file, number, 70_000)
        assert file.seek(-10, os.SEEK_END) == len(CONTENT) - 10
        assert file.read() == CONTENT[-10:]
    assert all(0 <= start < stop <= len(CONTENT) for start, stop in asked)


def test_what_is_expected_is_fetched_in_one_request_and_what_is_near_in_a_block() -> None:
    asked: list[tuple[int, int]] = []

    def fetch(start: int, stop: int) -> bytes:
        asked.append((start, stop))
        return CONTENT[start:stop]

    with buffered(RangeFile(fetch, len(CONTENT), 512)) as file:
        expect(file, 100, 90_000)
        file.seek(100)
        assert file.read(30) + file.read(89_970) == CONTENT[100:90_100]
        assert asked == [(100, 90_100)]
    asked.clear()
    with buffered(RangeFile(fetch, len(CONTENT), len(CONTENT) // 2)) as file:
        for place in range(0, len(CONTENT), 64):
            file.seek(place)
            assert file.read(8) == CONTENT[place : place + 8]
        assert len(asked) == 2


def test_no_place_lies_before_a_file() -> None:
    with pytest.raises(ValueError, match="negative"):
        RangeFile(lambda start, stop: b"", 10, 1).seek(-1)
