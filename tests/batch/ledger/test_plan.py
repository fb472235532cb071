"""The plan: every input comes back as it was listed, and a shard is read alone."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from camapp.batch.ledger import plan
from camapp.batch.ledger.plan import Plan, write_plan
from camapp.batch.records import Item
from tests.batch.ledger.exports import NameFingerprint

ITEMS = [
    Item("a/b.jpg", "/p/a/b.jpg"),
    Item("c\\xff.jpg", "/p/c\udcff.jpg", label="", target="tabby"),
    Item("x/m.jpg", "/p/x.tar", "m\ud800\n.jpg", 2**40, 2**33, "x", "281"),
    Item("a/b.png", "/p/a/b.png", offset=0, length=0, label="猫"),
    Item("e.jpg", "/p/e.jpg"),
]


@pytest.mark.parametrize("size", [1, 2, 5, 9])
@pytest.mark.parametrize("rows_at_once", [1, 3, 1000])
def test_items_come_back_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, rows_at_once: int
) -> None:
    monkeypatch.setattr(plan, "ROWS_AT_ONCE", rows_at_once)
    fingerprint, alone = NameFingerprint(), NameFingerprint()
    assert write_plan(tmp_path / "plan", iter(ITEMS), fingerprint, size) == 5
    for item in ITEMS:
        alone.add(item)
    assert fingerprint.hexdigest() == alone.hexdigest()
    written = Plan(tmp_path / "plan", size)
    shards = [written.items(shard) for shard in range(-(-5 // size))]
    written.close()
    assert [len(shard) for shard in shards] == [len(ITEMS[at : at + size]) for at in range(0, 5, size)]
    planned = [one for shard in shards for one in shard]
    assert [one.item for one in planned] == ITEMS
    assert [one.number for one in planned] == [0, 1, 2, 3, 4]
    assert [one.stem for one in planned] == ["a/b", "c_xff", "x/m", "a/b_2", "e"]


def test_a_row_group_is_a_shard(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan", iter(ITEMS), NameFingerprint(), 2)
    with pq.ParquetFile(tmp_path / "plan") as file:
        assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [2, 2, 1]


def test_a_listing_that_fails_leaves_no_plan(tmp_path: Path) -> None:
    def failing():
        yield ITEMS[0]
        raise OSError("the share went away")

    with pytest.raises(OSError, match="went away"):
        write_plan(tmp_path / "plan", failing(), NameFingerprint(), 1)
    assert list(tmp_path.iterdir()) == []
