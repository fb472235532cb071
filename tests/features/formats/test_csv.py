"""Floats as text: all halves, and singles that the shortest text misses; CSV and sidecar belong together."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from camapp.errors import UsageError
from camapp.features.formats import load_features, save_features
from camapp.features.table import FeatureTable
from tests.features.formats.tables import assert_equal, table_of


def test_every_half_reads_back_equal(tmp_path: Path) -> None:
    values = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(4, 2**14)
    table = FeatureTable(tuple("abcd"), {"x": values}, table_of({"x": (2**14,)}, ()).info)
    save_features(table, tmp_path / "x.csv")
    assert_equal(load_features(tmp_path / "x.csv"), table, nans_alike=True)


def test_each_float_has_the_fewest_digits_of_its_type(tmp_path: Path) -> None:
    info = table_of({"half": (2,), "single": (2,), "double": (2,)}, ()).info
    tenth = [[0.1, -0.0]]
    table = FeatureTable(
        ("a",),
        {"half": np.float16(tenth), "single": np.float32(tenth), "double": np.float64([[1 / 3, np.inf]])},
        info,
        labels=("",),
    )
    save_features(table, tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text() == (
        "path,label,half[0],half[1],single[0],single[1],double[0],double[1]\n"
        '"a","",0.1,-0.0,0.1,-0.0,0.3333333333333333,inf\n'
    )


def test_a_float_whose_shortest_text_is_another_one_by_way_of_a_double_has_more_digits(tmp_path: Path) -> None:
    """Rounded twice, 7.038531e-26 is the single after this one."""
    hard = np.float32(float.fromhex("0x1.5c87fap-84"))
    assert str(hard) == "7.038531e-26"
    assert np.float32(float("7.038531e-26")) != hard
    table = FeatureTable(("a",), {"x": np.array([[hard, -hard]])}, table_of({"x": (2,)}, ()).info)
    save_features(table, tmp_path / "x.csv")
    texts = (tmp_path / "x.csv").read_text().splitlines()[1].split(",")[1:]
    assert [np.float32(float(text)) for text in texts] == [hard, -hard]
    assert_equal(load_features(tmp_path / "x.csv"), table)


def test_a_csv_that_was_changed_is_refused(tmp_path: Path) -> None:
    save_features(table_of({"x": (2,)}, ("a", "b")), tmp_path / "x.csv")
    text = (tmp_path / "x.csv").read_text()
    for other in (text[:-1], text[: text.rindex("\n", 0, -1) + 1], text.replace("0.5", "0.7"), text + '"c",1.0,2.0\n'):
        (tmp_path / "x.csv").write_text(other)
        with pytest.raises(
            UsageError, match=r"x\.csv: not the file that x\.csv\.json describes: it was changed or cut"
        ):
            load_features(tmp_path / "x.csv")


def test_a_csv_without_sidecar_is_not_of_camapp(tmp_path: Path) -> None:
    save_features(table_of({"x": (2,)}, ("a", "b")), tmp_path / "x.csv")
    for text in (None, "[]", "no JSON", '{"csv": 3}'):
        (tmp_path / "x.csv.json").unlink() if text is None else (tmp_path / "x.csv.json").write_text(text)
        with pytest.raises(UsageError, match="not written by camapp"):
            load_features(tmp_path / "x.csv")


def test_a_sidecar_of_somebody_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "x.csv.json").write_text("mine")
    with pytest.raises(UsageError, match=r"x\.csv\.json is there already"):
        save_features(table_of({"x": (2,)}, ("a",)), tmp_path / "x.csv")
    assert (tmp_path / "x.csv.json").read_text() == "mine"


def test_the_sidecar_forgets_the_csv_before(tmp_path: Path) -> None:
    for count in ("a", "ab"):
        save_features(table_of({"x": (2,)}, tuple(count)), tmp_path / "x.csv", overwrite=True)
    assert len(json.loads((tmp_path / "x.csv.json").read_text())["csv"]) == 1
    assert load_features(tmp_path / "x.csv").names == ("a", "b")
