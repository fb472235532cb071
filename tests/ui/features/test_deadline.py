"""A deadline stops what takes too long, says so in words, and leaves other ends as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from camapp.errors import DecodeError, StoppedError, UsageError
from camapp.ui.features import deadline
from camapp.ui.features.deadline import Deadline
from camapp.ui.features.extracting import Request, extract, train
from camapp.ui.frame.models import ModelPool
from tests.ui.features.made import coloured_zip


def ended(cancel: Deadline, error: Exception) -> None:
    """Stop, if ``cancel`` says so, as an extraction does."""
    with cancel:
        assert cancel()
        raise error


def test_what_is_stopped_by_the_deadline_is_told_in_words() -> None:
    with pytest.raises(UsageError, match=r"one request may take 0 s\. Send fewer"):
        ended(Deadline(lambda: False, 0), StoppedError("stopped"))


def test_what_nobody_waits_for_and_what_fails_end_as_they_do() -> None:
    with pytest.raises(StoppedError, match="withdrawn"):
        ended(Deadline(lambda: True, 0), StoppedError("withdrawn"))
    with pytest.raises(DecodeError):
        ended(Deadline(lambda: False, 0), DecodeError("broken"))
    with Deadline(lambda: False, 60) as in_time:
        assert not in_time()


def test_the_shorter_of_two_deadlines_counts() -> None:
    with pytest.raises(UsageError, match="may take 0 s"), Deadline(lambda: False, 0) as outer:
        ended(Deadline(outer, 60), StoppedError("stopped"))


def test_extracting_and_training_have_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: ModelPool) -> None:
    request = Request((str(coloured_zip(tmp_path / "x.zip", 2)),), pool.default)
    table = extract(pool, request, progress=lambda *_: None, cancel=lambda: False).table
    monkeypatch.setattr(deadline, "DEADLINE", 0.0)
    with pytest.raises(UsageError, match="one request may take 0 s"):
        extract(pool, request, progress=lambda *_: None, cancel=lambda: False)
    with pytest.raises(UsageError, match="one request may take 0 s"):
        train(pool.load(pool.default), table, "linear", 0.25)
