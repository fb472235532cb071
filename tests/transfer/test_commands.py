"""camapp features and camapp probe as a shell sees them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

import camapp
from camapp import cli
from tests.transfer.test_transfer import paint


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train and test pictures of three colours."""
    top = tmp_path_factory.mktemp("colours")
    paint(top / "train", 4, 0)
    paint(top / "test", 2, 1)
    return top


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """``camapp ARGUMENTS`` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "camapp", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "80"},
        check=False,
    )


def in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    """``camapp ARGUMENTS`` within this process, which saves the seconds of importing torch."""
    monkeypatch.setattr(sys, "argv", ["camapp", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


def test_features_are_written_and_what_failed_is_said(folder: Path, tmp_path: Path) -> None:
    paint(tmp_path / "mixed", 2, 2)
    (tmp_path / "mixed" / "red" / "0.png").write_bytes(b"nothing")
    out = tmp_path / "features.parquet"
    done = run("features", tmp_path / "mixed", out, "--layers", "blocks[-1],penultimate", "--json")
    assert done.returncode == 3, done.stderr
    said = json.loads(done.stdout)
    assert said["pictures"] == 5
    assert said["classes"] == ["blue", "green", "red"]
    assert [one["input"] for one in said["failures"]] == ["red/0.png"]
    assert "red/0.png" in done.stderr
    table = pyarrow.parquet.read_table(out)  # a reader that knows nothing of camapp
    assert table.column_names[:2] == ["path", "label"]
    assert table["label"].to_pylist() == ["blue", "blue", "green", "green", "red"]
    ours = camapp.load_features(out)
    assert ours.layers == ("blocks.6", "penultimate")
    assert ours["penultimate"].shape == (5, 1280)


def test_the_ending_is_the_format_and_nothing_is_overwritten(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features.npz"
    code, said, _ = in_process(monkeypatch, capsys, "features", folder / "test", out, "--dtype", "float16")
    assert code == 0
    assert "6 pictures of 3 classes" in said
    assert np.load(out, allow_pickle=False)["penultimate"].dtype == np.float16
    before = out.read_bytes()
    code, _, complaint = in_process(monkeypatch, capsys, "features", folder / "test", out)
    assert code == 2
    assert "--overwrite" in complaint
    assert out.read_bytes() == before
    code, _, complaint = in_process(monkeypatch, capsys, "features", folder / "test", tmp_path / "features.xyz")
    assert code == 2
    assert ".xyz" in complaint


def test_a_grid_of_channels_is_painted(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "grid.png"
    picture = folder / "test" / "red" / "0.png"
    code, said, _ = in_process(monkeypatch, capsys, "features", picture, out, "--grid", "blocks.0")
    assert code == 0
    assert "16 channels of blocks.0" in said
    with Image.open(out) as image:
        assert image.format == "PNG"


def test_a_probe_is_trained_reported_saved_and_explained(folder: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "colours.camapp", tmp_path / "report"
    done = run("probe", folder / "train", "--test", folder / "test", "--out", out, "--report", report)
    assert done.returncode == 0, done.stderr
    assert "100.0% of 6 pictures right" in done.stdout
    assert sorted(path.name for path in report.iterdir()) == [
        "confusion.png",
        "misclassified.csv",
        "report.json",
        "report.md",
    ]
    explained = run(
        "explain", folder / "test" / "blue" / "0.png", "--model", out, "--json", "--out", tmp_path / "heatmaps"
    )
    assert explained.returncode == 0, explained.stderr
    said = json.loads(explained.stdout)
    assert said["predictions"][0]["label"] == "blue"
    assert said["layer"] == "backbone.bn2"
    again = run("probe", folder / "train", "--out", out)
    assert again.returncode == 2
    assert "exists" in again.stderr


def test_json_holds_the_whole_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = in_process(
        monkeypatch, capsys, "probe", folder / "train", "--test-share", 0.25, "--kind", "knn", "--json"
    )
    assert code == 0
    facts = json.loads(said)
    assert facts["classes"] == ["blue", "green", "red"]
    assert facts["trained_on"] == 9
    assert facts["report"]["pictures"] == 3


def test_backbones_and_layers_are_compared(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = (folder / "train", "--test", folder / "test")
    code, said, _ = in_process(monkeypatch, capsys, "probe", *sources, "--layers", "blocks.0,penultimate", "--compare")
    assert code == 0
    rows = [line.split() for line in said.splitlines()]
    assert rows[0][:3] == ["model", "layer", "pool"]
    assert {row[1] for row in rows[1:3]} == {"blocks.0", "penultimate"}
    code, _, complaint = in_process(monkeypatch, capsys, "probe", *sources, "--compare", "--out", tmp_path / "x.camapp")
    assert code == 2
    assert "comparison" in complaint


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("features", "{empty}", "{out}.parquet"), "no picture"),
        (("features", "{test}", "{out}.parquet", "--layers", "nowhere"), "nowhere"),
        (("features", "{test}", "{out}.parquet", "--pool", "median"), "median"),
        (("features", "{test}", "{out}.parquet", "--workers", "0"), "workers"),
        (("probe", "{test}/red"), "no labels"),
        (("probe", "{test}", "--out", "{out}.pth"), ".camapp"),
        (("probe", "{test}", "--kind", "forest"), "forest"),
        (("probe", "{empty}"), "no picture"),
        (("probe", "{test}", "--test-share", "0", "--report", "{out}"), "--report needs pictures"),
        (("features", "{test}/red/0.png", "{out}.png", "--grid", "blocks.*"), "Name the one to paint"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_nothing_is_written(
    arguments: tuple[str, ...],
    says: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    places = {"empty": tmp_path / "empty", "test": folder / "test", "out": tmp_path / "result"}
    code, _, complaint = in_process(monkeypatch, capsys, *(one.format(**places) for one in arguments))
    assert code == 2
    assert says in complaint
    assert len(complaint.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_pictures_that_are_all_broken_end_in_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    code, _, complaint = in_process(monkeypatch, capsys, "features", tmp_path, tmp_path / "out.parquet")
    assert code == 3
    assert "a.png" in complaint
    assert not (tmp_path / "out.parquet").exists()


# Says on the output when the first picture has its turn; all else is the command as it is.
TELLING = """
import sys
from camapp import cli
from camapp.cli import features

def telling(names):
    for name in names:
        print(name, flush=True)
        yield name

features.with_progress = telling
cli.main()
"""


def test_an_interrupted_run_leaves_no_half_file(folder: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.mkdir()
    for number in range(2000):
        os.link(folder / "train" / "red" / "0.png", many / f"{number}.png")
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, "features", str(many), str(tmp_path / "out.parquet"), "--batch-size", "4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "0.png\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert [path.name for path in tmp_path.iterdir()] == ["many"]


def test_names_with_the_signs_of_markup_are_printed_as_they_are(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for colour, name in (("red", "[red]"), ("green", "[bold] hat"), ("blue", "[/]")):
        (tmp_path / "odd").mkdir(exist_ok=True)
        os.symlink(folder / "train" / colour, tmp_path / "odd" / name.replace("/", "slash"))
    code, said, _ = in_process(monkeypatch, capsys, "probe", tmp_path / "odd", "--kind", "knn")
    assert code == 0
    for name in ("[red]", "[bold] hat", "[slash]"):
        assert name in said
