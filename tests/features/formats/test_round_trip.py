"""Every format reads back what it wrote, bit for bit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings

from camapp.features.formats import FORMATS, load_features, save_features
from camapp.features.table import FeatureTable
from tests.features.formats.tables import ODD_NAMES, assert_equal, odd_table, table_of, tables

every_format = pytest.mark.parametrize("form", FORMATS)


def round_trip(table: FeatureTable, form: str, folder: str | Path) -> FeatureTable:
    files = save_features(table, Path(folder) / "features", form)
    assert all(file.is_file() for file in files)
    return load_features(files[0] if form != "npy" else files[0].parent)


@every_format
@settings(max_examples=40, deadline=None)
@given(table=tables())
def test_any_table_reads_back_equal(form: str, table: FeatureTable) -> None:
    with TemporaryDirectory() as folder:
        assert_equal(round_trip(table, form, folder), table, nans_alike=form == "csv")


@every_format
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_odd_names_labels_and_layers_read_back_equal(form: str, dtype: str, tmp_path: Path) -> None:
    assert_equal(round_trip(odd_table(dtype), form, tmp_path), odd_table(dtype))


@every_format
@pytest.mark.parametrize("labels", [None, ()])
def test_a_table_without_pictures_reads_back_equal(form: str, labels: tuple[str, ...] | None, tmp_path: Path) -> None:
    table = table_of({"map": (2, 3), "score": ()}, (), labels=labels, failures=(("a.jpg", "damaged"),))
    assert_equal(round_trip(table, form, tmp_path), table)


@every_format
def test_a_hundred_thousand_values_a_row_read_back_equal(form: str, tmp_path: Path) -> None:
    table = table_of({"wide": (100_000,)}, ("a", "b"))
    assert_equal(round_trip(table, form, tmp_path), table)


@every_format
def test_views_and_other_orders_of_memory_read_back_equal(form: str, tmp_path: Path) -> None:
    rows = np.arange(48, dtype=np.float32).reshape(8, 3, 2)
    plain = table_of({"map": (3, 2)}, ("a", "b", "c", "d"))
    for values in (rows[::-2], np.asfortranarray(rows[:4]), rows[:4].astype(">f4")):
        table = FeatureTable(plain.names, {"map": values}, plain.info)
        files = save_features(table, tmp_path / "features", form, overwrite=True)
        found = load_features(files[0] if form != "npy" else files[0].parent)
        np.testing.assert_array_equal(found["map"], values)
        assert found["map"].dtype == np.float32


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("mat", "hdf5")])
def test_the_same_table_gives_the_same_bytes(form: str, tmp_path: Path) -> None:
    first, second = (save_features(odd_table(), tmp_path / name / "features", form) for name in ("a", "b"))
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_the_file_types_hold_halves_as_they_are(tmp_path: Path) -> None:
    """All but CSV and .mat: 2,000 values take two bytes each, not four."""
    values = np.random.default_rng(0).standard_normal((1, 20_000)).astype(np.float16)
    table = FeatureTable(("a",), {"x": values}, table_of({"x": (20_000,)}, ()).info)
    for form in ("parquet", "npz", "safetensors", "hdf5", "npy"):
        assert sum(file.stat().st_size for file in save_features(table, tmp_path / form, form)) < 50_000


def test_odd_names_are_in_the_index_of_a_folder_as_any_csv(tmp_path: Path) -> None:
    import pandas as pd

    save_features(odd_table(), tmp_path / "folder", "npy")
    index = pd.read_csv(tmp_path / "folder" / "index.csv", keep_default_na=False)
    assert tuple(index["path"]) == ODD_NAMES
    assert tuple(index["label"]) == odd_table().labels
