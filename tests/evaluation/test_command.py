"""camapp evaluate as a shell sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from camapp import cli
from camapp.resources import resource_folder

ASSETS = resource_folder("assets")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """``camapp evaluate ARGUMENTS`` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "camapp", "evaluate", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "80"},
        check=False,
    )


def in_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["camapp", "evaluate", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.out, printed.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sample pictures, a broken one, and boxes for one of them."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for name in ("chelsea.jpg", "coffee.jpg"):
        (pictures / name).write_bytes((ASSETS / name).read_bytes())
    boxes = [{"file": "pictures/chelsea.jpg", "boxes": [{"name": "cat", "xyxy": [90, 20, 360, 290]}]}]
    (tmp_path / "boxes.json").write_text(json.dumps(boxes))
    return tmp_path


def test_a_report_is_written_and_its_summary_printed_as_json(folder: Path) -> None:
    (folder / "pictures" / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    out = folder / "out"
    options = ("--boxes", folder / "boxes.json", "--metrics", "average_drop,energy", "--json", "--out", out)
    done = run(folder / "pictures", *options)
    assert done.returncode == 3, done.stderr
    printed = json.loads(done.stdout)
    assert printed["pictures"] == 2
    assert [one["picture"] for one in printed["failures"]] == ["broken.jpg"]
    lines = done.stderr.splitlines()
    assert lines[0].startswith("camapp: broken.jpg: ")
    assert lines[-1] == f"camapp: 1 of 3 pictures failed; the report on the others is in {out}"
    rows = {(row["method"], row["metric"]): row for row in printed["summary"]}
    assert rows["gradcam", "energy"]["pictures"] == 1
    assert rows["gradcam", "average_drop"]["pictures"] == 2
    assert rows["gradcam", "energy"]["value"] > rows["uniform", "energy"]["value"], "the cat is where the model looks"
    assert rows["gradcam", "average_drop"]["layer"] == "bn2"
    values = pyarrow.parquet.read_table(out / "values.parquet").to_pylist()
    assert {value["label"] for value in values if value["picture"] == "coffee.jpg"} == {"espresso"}
    assert not list(out.glob(".*"))


def test_without_json_a_table_and_the_reports_place_are_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--target", "espresso", "--limit", "1", "--metrics", "average_drop", "--out", folder / "out")
    code, printed, complaints = in_process(monkeypatch, capsys, folder / "pictures" / "*.jpg", *options)
    assert (code, complaints) == (0, "")
    lines = printed.splitlines()
    assert lines[0].split() == ["method", "layer", "average_drop", "↓"]
    assert [line.split()[0] for line in lines[1:5]] == ["gradcam", "center", "random", "uniform"]
    assert lines[-1] == str(folder / "out" / "report.md")
    assert "Explained: espresso" in (folder / "out" / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "gradcam,gradcm"], 'No method "gradcm".*Did you mean gradcam'),
        (["--metrics", "insertin"], 'No metric "insertin".*Did you mean insertion'),
        (["--metrics", "energy"], r'"energy" needs boxes of the objects: --boxes FILE'),
        (["--layers", "bn22"], r'No layer "bn22".*Did you mean .*bn2'),
        (["--boxes", "no.json"], "no.json: no such file or folder of boxes"),
        (["--target", "tabi"], "Did you mean .*tabby"),
        (["--fit", "zoom"], "crop, letterbox, stretch"),
        (["--limit", "0"], "limit = 0"),
        (["--batch-size", "0"], "batch_size = 0"),
    ],
)
def test_wrong_options_end_in_one_line_and_exit_2_before_anything_is_written(
    arguments: list[str],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = folder / "out"
    code, printed, complaint = in_process(monkeypatch, capsys, folder / "pictures", "--out", out, *arguments)
    assert (code, printed) == (2, "")
    assert re.fullmatch(rf"camapp: .*{message}.*\n", complaint), complaint
    assert not out.exists()


def test_a_broken_file_of_boxes_is_one_line_with_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "boxes.json").write_text('[\n{"file": "chelsea.jpg",\n "boxes": [')
    options = ("--boxes", folder / "boxes.json", "--out", folder / "out")
    code, _, complaint = in_process(monkeypatch, capsys, folder / "pictures", *options)
    assert code == 2
    assert re.fullmatch(r"camapp: .*boxes\.json, line 3, column \d+: this is no JSON.*\n", complaint)


def test_a_report_that_is_there_is_refused_before_the_model_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "report.md").write_text("mine")
    options = ("--out", folder / "out", "--model", "no_such_model")
    code, _, complaint = in_process(monkeypatch, capsys, folder / "pictures", *options)
    assert code == 2
    assert "holds a report already" in complaint
    assert (folder / "out" / "report.md").read_text() == "mine"


def test_nothing_readable_is_exit_3_and_no_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bad.jpg").write_bytes(b"")
    code, _, complaint = in_process(monkeypatch, capsys, folder / "bad.jpg", "--out", folder / "out")
    assert code == 3
    assert "None of 1 picture(s) could be evaluated" in complaint
    assert not (folder / "out").exists()


# The command, which also says which picture has its turn.
TELLING = """
import importlib
from camapp.cli import main

command = importlib.import_module("camapp.cli.evaluate")

def telling(names):
    for name in names:
        print(name, flush=True)
        yield name

command.with_progress = telling
main()
"""


def test_an_interrupt_ends_with_130_and_leaves_nothing(folder: Path) -> None:
    out = folder / "out"
    for number in range(200):
        (folder / "pictures" / f"{number}.jpg").write_bytes((ASSETS / "chelsea.jpg").read_bytes())
    options = ["evaluate", folder / "pictures", "--metrics", "insertion", "--out", out]
    process = subprocess.Popen(
        [sys.executable, "-c", TELLING, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "0.jpg\n", "the first of the pictures has its turn"
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130, complaint
    assert "Traceback" not in complaint
    assert not out.exists()
