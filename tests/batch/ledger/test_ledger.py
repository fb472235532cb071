"""The ledger: what is to do and what is done, and when it refuses to touch a folder."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from camapp.batch.ledger import Counts, ShardHandle, read_manifest, read_run
from camapp.errors import CamappError, UsageError
from camapp.version import versions
from tests.batch.ledger.exports import NAMES, SETTINGS, contents, export, listing, open_ledger, work


def finish(out: Path, *shards: int, **options: object) -> None:
    with open_ledger(out, **options) as ledger:  # type: ignore[arg-type]
        for shard in shards:
            ledger.finish_shard(shard, [work(out, shard, one) for one in ledger.items(shard)])


def refused(out: Path, saying: str, **options: object) -> None:
    """Opening is refused with these words, and the folder is as it was."""
    before = contents(out) if out.is_dir() else None
    with pytest.raises(UsageError, match=saying):
        open_ledger(out, **options)  # type: ignore[arg-type]
    assert (contents(out) if out.is_dir() else None) == before


def test_an_export_says_what_became_of_every_input(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    export(out)
    rows = read_manifest(out).to_pylist()
    assert [row["name"] for row in rows] == list(NAMES)
    assert [row["number"] for row in rows] == list(range(7))
    assert [row["shard"] for row in rows] == [0, 0, 1, 1, 2, 2, 3]
    assert [row["status"] for row in rows] == ["done"] * 5 + ["failed", "done"]
    assert [row["files"] for row in rows] == [
        *(["a/one.txt"], ["a/One_2.txt"], ["a/two.txt"], ["b/one.txt"], ["run_2.txt"], [], ["b/ö.txt"])
    ]
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert written == {file for row in rows for file in row["files"]} | {"manifest.parquet", "run.json"}


def test_run_json_says_of_what_and_how_the_export_was_made(tmp_path: Path) -> None:
    with open_ledger(tmp_path, names=["a.jpg"]) as ledger:
        ledger.finish_shard(0, [work(tmp_path, 0, one) for one in ledger.items(0)])
        assert ledger.close_export({"model": "resnet50", "accuracy": float("nan"), "card": Path("/c")}) == (1, 0, 1)
    run = read_run(tmp_path)
    assert list(run) == [
        *("format", "versions", "settings", "shard_size", "facts", "source", "counts"),
        *("started", "finished", "seconds", "inputs_per_second"),
    ]
    assert run["versions"] == versions()
    assert run["settings"] == SETTINGS
    assert run["facts"] == {"model": "resnet50", "accuracy": None, "card": "/c"}
    assert run["source"]["inputs"] == 1
    assert len(run["source"]["fingerprint"]) == 64
    assert run["counts"] == {"done": 1, "failed": 0, "total": 1}
    assert 0 < run["seconds"] < 60
    assert run["inputs_per_second"] == pytest.approx(1 / run["seconds"], rel=0.1)


def test_a_stopped_export_goes_on_where_it_was(tmp_path: Path) -> None:
    export(tmp_path / "whole")
    out = tmp_path / "out"
    finish(out, 2, 0)
    with open_ledger(out) as ledger:
        assert ledger.todo() == [1, 3]
        assert ledger.counts() == Counts(done=3, failed=1, total=7)
        for shard in ledger.todo():
            ledger.finish_shard(shard, [work(out, shard, one) for one in ledger.items(shard)])
        assert ledger.counts() == Counts(done=6, failed=1, total=7)
        ledger.close_export({"model": "resnet50"})
    assert contents(out) == contents(tmp_path / "whole")


def test_an_export_of_nothing_is_one(tmp_path: Path) -> None:
    export(tmp_path, names=[])
    assert len(read_manifest(tmp_path)) == 0


def test_an_unfinished_export_is_not_closed(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.finish_shard(1, [work(tmp_path, 1, one) for one in ledger.items(1)])
        with pytest.raises(CamappError, match=r"3 of 4 shards .* are not done \(the first is 0\)"):
            ledger.close_export()
    assert not (tmp_path / "manifest.parquet").exists()


def test_rows_of_other_inputs_are_no_shard(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        rows = [work(tmp_path, 0, one) for one in ledger.items(0)]
        for wrong in (rows[:1], rows[::-1], [*rows, rows[0]], [replace(row, number=row.number + 2) for row in rows]):
            with pytest.raises(ValueError, match="Shard 0 has the inputs"):
                ledger.finish_shard(0, wrong)
        assert ledger.todo() == [0, 1, 2, 3]


def test_a_damaged_shard_is_done_again(tmp_path: Path) -> None:
    finish(tmp_path, 0, 1, 2)
    shard = tmp_path / ".camapp" / "shards" / "00001.parquet"
    shard.write_bytes(shard.read_bytes()[:-9])
    (tmp_path / ".camapp" / "shards" / "00002.parquet").write_bytes(b"")
    with open_ledger(tmp_path) as ledger:
        assert ledger.todo() == [1, 2, 3]


def test_a_worker_that_outlived_its_run_finishes_no_shard_of_the_next(tmp_path: Path) -> None:
    with open_ledger(tmp_path, settings={"method": "old"}) as ledger:
        late = ledger.handle()
        rows = [work(tmp_path, 0, one) for one in ledger.items(0)]
    with open_ledger(tmp_path, settings={"method": "new"}, overwrite=True) as ledger:
        late.finish_shard(0, rows)
        assert ledger.counts() == (0, 0, ledger.counts().total)  # as a run counts before it closes
        late.finish_shard(0, rows)
        with pytest.raises(CamappError, match="4 of 4 shards"):
            ledger.close_export()
        assert ledger.todo() == [0, 1, 2, 3]


def in_a_worker(handle: ShardHandle, out: Path, shard: int) -> None:
    handle.finish_shard(shard, [work(out, shard, one) for one in handle.items(shard)])


def test_workers_in_other_processes_finish_shards(tmp_path: Path) -> None:
    export(tmp_path / "whole", shard_size=4)
    out = tmp_path / "out"
    with open_ledger(out, shard_size=4) as ledger:
        handle = ledger.handle()
        handle.items(0)  # the open file is not pickled
        assert len(pickle.dumps(handle)) < 500
        spawn = multiprocessing.get_context("spawn")
        workers = [spawn.Process(target=in_a_worker, args=(handle, out, shard)) for shard in ledger.todo()]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        handle.close()
        assert ledger.counts() == (6, 1, 7)
        ledger.close_export({"model": "resnet50"})
    assert contents(out) == contents(tmp_path / "whole")


def test_a_finished_export_is_not_touched(tmp_path: Path) -> None:
    export(tmp_path / "out")
    refused(tmp_path / "out", "holds a finished export.*--overwrite")


def test_a_folder_that_a_run_is_writing_into_is_not_overwritten(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        for overwrite in (False, True):
            refused(tmp_path, f"Another run is writing into {tmp_path}: process {os.getpid()}", overwrite=overwrite)
        assert ledger.todo() == [0, 1, 2, 3]


def test_changed_settings_are_named_with_what_they_were(tmp_path: Path) -> None:
    finish(tmp_path, 0)
    other = {"method": "layercam", "paint": {"alpha": 0.5, "layers": ["layer3"]}, "ending": "txt", "targets": 5}
    refused(tmp_path, 'method was "gradcam" and is now "layercam"', settings=other)
    refused(tmp_path, r'paint.layers was \["layer4"\] and is now \["layer3"\]', settings=other)
    refused(tmp_path, "targets was not set and is now 5", settings=other)
    refused(tmp_path, "shard_size was 2 and is now 3", shard_size=3)
    refused(tmp_path, 'method was "gradcam" and is now not set', settings={"paint": SETTINGS["paint"], "ending": "txt"})
    refused(tmp_path, "resume=True", resume=False)
    in_another_order = {"ending": "txt", "paint": {"layers": ("layer4",), "alpha": 0.5}, "method": "gradcam"}
    open_ledger(tmp_path, settings=in_another_order).close()


def test_a_changed_source_is_refused_with_its_counts(tmp_path: Path) -> None:
    finish(tmp_path, 0)
    refused(tmp_path, "it had 7 inputs and has 8 now", names=[*NAMES, "new.jpg"])
    refused(tmp_path, "it has 7 inputs as before, but some", names=["other.jpg", *NAMES[1:]])


def test_files_that_are_no_exports_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    for overwrite in (False, True):
        refused(tmp_path, r"files that are no export's: thesis\.txt", overwrite=overwrite)
        refused(tmp_path / "thesis.txt", "is a file", overwrite=overwrite)
    refused(tmp_path / "thesis.txt" / "out", "cannot be written")
    (tmp_path / "manifest.parquet").write_bytes(b"a manifest of something else")
    refused(tmp_path, "no export's: manifest", overwrite=True)


def test_what_systems_put_into_folders_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / ".DS_Store").write_bytes(b"x")
    export(tmp_path)
    assert (tmp_path / ".DS_Store").exists()


def test_a_refused_or_failed_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        open_ledger(tmp_path / "a" / "b", settings={"alpha": float("nan")})
    with pytest.raises(UsageError, match="shard_size = 0"):
        open_ledger(tmp_path / "a" / "b", shard_size=0)

    def failing():
        yield next(listing()())
        raise UsageError("The table is wrong in line 2")

    from camapp.batch.ledger import Ledger
    from tests.batch.ledger.exports import NameFingerprint

    with pytest.raises(UsageError, match="line 2"):
        Ledger.open(tmp_path / "a" / "b", SETTINGS, failing, NameFingerprint, shard_size=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        refused(tmp_path / "out", "cannot be written")
        refused(tmp_path, "cannot be written")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc, where not even root makes folders")
def test_a_place_where_nobody_can_write_is_refused() -> None:
    refused(Path("/proc/out"), "cannot be written")


@pytest.mark.skipif(sys.platform == "win32", reason="needs resource")
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    import resource

    export(tmp_path / "whole")
    out = tmp_path / "out"
    with open_ledger(out) as ledger:
        rows = {shard: [work(out, shard, one) for one in ledger.items(shard)] for shard in ledger.todo()}
        before = contents(out)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # no file may grow beyond it
        try:
            with pytest.raises(OSError, match="File too large"):
                ledger.finish_shard(0, rows[0])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert contents(out) == before
        for shard in ledger.todo():
            ledger.finish_shard(shard, rows[shard])
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            with pytest.raises(OSError, match="File too large"):
                ledger.close_export({"model": "resnet50"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert not (out / "manifest.parquet").exists()
    export(out, log=lambda shard: pytest.fail(f"shard {shard} is done"))
    assert contents(out) == contents(tmp_path / "whole")


def test_overwriting_removes_what_the_old_export_names_and_nothing_else(tmp_path: Path) -> None:
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    export(out, ending="old")
    (out / "a" / "mine.txt").write_text("mine")
    export(out, overwrite=True)
    export(fresh)
    mine = contents(out).pop("a/mine.txt")
    assert mine == b"mine"
    assert {name: content for name, content in contents(out).items() if name != "a/mine.txt"} == contents(fresh)


def test_overwriting_an_unfinished_export_removes_what_its_shards_name(tmp_path: Path) -> None:
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    finish(out, 1, 2, settings={"method": "old"}, names=["x/old.jpg", *NAMES])
    assert (out / "a" / "two.txt").exists()
    export(out, overwrite=True, names=["b/new.jpg"])
    export(fresh, names=["b/new.jpg"])
    assert contents(out) == contents(fresh)


def test_a_manifest_that_was_tampered_with_removes_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    precious = tmp_path / "outside" / "precious.txt"
    precious.write_text("x")
    out = tmp_path / "out"
    with open_ledger(out, names=["a.jpg"]) as ledger:
        (out / "link").symlink_to(tmp_path / "outside")
        files = (str(precious), "../outside/precious.txt", "link/precious.txt", "link/../../outside/precious.txt")
        rows = [replace(work(out, 0, one), files=files) for one in ledger.items(0)]
        ledger.finish_shard(0, rows)
        ledger.close_export()
    open_ledger(out, overwrite=True).close()
    assert precious.read_text() == "x"


def test_other_versions_that_took_part_are_told(tmp_path: Path) -> None:
    finish(tmp_path, 0)
    state = tmp_path / ".camapp" / "run.json"
    before = {**versions(), "torch": "1.0"}
    state.write_text(json.dumps({**json.loads(state.read_text()), "versions": before}))
    export_rest = [1, 2, 3]
    with open_ledger(tmp_path) as ledger:
        for shard in export_rest:
            ledger.finish_shard(shard, [work(tmp_path, shard, one) for one in ledger.items(shard)])
        ledger.close_export()
    assert read_run(tmp_path)["versions"] == before
    assert read_run(tmp_path)["other_versions"] == [versions()]


def test_seconds_count_what_a_stopped_run_worked_and_not_the_pause(tmp_path: Path) -> None:
    finish(tmp_path, 0, 1, 2, 3)
    state = tmp_path / ".camapp" / "run.json"
    session = json.loads(state.read_text())["session"]
    for at, shard in enumerate(sorted((tmp_path / ".camapp" / "shards").iterdir())):
        os.utime(shard, (0, session - 1000 + 100 * at))  # the last was finished 300 seconds after the start, long ago
    state.write_text(json.dumps({**json.loads(state.read_text()), "session": session - 1000}))
    with open_ledger(tmp_path) as ledger:
        ledger.close_export()
    assert read_run(tmp_path)["seconds"] == pytest.approx(300, abs=5)


def test_a_damaged_state_is_told_and_can_be_overwritten(tmp_path: Path) -> None:
    finish(tmp_path, 0)
    (tmp_path / ".camapp" / "run.json").write_text("{")
    refused(tmp_path, r"run\.json, which says how to go on .* is damaged")
    export(tmp_path, overwrite=True)


@pytest.mark.skipif(sys.platform != "linux", reason="names of folders are Unicode elsewhere")
def test_a_folder_whose_name_is_no_unicode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not Unicode"):
        open_ledger(tmp_path / "\udcff")
