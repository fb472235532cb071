"""packed: every format as one file, which reads back equal."""

from __future__ import annotations

import io
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from camapp.errors import UsageError
from camapp.features.formats import FORMATS, load_features
from camapp.features.formats.packed import missing_for, packed
from tests.features.formats.tables import assert_equal, table_of

TABLE = table_of({"a": (3,), "b/c": (2, 2)}, ("x.jpg", "y.jpg"), labels=("cat", "dog"))


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_packed_reads_back_equal(form: str, tmp_path: Path) -> None:
    name, content = packed(TABLE, form, "photos")
    if name.endswith(".zip"):
        zipfile.ZipFile(io.BytesIO(content)).extractall(tmp_path)
        read = tmp_path / ("photos" if form == "npy" else f"photos.{form}")
    else:
        read = tmp_path / name
        read.write_bytes(content)
    assert name.startswith("photos.")
    assert_equal(load_features(read), TABLE)


def test_the_projectors_files_lie_in_a_folder_a_layer() -> None:
    name, content = packed(TABLE, "projector")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert name == "features.projector.zip"
        assert {entry.partition("/")[0] for entry in archive.namelist()} == {"layer-1", "layer-2"}
        assert archive.read("layer-1/tensors.tsv").decode().splitlines()[0].split("\t") == ["0.5", "1.5", "2.5"]
        assert archive.read("layer-1/metadata.tsv").decode().splitlines() == ["name\tlabel", "x.jpg\tcat", "y.jpg\tdog"]


def test_the_same_table_is_the_same_bytes() -> None:
    assert packed(TABLE, "npy") == packed(TABLE, "npy")


def test_no_such_format_is_refused() -> None:
    with pytest.raises(UsageError, match=r'No format is called "parket"\. Did you mean parquet'):
        packed(TABLE, "parket")


def test_a_format_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_for("parquet") is None
    assert missing_for("hdf5") is None
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert missing_for("hdf5") == 'HDF5 needs h5py: pip install "camapp[hdf5]"'
    with pytest.raises(UsageError, match=r"camapp\[hdf5\]"):
        packed(TABLE, "hdf5")


@pytest.mark.parametrize("form", ["npy", "parquet", "projector"])
def test_what_is_written_on_the_way_lies_in_the_folder_given_and_is_removed(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert packed(TABLE, form, "photos", tmp_path)[1]
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        packed(TABLE, form, "photos")
