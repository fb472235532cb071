"""The compact set answers like Python's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from camapp.sources.seen import Seen


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_it_answers_like_a_set(added: list[str], asked: list[str]) -> None:
    seen, known = Seen(), set[str]()
    for text in added:
        assert seen.add(text) == (text not in known)
        known.add(text)
    assert [text in seen for text in asked + added] == [text in known for text in asked + added]
    assert len(seen) == len(known)


def test_it_stays_right_as_it_grows_past_its_first_size() -> None:
    seen = Seen()
    assert all(seen.add(f"{number}.jpg") for number in range(20_000))
    assert not any(seen.add(f"{number}.jpg") for number in range(20_000))
    assert len(seen) == 20_000
    assert "20000.jpg" not in seen
