"""An export accounts for every input, whatever runs it, wherever it is ended, and however often it is started again."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import camapp
from camapp.batch import RunOptions, TooManyFailures, export_features, export_heatmaps, read_manifest, read_run
from camapp.errors import TargetError, UsageError

ASSETS = Path(__file__).resolve().parents[2] / "assets"
BROKEN = {
    "empty.jpg": (b"", "empty"),
    "text.png": (b"no picture at all, only words", "is text, not a picture"),
    "half.jpg": ((ASSETS / "chelsea.jpg").read_bytes()[:4000], "damaged"),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve small pictures in folders, of several formats and odd names, and three broken ones among them."""
    folder = tmp_path_factory.mktemp("source")
    pictures = [Image.open(ASSETS / name).convert("RGB") for name in ("chelsea.jpg", "coffee.jpg", "rocket.jpg")]
    names = ["a/one.png", "a/One.jpg", "a/two words.webp", "b/ünïcode.png", "b/" + "x" * 180 + ".jpg", "b/c/deep.bmp"]
    names += ["a/one.jpg", "z1.png", "z2.png", "z3.png", "z4.png", "z5.png"]
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pictures[number % 3].resize((60 + 5 * number, 48)).save(path)
    for name, (content, _) in BROKEN.items():
        (folder / "b" / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def model() -> Any:
    return camapp.load_model("efficientnet_lite0", device="cpu")


def files_of(out: Path) -> dict[str, bytes]:
    """Everything that an export left, times aside."""
    found = {}
    for path in sorted(out.rglob("*")):
        if path.is_file() and path.name not in ("run.json", "manifest.parquet"):
            found[path.relative_to(out).as_posix()] = path.read_bytes()
    return found


def rows_of(out: Path) -> list[dict[str, Any]]:
    rows = read_manifest(out).to_pylist()
    for row in rows:
        row.pop("seconds")
    return rows


@pytest.fixture(scope="module")
def whole(model: Any, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An unbroken run in this process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    report = export_heatmaps(model, source, out, batch_size=3, shard_size=4, run=RunOptions(workers=1, threads=2))
    assert (report.total, report.done, report.failed, report.finished, report.resumed) == (15, 12, 3, True, False)
    return out


def test_every_input_has_a_row_and_exactly_the_broken_ones_failed_with_the_reason(whole: Path, source: Path) -> None:
    rows = rows_of(whole)
    assert [row["number"] for row in rows] == list(range(15))
    assert {row["name"] for row in rows} == {path.relative_to(source).as_posix() for path in source.rglob("*.*")}
    failed = {Path(row["name"]).name: row["reason"] for row in rows if row["status"] == "failed"}
    assert set(failed) == set(BROKEN)
    for name, (_, reason) in BROKEN.items():
        assert reason in failed[name].lower(), (name, failed[name])
    assert all(row["files"] for row in rows if row["status"] == "done")
    assert all(not row["files"] for row in rows if row["status"] == "failed")


def test_every_file_of_the_manifest_opens_and_there_is_no_other(whole: Path) -> None:
    named = [file for row in rows_of(whole) for file in row["files"]]
    assert sorted(named) == sorted(files_of(whole))
    assert len({name.casefold() for name in named}) == len(named) == 36
    for name in named:
        if name.endswith(".npy"):
            assert np.isfinite(np.load(whole / name)).all()
        else:
            with Image.open(whole / name) as image:
                image.load()
    assert any(name.startswith("overlays/b/ünïcode") for name in named)
    assert not (whole / ".camapp").exists()
    facts = read_run(whole)
    assert facts["settings"]["method"] == "gradcam"
    assert facts["settings"]["weights"]["sha256"]


def test_what_comes_out_is_what_explain_gives_for_each_picture_alone(model: Any, whole: Path, source: Path) -> None:
    for row in rows_of(whole):
        if row["status"] == "done":
            single = camapp.explain(model, source / row["name"])
            raw = next(file for file in row["files"] if file.startswith("raw/"))
            np.testing.assert_allclose(np.load(whole / raw), single.raw, rtol=1e-4, atol=1e-5)
            assert row["explained"] == [single.classes[0].label]
            assert row["predictions"][0]["probability"] == pytest.approx(single.predictions[0].probability, abs=1e-5)


def test_workers_and_threads_change_no_byte(whole: Path, source: Path, tmp_path: Path) -> None:
    report = export_heatmaps(
        "efficientnet_lite0", source, tmp_path / "out", batch_size=3, shard_size=4, run=RunOptions(workers=2, threads=0)
    )
    assert report.finished
    assert files_of(tmp_path / "out") == files_of(whole)
    assert rows_of(tmp_path / "out") == rows_of(whole)


def test_an_export_that_is_ended_between_shards_goes_on_where_it_was(
    model: Any, whole: Path, source: Path, tmp_path: Path
) -> None:
    out, stop = tmp_path / "out", threading.Event()
    options = {"batch_size": 3, "shard_size": 4}

    def run(**more: Any) -> Any:
        return export_heatmaps(model, source, out, **options, run=RunOptions(workers=1, threads=0, **more))

    first = run(stop=stop, progress=lambda done, failed, total: stop.set())
    assert not first.finished
    assert 0 < first.this_run == first.done + first.failed < 15
    kept = {path: path.stat().st_mtime_ns for path in (out / ".camapp" / "shards").iterdir()}
    with pytest.raises(UsageError, match=r"(?s)top_k.*1.*2"):
        export_heatmaps(model, source, out, top_k=2, **options)
    assert {path: path.stat().st_mtime_ns for path in (out / ".camapp" / "shards").iterdir()} == kept
    second = run()
    assert second.finished
    assert second.resumed
    assert second.this_run == 15 - first.this_run
    assert files_of(out) == files_of(whole)
    assert rows_of(out) == rows_of(whole)
    with pytest.raises(UsageError, match="finished"):
        run()
    assert run(overwrite=True).this_run == 15


def test_a_source_that_changed_is_refused(model: Any, source: Path, tmp_path: Path) -> None:
    mine, out, stop = tmp_path / "source", tmp_path / "out", threading.Event()
    shutil.copytree(source, mine)
    run = RunOptions(workers=1, threads=0, stop=stop, progress=lambda *_: stop.set())
    assert not export_heatmaps(model, mine, out, outputs=("raw",), shard_size=4, run=run).finished
    (mine / "a" / "new.png").write_bytes((mine / "z1.png").read_bytes())
    with pytest.raises(UsageError, match="changed"):
        export_heatmaps(model, mine, out, outputs=("raw",), shard_size=4)


def test_too_many_failures_end_it_and_are_kept(model: Any, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = RunOptions(workers=1, threads=0, max_errors=0)
    with pytest.raises(TooManyFailures, match="more than 0"):
        export_heatmaps(model, source, out, outputs=("raw",), batch_size=2, shard_size=5, run=run)
    report = export_heatmaps(
        model, source, out, outputs=("raw",), batch_size=2, shard_size=5, run=RunOptions(workers=1)
    )
    assert report.resumed
    assert (report.done, report.failed) == (12, 3)


def test_features_of_shards_are_those_of_the_extractor(model: Any, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = export_features(
        model, source, out, layers=["blocks.3", "penultimate"], batch_size=4, shard_size=6, run=RunOptions(workers=1)
    )
    assert (report.done, report.failed) == (12, 3)
    tables = [camapp.load_features(path) for path in sorted((out / "features").iterdir())]
    names = [name for table in tables for name in table.names]
    rows = [row for row in rows_of(out) if row["status"] == "done"]
    assert names == [row["name"] for row in rows]
    assert {file for row in rows for file in row["files"]} == set(files_of(out))
    wanted = camapp.extract_features(model, source, layers=["blocks.3", "penultimate"])
    for layer in wanted.features:
        found = {name: row for table in tables for name, row in zip(table.names, table[layer], strict=True)}
        for name, row in zip(wanted.names, wanted[layer], strict=True):
            np.testing.assert_allclose(found[name], row, rtol=1e-4, atol=1e-5)


def test_classes_of_a_table_are_explained_and_unknown_ones_fail_by_row(
    model: Any, source: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table.csv"
    lines = [f"{source / 'z1.png'},281", f"{source / 'z2.png'},Egyptian cat", f"{source / 'z3.png'},nonsense"]
    table.write_text("path,target\n" + "\n".join(lines) + "\n")
    report = export_heatmaps(model, table, tmp_path / "out", targets="column", run=RunOptions(workers=1))
    assert (report.done, report.failed) == (2, 1)
    rows = rows_of(tmp_path / "out")
    assert [row["explained"] for row in rows] == [["tabby"], ["Egyptian cat"], []]
    assert 'has no class "nonsense"' in rows[2]["reason"]


@pytest.mark.parametrize("targets", ["label", "column"])
def test_classes_that_no_input_names_are_refused_and_an_older_export_stays(
    model: Any, tmp_path: Path, targets: str
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    Image.new("RGB", (40, 40)).save(source / "one.png")
    with pytest.raises(UsageError, match="no input of the source has one"):
        export_heatmaps(model, source, out, targets=targets, run=RunOptions(workers=1))
    assert not out.exists()
    export_heatmaps(model, source, out, outputs=("raw",), run=RunOptions(workers=1))
    before = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="no input of the source has one"):
        export_heatmaps(model, source, out, targets=targets, run=RunOptions(workers=1, overwrite=True))
    assert {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_what_cannot_be_meant_is_found_before_the_folder_is_touched(model: Any, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for call, error, message in (
        (lambda: export_heatmaps(model, source, out, targets="no such class"), TargetError, "has no class"),
        (lambda: export_heatmaps(model, source, out, layer="nowhere"), LookupError, "nowhere"),
        (lambda: export_heatmaps(model, tmp_path / "nothing", out), UsageError, "nothing"),
        (lambda: export_heatmaps(model, source, out, batch_size=0), UsageError, "batch_size"),
        (lambda: export_heatmaps(model, source, out, top_k=2000), TargetError, "only 1000 classes"),
        (lambda: export_heatmaps(model, source, out, targets=[]), UsageError, "targets is empty"),
        (lambda: export_heatmaps(model, source, out, targets="label", top_k=2), UsageError, "exclude each other"),
        (lambda: export_features(model, source, out, format="npy"), UsageError, "format is one of"),
        (lambda: export_heatmaps(model, source, out, run=RunOptions(workers=0)), UsageError, "workers"),
    ):
        with pytest.raises(error, match=message):  # type: ignore[arg-type]
            call()
        assert not out.exists()


SCRIPT = """
import sys
from camapp.batch import RunOptions, export_heatmaps
source, out, workers = sys.argv[1:]
print("ready", flush=True)
export_heatmaps("efficientnet_lite0", source, out, batch_size=3, shard_size=2, run=RunOptions(workers=int(workers)))
"""


def started(source: Path, out: Path, workers: int = 1) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(source), str(out), str(workers)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def shards_in(out: Path) -> int:
    folder = out / ".camapp" / "shards"
    return len(list(folder.glob("*.parquet"))) if folder.exists() else 0


def killed_somewhere(model: Any, source: Path, out: Path, wait_for: int, then: float) -> None:
    """Kill a run once it has so many shards and a moment more, and finish it in this process."""
    child = started(source, out)
    try:
        deadline = time.monotonic() + 120
        while shards_in(out) < wait_for and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(then)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    options = {"batch_size": 3, "shard_size": 2, "run": RunOptions(workers=1, threads=2)}
    before = shards_in(out)
    if (out / "manifest.parquet").exists() and not (out / ".camapp" / "run.json").exists():  # at its very end
        with pytest.raises(UsageError, match="holds a finished export"):
            export_heatmaps(model, source, out, **options)
        assert not (out / ".camapp").exists()  # what was left is gone
        return
    assert wait_for <= before < 8
    report = export_heatmaps(model, source, out, **options)
    assert report.finished
    assert report.this_run <= 15 - 2 * before + 1


def test_a_run_that_is_killed_ends_like_an_unbroken_one(model: Any, source: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    export_heatmaps(model, source, whole, batch_size=3, shard_size=2, run=RunOptions(workers=1, threads=2))
    chance = random.Random(5)
    for number in range(2):
        out = tmp_path / f"killed{number}"
        killed_somewhere(model, source, out, wait_for=1 + 3 * number, then=chance.uniform(0.0, 0.15))
        assert files_of(out) == files_of(whole)
        assert rows_of(out) == rows_of(whole)


@pytest.mark.slow
def test_twenty_runs_that_are_killed_at_random_end_like_an_unbroken_one(
    model: Any, source: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    export_heatmaps(model, source, whole, batch_size=3, shard_size=2, run=RunOptions(workers=1, threads=2))
    chance = random.Random(9)
    for number in range(20):
        out = tmp_path / f"killed{number}"
        killed_somewhere(model, source, out, wait_for=chance.randrange(8), then=chance.uniform(0.0, 0.4))
        assert files_of(out) == files_of(whole)
        assert rows_of(out) == rows_of(whole)


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(whole: Path, source: Path, tmp_path: Path) -> None:
    out, killed = tmp_path / "out", []

    def kill(done: int, failed: int, total: int) -> None:
        import multiprocessing

        if not killed:
            victim = multiprocessing.active_children()[0]
            killed.append(victim.pid)
            os.kill(victim.pid, signal.SIGKILL)

    run = RunOptions(workers=2, threads=0, progress=kill)
    report = export_heatmaps("efficientnet_lite0", source, out, batch_size=3, shard_size=4, run=run)
    assert killed
    assert report.finished
    assert (report.done, report.failed) == (12, 3)
    assert files_of(out) == files_of(whole)
    assert rows_of(out) == rows_of(whole)


def camapp_command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "camapp", *map(str, arguments)]


@pytest.mark.slow
@pytest.mark.parametrize("defined", ["elsewhere", "here"])
def test_a_program_needs_a_guard_only_for_what_it_defines_itself(source: Path, tmp_path: Path, defined: str) -> None:
    network = "timm.create_model('resnet10t', num_classes=3)"
    if defined == "here":
        network = f"Mine({network})"
    program = tmp_path / "program.py"
    program.write_text(
        "import camapp, timm, torch\n"
        "from camapp.batch import RunOptions, export_features\n"
        "class Mine(torch.nn.Sequential): pass\n"
        f"model = camapp.wrap_model({network}, size=32, mean=(0.5,) * 3, std=(0.5,) * 3, labels=list('abc'))\n"
        f"export_features(model, {str(source)!r}, {str(tmp_path / 'out')!r}, shard_size=4, layers='last', "
        "run=RunOptions(workers=2))\n"
        "print(__file__, __spec__)\n"
    )
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    if defined == "elsewhere":
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == f"{program} None\n"  # once, and as they were
        assert len(camapp.load_features(tmp_path / "out")) == 12
    else:
        assert ran.returncode == 1
        assert 'export under `if __name__ == "__main__":`' in ran.stderr.splitlines()[-1]


@pytest.mark.gpu
def test_on_gpus_several_workers_give_what_explain_gives(source: Path, tmp_path: Path) -> None:
    run = RunOptions(workers_per_gpu=2)
    report = export_heatmaps("efficientnet_lite0", source, tmp_path / "out", shard_size=4, device="cuda", run=run)
    assert (report.done, report.failed) == (12, 3)
    model = camapp.load_model("efficientnet_lite0", device="cuda")
    for row in rows_of(tmp_path / "out"):
        if row["status"] == "done":
            single = camapp.explain(model, source / row["name"])
            raw = next(file for file in row["files"] if file.startswith("raw/"))
            np.testing.assert_allclose(np.load(tmp_path / "out" / raw), single.raw, rtol=1e-3, atol=1e-4)


def test_the_command_ends_with_3_where_some_failed_and_says_so_in_json(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = camapp_command("heatmaps", source, out, "--workers", 1, "--json", "--outputs", "overlay,raw", "-k", 2)
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr
    last = json.loads(ran.stdout.splitlines()[-1])
    assert (last["event"], last["total"], last["done"], last["failed"]) == ("finished", 15, 12, 3)
    assert "3 of 15 pictures failed" in ran.stderr
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_lets_the_shard_finish_and_the_command_ends_with_130(
    source: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    command = camapp_command("heatmaps", source, out, "--workers", 1, "--shard-size", 2, "--outputs", "raw")
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while shards_in(out) < 1 and child.poll() is None:
        time.sleep(0.005)
    child.send_signal(number)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 130, said
    assert "resume with the same command" in said
    assert 1 <= shards_in(out) < 8
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 3
    assert "(resumed)" in ran.stdout


def test_the_command_for_features_writes_parts_and_a_manifest(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = camapp_command("features", source, out, "--parts", "--workers", 1, "--shard-size", 6, "--strict")
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "more than 0" in ran.stderr
    ran = subprocess.run(command[:-1], capture_output=True, text=True, check=False)
    assert ran.returncode == 3, ran.stderr
    assert "12 of 15 pictures" in ran.stdout
    assert sum(len(camapp.load_features(path)) for path in (out / "features").iterdir()) == 12


def test_the_parts_of_an_export_are_read_as_one_table_and_a_classifier_learns_from_them(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    rng = np.random.default_rng(0)
    for label, colour in (("red", (200, 20, 20)), ("blue", (20, 20, 200))):
        (source / label).mkdir(parents=True)
        for number in range(6):
            noise = rng.integers(0, 40, (48, 48, 3))
            Image.fromarray((np.array(colour) + noise).astype(np.uint8)).save(source / label / f"{number}.png")
    Image.new("RGB", (48, 48)).save(source / "unlabelled.png")
    (source / "red" / "broken.png").write_bytes(b"")
    model = camapp.load_model("efficientnet_lite0", device="cpu")
    export_features(model, source, out, shard_size=4, run=RunOptions(workers=1))
    table = camapp.load_features(out)
    whole = camapp.extract_features(model, source)
    assert table.names == whole.names
    np.testing.assert_allclose(table["penultimate"], whole["penultimate"], atol=1e-5)
    assert table.labels is not None
    assert dict(zip(table.names, table.labels, strict=True))["unlabelled.png"] == ""
    assert camapp.load_features(out / "features").names == table.names

    keep = [row for row, label in enumerate(table.labels) if label]
    trained = camapp.train_probe(model, table.rows(keep), test_share=0.25)
    assert tuple(trained.probe.classes) == ("blue", "red")


def test_parts_of_an_unfinished_export_are_not_read(model: Any, source: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    run = RunOptions(workers=1, stop=stop, progress=lambda done, failed, total: stop.set() if done else None)
    report = export_features(model, source, tmp_path / "out", shard_size=4, run=run)
    assert not report.finished
    with pytest.raises(UsageError, match="is not finished"):
        camapp.load_features(tmp_path / "out")
    again = export_features(model, source, tmp_path / "out", shard_size=4, run=RunOptions(workers=1))
    assert again.finished
    assert len(camapp.load_features(tmp_path / "out")) == 12


def test_too_many_failures_leave_the_callers_event_alone(model: Any, source: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    with pytest.raises(TooManyFailures):
        export_features(model, source, tmp_path / "out", run=RunOptions(workers=1, max_errors=0, stop=stop))
    assert not stop.is_set()


def test_a_column_of_classes_that_nobody_asked_for_is_told(
    model: Any, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"path,target\n{source / 'z1.png'},tabby\n{source / 'z2.png'},tabby\n")
    export_heatmaps(model, table, tmp_path / "out", outputs=("raw",), run=RunOptions(workers=1))
    told = [record.getMessage() for record in caplog.records if record.name == "camapp"]
    assert len(told) == 1
    assert "--target column" in told[0]
    caplog.clear()
    export_heatmaps(model, table, tmp_path / "o2", outputs=("raw",), targets="column", run=RunOptions(workers=1))
    assert [row["explained"] for row in rows_of(tmp_path / "o2")] == [["tabby"], ["tabby"]]
    assert not caplog.records


def test_options_of_exports_are_refused_for_one_file(source: Path, tmp_path: Path) -> None:
    from camapp.cli.features import features

    for options, named in (
        ({"strict": True, "draft": True}, "--strict, --draft: for exports with --parts"),
        ({"engine": "ray"}, "--engine: for exports"),
        ({"label_column": "class"}, "--label-column"),
        ({"threads": 0}, "--threads"),
    ):
        with pytest.raises(UsageError, match=named):
            features(str(source), tmp_path / "one.parquet", **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_the_command_for_features_reads_the_columns_that_it_is_told(source: Path, tmp_path: Path) -> None:
    from camapp.cli.features import features

    table = tmp_path / "table.csv"
    table.write_text(f"where,kind\n{source / 'z1.png'},cat\n{source / 'z2.png'},dog\n")
    columns = {"path_column": "where", "label_column": "kind"}
    features(str(table), tmp_path / "out", parts=True, workers=1, device="cpu", **columns)
    (part,) = (tmp_path / "out" / "features").iterdir()
    assert camapp.load_features(part).labels == ("cat", "dog")


def test_the_second_class_of_one_picture_does_not_meet_another_pictures_file(model: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("one.png", "one-2.png", "one-1.png", "ONE-2.jpg"):
        Image.open(ASSETS / "chelsea.jpg").resize((60, 40)).save(source / name)
    export_heatmaps(model, source, tmp_path / "out", top_k=2, outputs=("overlay",), run=RunOptions(workers=1))
    named = [file for row in rows_of(tmp_path / "out") for file in row["files"]]
    assert len({name.casefold() for name in named}) == len(named) == 8
    assert sorted(files_of(tmp_path / "out")) == sorted(named)


class Picky(torch.nn.Module):
    """Raises for dark pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.mean((1, 2, 3)).min() < 0:
            raise ValueError("too dark")
        return self.head(self.conv(x).mean((2, 3)))


def picky(seed: int) -> Any:
    torch.manual_seed(seed)
    return camapp.wrap_model(Picky(), size=16, mean=(0.5,) * 3, std=(0.5,) * 3, labels=["a", "b", "c"])


def shades(folder: Path, count: int = 6) -> Path:
    folder.mkdir()
    for number in range(count):
        Image.new("RGB", (20, 20), (250 if number % 3 else 5,) * 3).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize("export", [export_heatmaps, export_features])
def test_pictures_that_a_network_raises_for_fail_alone(export: Any, tmp_path: Path) -> None:
    report = export(picky(0), shades(tmp_path / "source"), tmp_path / "out", run=RunOptions(workers=1))
    assert (report.done, report.failed) == (4, 2)
    failed = [row for row in rows_of(tmp_path / "out") if row["status"] == "failed"]
    assert [row["name"] for row in failed] == ["0.png", "3.png"]
    assert all("too dark" in row["reason"] for row in failed)


def test_a_network_of_other_weights_does_not_go_on_with_an_export(tmp_path: Path) -> None:
    source, out, stop = shades(tmp_path / "source"), tmp_path / "out", threading.Event()
    run = RunOptions(workers=1, threads=0, stop=stop, progress=lambda *_: stop.set())
    assert not export_features(picky(0), source, out, shard_size=2, run=run).finished
    with pytest.raises(UsageError, match="weights"):
        export_features(picky(1), source, out, shard_size=2)
    assert export_features(picky(0), source, out, shard_size=2, run=RunOptions(workers=1)).finished


@pytest.mark.parametrize("linked", ["source", "out"])
def test_a_folder_within_the_source_is_no_part_of_it_by_any_link(model: Any, tmp_path: Path, linked: str) -> None:
    source, link = tmp_path / "source", tmp_path / "link"
    source.mkdir()
    link.symlink_to(source)
    Image.new("RGB", (40, 40)).save(source / "one.png")
    roots = (link, source) if linked == "source" else (source, link)
    for again in (False, True):
        run = RunOptions(workers=1, overwrite=again)
        report = export_heatmaps(model, roots[0], roots[1] / "out", outputs=("overlay",), run=run)
        assert (report.total, report.done) == (1, 1)


def test_memory_of_this_process_is_refused_for_others(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"memory of this process alone\. Give workers=1"):
        export_features("efficientnet_lite0", "memory://photos", tmp_path / "out", run=RunOptions(workers=2))


def test_lengths_are_1_in_lower_precision_too(model: Any, source: Path, tmp_path: Path) -> None:
    options = {"precision": "bfloat16", "normalize": True, "batch_size": 1}
    export_features(model, source / "z1.png", tmp_path / "out", run=RunOptions(workers=1), **options)  # type: ignore[arg-type]
    table = camapp.load_features(tmp_path / "out")
    np.testing.assert_allclose(np.linalg.norm(table["penultimate"], axis=1), 1, atol=1e-6)


def test_a_folder_within_the_source_is_no_part_of_it(model: Any, tmp_path: Path) -> None:
    source = shades(tmp_path / "source")
    out, stop = source / "out", threading.Event()
    run = RunOptions(workers=1, threads=0, stop=stop, progress=lambda *_: stop.set())
    options: dict[str, Any] = {"outputs": ("overlay",), "shard_size": 2}
    assert not export_heatmaps(model, source, out, **options, run=run).finished
    report = export_heatmaps(model, source, out, **options, run=RunOptions(workers=1))
    assert (report.total, report.done, report.resumed) == (6, 6, True)


def test_an_overlay_that_its_format_cannot_hold_fails_alone(model: Any, tmp_path: Path) -> None:
    source = shades(tmp_path / "source", 2)
    Image.new("RGB", (17000, 400), "gray").save(source / "wide.png")
    options: dict[str, Any] = {"outputs": ("overlay",), "overlay_format": "webp", "run": RunOptions(workers=1)}
    report = export_heatmaps(model, source, tmp_path / "out", **options)
    assert (report.done, report.failed) == (2, 1)
    assert "Choose png, or a max_side" in rows_of(tmp_path / "out")[2]["reason"]


def test_more_failures_than_allowed_in_the_last_shard_finish_the_export(model: Any, tmp_path: Path) -> None:
    source = shades(tmp_path / "source", 2)
    (source / "broken.png").write_bytes(b"")
    with pytest.raises(TooManyFailures, match="The export is finished"):
        export_heatmaps(model, source, tmp_path / "out", run=RunOptions(workers=1, max_errors=0))
    assert len(rows_of(tmp_path / "out")) == 3
