"""ProbeReport: the measures of scikit-learn, and the tables and files that a person reads."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn import metrics

from camapp.errors import UsageError
from camapp.features.probe import KINDS, Probe, ProbeReport, evaluate_probe, fit_probe
from tests.features.probe.clouds import clouds

FILES = ["confusion.png", "misclassified.csv", "report.json", "report.md"]


def told(answers: list[tuple[str, str]], classes: tuple[str, ...] = ("a", "b", "c")) -> ProbeReport:
    """The report of pictures of a class (first) that a probe tells as another (second), with a score of 2 against 0."""
    probe = Probe(classes, "linear", {"weight": torch.eye(len(classes)), "bias": torch.zeros(len(classes))}, {"C": 1.0})
    features = 2 * np.eye(len(classes))[[classes.index(predicted) for _, predicted in answers]]
    return evaluate_probe(probe, features, [label for label, _ in answers])


def test_measures_by_hand() -> None:
    report = told([("a", "a"), ("a", "a"), ("a", "b"), ("b", "b"), ("b", "a"), ("c", "c")])
    assert report.confusion.tolist() == [[2, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert report.accuracy == 4 / 6
    assert report.balanced_accuracy == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    assert report.majority == report.to_dict()["majority"] == 3 / 6
    first, second, third = report.measures
    assert (first.precision, first.recall, first.f1, first.support) == (2 / 3, 2 / 3, 2 / 3, 3)
    assert (second.precision, second.recall, second.f1, second.support) == (1 / 2, 1 / 2, 1 / 2, 2)
    assert (third.precision, third.recall, third.f1, third.support) == (1, 1, 1, 1)
    # softmax of (2, 0, 0): the class told has e^2 / (e^2 + 2), any other 1 / (e^2 + 2)
    right, wrong = math.exp(2) / (math.exp(2) + 2), 1 / (math.exp(2) + 2)
    assert report.log_loss == pytest.approx(-(4 * math.log(right) + 2 * math.log(wrong)) / 6)
    assert [(one.name, one.label, one.predicted) for one in report.misclassified] == [("2", "a", "b"), ("4", "b", "a")]
    assert report.misclassified[0].probability == pytest.approx(right)


@pytest.mark.parametrize("kind", KINDS)
def test_measures_are_scikit_learns(kind: str) -> None:
    probe = fit_probe(*clouds(4, 12, 5, apart=0.8), kind=kind)
    features, labels = clouds(4, 9, 5, apart=0.8, seed=1)
    report = evaluate_probe(probe, features, labels)
    predicted = probe.predict(features)
    np.testing.assert_array_equal(report.confusion, metrics.confusion_matrix(labels, predicted))
    assert report.accuracy == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert report.balanced_accuracy == pytest.approx(metrics.balanced_accuracy_score(labels, predicted))
    theirs = metrics.precision_recall_fscore_support(labels, predicted, zero_division=np.nan)
    for name, values in zip(("precision", "recall", "f1", "support"), theirs, strict=True):
        np.testing.assert_allclose([getattr(one, name) for one in report.measures], values, err_msg=name)
    if kind == "ridge":
        assert report.log_loss is None
        assert {one.probability for one in report.misclassified} == {None}
    else:
        assert report.log_loss == pytest.approx(metrics.log_loss(labels, probe.probabilities(features)))


def test_what_is_undefined_is_a_dash_and_a_null_and_no_part_of_the_balance() -> None:
    report = told([("a", "a"), ("a", "b")])
    second, third = report.measures[1:]
    assert math.isnan(second.recall)
    assert (second.precision, second.f1) == (0, 0)
    assert math.isnan(third.precision)
    assert math.isnan(third.f1)
    assert report.balanced_accuracy == 0.5
    assert report.to_dict()["classes"][2] == {"name": "c", "precision": None, "recall": None, "f1": None, "support": 0}
    assert "| c | – | – | – | 0 |" in report.to_markdown()


def test_the_most_confident_mistakes_come_first() -> None:
    probe = Probe(("a", "b"), "linear", {"weight": torch.tensor([[0.0], [1.0]]), "bias": torch.zeros(2)}, {})
    report = evaluate_probe(probe, np.array([[1.0], [3.0], [-5.0], [2.0]]), ["a", "a", "a", "a"], list("wxyz"))
    assert [one.name for one in report.misclassified] == ["x", "z", "w"]


def test_labels_that_the_probe_does_not_know_are_named() -> None:
    probe = fit_probe(*clouds())
    with pytest.raises(UsageError, match=r'not fitted on "class 10", "owl"\. It knows "class 0".*Did you mean class 1'):
        evaluate_probe(probe, np.zeros((3, 6)), ["class 1", "owl", "class 10"])


def test_lengths_that_differ_are_refused() -> None:
    probe = fit_probe(*clouds())
    with pytest.raises(UsageError, match="2 labels for 3 rows"):
        evaluate_probe(probe, np.zeros((3, 6)), ["class 0"] * 2)
    with pytest.raises(UsageError, match="1 names for 3 rows"):
        evaluate_probe(probe, np.zeros((3, 6)), ["class 0"] * 3, ["x.jpg"])
    with pytest.raises(UsageError, match="fitted on features of size 6"):
        evaluate_probe(probe, np.zeros((3, 5)), ["class 0"] * 3)


def test_the_text_tells_the_pairs_and_the_pictures() -> None:
    report = told([("a", "a")] * 3 + [("a", "b")] * 2 + [("b", "a"), ("b", "b"), ("c", "c")])
    text = report.to_markdown()
    assert text.startswith("# Logistic regression: 62.5 % of 8 pictures\n")
    pairs = text[text.index("## What is taken for what") :]
    assert "| a | b | 2 | 40.0 % |\n| b | a | 1 | 50.0 % |\n" in pairs
    assert "| 3 | a | b | 78.7 % |" in text
    assert "| C | 1 |" in text
    assert report._repr_markdown_() == text


def test_a_probe_that_is_always_right_has_no_empty_tables() -> None:
    text = told([("a", "a"), ("b", "b"), ("c", "c")]).to_markdown()
    assert "taken for" not in text
    assert "100.0 % of 3 pictures" in text


def test_long_lists_are_cut_in_the_text_and_whole_in_the_data() -> None:
    report = told([("a", "b")] * 25)
    assert "And 5 more." in report.to_markdown()
    assert len(report.to_dict()["misclassified"]) == 25


def test_names_of_any_signs_break_no_table(tmp_path: Path) -> None:
    names = ("a|b\nc", 'd,"e"', "猫 <b>*x*</b> $\\frac{$")
    report = told([(names[0], names[1]), (names[1], names[2]), (names[2], names[2])], names)
    rows = [line for line in report.to_markdown().splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in rows)
    columns = [line.replace("\\\\", "").replace("\\|", "").count("|") for line in rows]
    assert sorted(set(columns)) == [3, 5, 6]
    assert "<b>" not in report.to_markdown().replace("\\<", "")
    report.save(tmp_path / "report")
    read = list(csv.reader(io.StringIO((tmp_path / "report" / "misclassified.csv").read_text("utf-8"), newline="")))
    assert sorted(row[1:3] for row in read[1:]) == [[names[0], names[1]], [names[1], names[2]]]


def test_saved_files_hold_the_report(tmp_path: Path) -> None:
    probe = fit_probe(*clouds(3, 12, 5, apart=0.6))
    report = evaluate_probe(probe, *clouds(3, 9, 5, apart=0.6, seed=1), [f"d/{row}.jpg" for row in range(27)])
    folder = tmp_path / "new" / "report"
    written = report.save(folder)
    assert sorted(path.name for path in written) == FILES == sorted(os.listdir(folder))
    facts = json.loads((folder / "report.json").read_text("utf-8"))
    assert facts == report.to_dict()
    assert facts["settings"]["C"] == probe.settings["C"]
    assert np.trace(facts["confusion"]) == round(report.accuracy * 27)
    assert report.to_markdown() in (folder / "report.md").read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO((folder / "misclassified.csv").read_text("utf-8"), newline="")))
    assert [row["name"] for row in rows] == [one.name for one in report.misclassified]
    assert [float(row["probability"]) for row in rows] == [one.probability for one in report.misclassified]
    with Image.open(folder / "confusion.png") as picture:
        picture.load()
        assert picture.format == "PNG"


def test_a_report_is_replaced_only_if_asked_and_foreign_files_stay(tmp_path: Path) -> None:
    first, second = told([("a", "a")] * 2), told([("a", "b")] * 2)
    first.save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds a report already .*overwrite=True"):
        second.save(tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["accuracy"] == 1
    second.save(tmp_path, overwrite=True)
    assert json.loads((tmp_path / "report.json").read_text())["accuracy"] == 0
    assert sorted(os.listdir(tmp_path)) == sorted([*FILES, "notes.txt"])


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    with pytest.raises(UsageError, match="is a file; a report is a folder"):
        told([("a", "a")]).save(tmp_path / "report", overwrite=True)


@pytest.mark.parametrize("failing", range(4))
def test_a_full_disk_leaves_the_old_report_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    told([("a", "a")] * 2).save(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    write, calls = Path.write_bytes, []

    def full(path: Path, content: bytes) -> int:
        calls.append(path)
        if len(calls) > failing:
            write(path, content[:10])
            raise OSError(28, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        told([("a", "b")] * 2).save(tmp_path, overwrite=True)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def test_the_picture_goes_to_a_file_too(tmp_path: Path) -> None:
    report = told([("a", "a"), ("b", "a")])
    content = report.confusion_png(tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").read_bytes() == content == report.confusion_png()
    assert os.listdir(tmp_path) == ["matrix.png"]
