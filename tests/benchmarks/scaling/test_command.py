"""python -m benchmarks scaling: tables from figures that were kept, for machines of one's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.scaling import main
from benchmarks.scaling.figures import Figures, Ledger, Stages

STAGES = Stages(8, 1e5, 0.0, 0.01, 0.03, 0.01, 5e4, 0.0, 0.003, 0.01, 0.0, 6e5)
FIGURES = Figures(
    {"heatmaps": STAGES, "features": STAGES}, Ledger(1e-5, 4e-6, 5e-6), 6.0, "two processors", "2026-01-01", 0.1
)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    FIGURES.save(tmp_path / "figures.json")
    return tmp_path / "figures.json"


def test_figures_that_are_kept_come_back(kept: Path) -> None:
    assert Figures.load(kept) == FIGURES


def test_a_busy_machine_is_not_kept_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for load, said in ((0.1, False), (3.2, True)):
        replace(FIGURES, busy=load).save(tmp_path / "figures.json")
        main(["--figures", str(tmp_path / "figures.json"), "--cores", "2"])
        assert ("not idle (load 3.2)" in capsys.readouterr().out) is said


def test_figures_of_another_shape_are_refused(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept.write_text(json.dumps({"kinds": {"heatmaps": {"speed": 1}}}))
    assert main(["--figures", str(kept)]) == 2
    assert "Measure anew with --save" in capsys.readouterr().err


def test_a_machine_of_ones_own_is_estimated(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """16 processors at 0.05 s a picture are 320 pictures a second; a million of them 3125 s and a last round."""
    assert main(["--figures", str(kept), "--cores", "16", "--price", "3.6", "--pictures", "1000000"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("1 x 16 processors")]
    assert len(rows) == 2
    assert "  320  " in rows[0]
    assert "  53 min  " in rows[0]
    assert "processors 100%, mostly model" in rows[0]


def test_the_page_has_a_table_of_each_kind(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--figures", str(kept), "--markdown", "--cores", "2"]) == 0
    text = capsys.readouterr().out
    assert text.index("### Heatmaps") < text.index("### Features")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
    assert "GPU figures are computed, not measured here" in text


def test_a_page_gets_the_tables_between_its_marks_and_keeps_the_rest(kept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n<!-- figures -->\nold\n<!-- end of figures -->\nAfter.\n")
    for _ in range(2):
        assert main(["--figures", str(kept), "--cores", "2", "--page", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("Before.\n<!-- figures -->\n\n### Heatmaps\n\n| machines |")
    assert text.endswith("<!-- end of figures -->\nAfter.\n")
    assert "\nold\n" not in text
    assert text.count("### Features") == 1


def test_a_page_without_marks_is_left_alone(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("Nothing here.\n")
    assert main(["--figures", str(kept), "--cores", "2", "--page", str(page)]) == 2
    assert "has no lines <!-- figures -->" in capsys.readouterr().err
    assert page.read_text() == "Nothing here.\n"
