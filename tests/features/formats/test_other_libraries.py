"""pandas, pyarrow, NumPy, h5py, SciPy and safetensors alone read what camapp wrote, without its readers."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import safetensors
import scipy.io
from safetensors.torch import load_file

from camapp.features.formats import save_features
from camapp.features.table import FeatureTable
from tests.features.formats.tables import table_of

NAMES = ("cats/a,1.jpg", 'b "two".jpg', "köttur\n猫.jpg")
LABELS = ("cat", "", "犬")
MAP = [
    [[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]],
    [[6.5, 7.5, 8.5], [9.5, 10.5, 11.5]],
    [[12.5, 13.5, 14.5], [15.5, 16.5, 17.5]],
]


def table(dtype: str = "float32") -> FeatureTable:
    return table_of(
        {"blocks.0:input": (2, 3), "fc": (2,)}, NAMES, dtype, labels=LABELS, provenance={"model": "resnet18"}
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_pandas_reads_parquet(dtype: str, tmp_path: Path) -> None:
    save_features(table(dtype), tmp_path / "x.parquet")
    frame = pd.read_parquet(tmp_path / "x.parquet")
    assert list(frame.columns) == ["path", "label", "blocks.0:input", "fc"]
    assert tuple(frame["path"]) == NAMES
    assert tuple(frame["label"]) == LABELS
    values = np.stack(frame["blocks.0:input"])
    assert values.dtype == dtype
    assert values.reshape(3, 2, 3).tolist() == MAP


def test_pyarrow_reads_parquet_and_its_header(tmp_path: Path) -> None:
    save_features(table("float16"), tmp_path / "x.parquet")
    read = pq.read_table(tmp_path / "x.parquet")
    assert str(read.schema.field("fc").type) == "fixed_size_list<element: halffloat>[2]"
    assert read["fc"].to_pylist() == [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]]
    header = json.loads(pq.read_metadata(tmp_path / "x.parquet").metadata[b"camapp"])
    assert header["provenance"] == {"model": "resnet18"}
    assert [(layer["name"], layer["info"]["size"]) for layer in header["layers"]] == [
        ("blocks.0:input", [2, 3]),
        ("fc", [2]),
    ]


def test_numpy_maps_the_files_of_a_folder(tmp_path: Path) -> None:
    save_features(table("float16"), tmp_path / "x", "npy")
    values = np.load(tmp_path / "x" / "blocks.0_input.npy", mmap_mode="r")
    assert isinstance(values, np.memmap)
    assert values.dtype == np.float16
    assert values.tolist() == MAP
    assert {file.name for file in (tmp_path / "x").iterdir()} == {
        "blocks.0_input.npy", "fc.npy", "index.csv", "features.json",
    }  # fmt: skip


def test_numpy_reads_npz_without_pickle(tmp_path: Path) -> None:
    save_features(table("float16"), tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as file:
        assert file["blocks.0:input"].dtype == np.float16
        assert file["blocks.0:input"].tolist() == MAP
        assert tuple(file["names"]) == NAMES
        assert tuple(file["labels"]) == LABELS


def test_safetensors_reads_tensors(tmp_path: Path) -> None:
    save_features(table("float16"), tmp_path / "x.safetensors")
    tensors = load_file(tmp_path / "x.safetensors")
    assert str(tensors["fc"].dtype) == "torch.float16"
    assert tensors["blocks.0:input"].tolist() == MAP
    with safetensors.safe_open(tmp_path / "x.safetensors", "numpy") as file:
        header = json.loads(file.metadata()["camapp"])
    assert tuple(header["names"]) == NAMES
    assert tuple(header["labels"]) == LABELS


def test_h5py_reads_hdf5(tmp_path: Path) -> None:
    save_features(table("float16"), tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        values = file["features/blocks.0:input"]
        assert values.dtype == np.float16
        assert values[()].tolist() == MAP
        assert values.attrs["layer"] == "blocks.0:input"
        assert tuple(file["names"].asstr()) == NAMES
        assert tuple(file["labels"].asstr()) == LABELS


def test_pandas_reads_csv_as_to_pandas_gives_it(tmp_path: Path) -> None:
    save_features(table("float64"), tmp_path / "x.csv")
    frame = pd.read_csv(tmp_path / "x.csv", keep_default_na=False)
    assert list(frame.columns[:4]) == ["path", "label", "blocks.0:input[0][0]", "blocks.0:input[0][1]"]
    assert frame["blocks.0:input[1][0]"].tolist() == [3.5, 9.5, 15.5]
    pd.testing.assert_frame_equal(frame, table("float64").to_pandas(), check_dtype=False)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_pandas_gets_the_same_floats_out_of_csv(dtype: str, tmp_path: Path) -> None:
    bits = np.random.default_rng(0).bytes(400 * np.dtype(dtype).itemsize)
    values = np.frombuffer(bits, dtype).reshape(4, 100)
    save_features(FeatureTable(tuple("abcd"), {"x": values}, table_of({"x": (100,)}, ()).info), tmp_path / "x.csv")
    frame = pd.read_csv(tmp_path / "x.csv", engine="pyarrow")
    np.testing.assert_array_equal(frame.iloc[:, 1:].to_numpy(np.float64).astype(dtype), values)


def test_scipy_reads_mat(tmp_path: Path) -> None:
    save_features(table("float16"), tmp_path / "x.mat")
    read = scipy.io.loadmat(tmp_path / "x.mat")
    assert read["blocks_0_input"].dtype == np.float32
    assert read["blocks_0_input"].tolist() == MAP
    assert tuple(cell.item() for cell in read["names"][:, 0]) == NAMES
    assert [list(cell) for cell in read["labels"][:, 0]] == [["cat"], [], ["犬"]]
    header = json.loads(read["camapp"].item())
    assert [(layer["name"], layer["stored"], layer["dtype"]) for layer in header["layers"]] == [
        ("blocks.0:input", "blocks_0_input", "float16"),
        ("fc", "fc", "float16"),
    ]


def test_variables_of_mat_are_names_that_matlab_accepts(tmp_path: Path) -> None:
    layers = ["end", "0.conv", "_x", "names", "a.b", "a:b", "A_B", "猫", "m" * 100, "m" * 99]
    save_features(table_of(dict.fromkeys(layers, (1,)), ("a",)), tmp_path / "x.mat")
    found = [name for name, *_ in scipy.io.whosmat(tmp_path / "x.mat")]
    assert found[2:] == [
        "layer_end", "layer_0_conv", "layer__x", "names_2", "a_b", "a_b_2", "A_B_3", "layer__",
        "m" * 56, "m" * 56 + "_2",
    ]  # fmt: skip
