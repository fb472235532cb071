"""Which format a path means, what is refused, and that nothing is replaced or left half."""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from camapp.errors import UsageError
from camapp.features.formats import FORMATS, load_features, npy
from camapp.features.table import FeatureTable
from tests.features.formats.tables import assert_equal, table_of

OLD = table_of({"x": (2,), "y": ()}, ("old.jpg",), labels=("cat",))
NEW = table_of({"x": (2,)}, ("new.jpg", "b.jpg"))

every_format = pytest.mark.parametrize("form", FORMATS)


def path_of(folder: Path, form: str) -> Path:
    return folder / f"features{(FORMATS[form].suffixes or ('',))[0]}"


def found(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("name", "form", "written"),
    [
        ("x.parquet", None, "x.parquet"),
        ("x.NPZ", None, "x.NPZ"),
        ("x.hdf5", None, "x.hdf5"),
        ("x.h5", None, "x.h5"),
        ("x", None, "x.parquet"),
        ("x", "mat", "x.mat"),
        ("x.run1", "csv", "x.run1"),
        ("deep/er/x.safetensors", None, "deep/er/x.safetensors"),
    ],
)
def test_the_suffix_names_the_format(name: str, form: str | None, written: str, tmp_path: Path) -> None:
    files = OLD.save(tmp_path / name, form)
    assert files[0] == tmp_path / written
    assert set(found(tmp_path)) == {str(file.relative_to(tmp_path)) for file in files}
    assert_equal(load_features(files[0]), OLD)


@pytest.mark.parametrize(
    ("name", "form", "message"),
    [
        ("x.parquet", "parket", r'No format is called "parket". Did you mean parquet\?'),
        ("x.pkl", None, r'No format has the suffix ".pkl".*\.safetensors'),
        ("x.npy", None, 'A folder of .npy files is format="npy"'),
        ("x.csv", "npz", r'has the suffix of a CSV file, but format="npz"'),
        (".", None, 'is a folder. Name a file in it, or give format="npy"'),
        ("folder.h5", "hdf5", "is a folder and cannot become an HDF5 file"),
        ("taken", "npy", r"is a file and cannot become a folder of \.npy files"),
    ],
)
def test_a_path_that_cannot_be_meant_is_refused(name: str, form: str | None, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.h5").mkdir()
    (tmp_path / "taken").write_bytes(b"mine")
    with pytest.raises(UsageError, match=message):
        OLD.save(tmp_path / name, form, overwrite=True)
    assert found(tmp_path) == {"taken": b"mine"}


@every_format
def test_what_is_there_is_replaced_only_when_asked(form: str, tmp_path: Path) -> None:
    path = path_of(tmp_path, form)
    OLD.save(path, form)
    before = found(tmp_path)
    with pytest.raises(UsageError, match=r"is there already\. Give another name, or replace it: overwrite=True"):
        NEW.save(path, form)
    assert found(tmp_path) == before
    files = NEW.save(path, form, overwrite=True)
    assert_equal(load_features(path), NEW)
    assert set(found(tmp_path)) == {str(file.relative_to(tmp_path)) for file in files}


@every_format
def test_a_write_that_fails_leaves_what_was_there(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_of(tmp_path, form)
    OLD.save(path, form)
    before = found(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    monkeypatch.setattr(npy, "csv_lines", full)
    with pytest.raises(OSError, match="No space left"):
        NEW.save(path, form, overwrite=True)
    assert found(tmp_path) == before


@every_format
def test_files_have_the_rights_of_any_new_file(form: str, tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    (tmp_path / "deep").mkdir()
    for file in OLD.save(path_of(tmp_path, form), form):
        assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode
        if form == "npy":
            assert file.parent.stat().st_mode == (tmp_path / "deep").stat().st_mode


def test_an_empty_folder_becomes_one_of_features(tmp_path: Path) -> None:
    OLD.save(tmp_path, "npy")
    assert_equal(load_features(tmp_path), OLD)


@pytest.mark.parametrize("name", ["notes.txt", "z.npy"])
def test_a_folder_with_other_files_is_never_replaced(name: str, tmp_path: Path) -> None:
    OLD.save(tmp_path / "x", "npy")
    (tmp_path / "x" / name).write_text("mine")
    with pytest.raises(UsageError, match=f"not of its features, such as '{name}'"):
        NEW.save(tmp_path / "x", "npy", overwrite=True)
    (tmp_path / "y").mkdir()
    (tmp_path / "y" / name).write_text("mine")
    with pytest.raises(UsageError, match=f"not of its features, such as '{name}'"):
        NEW.save(tmp_path / "y", "npy", overwrite=True)
    assert (tmp_path / "x" / name).read_text() == (tmp_path / "y" / name).read_text() == "mine"


@every_format
def test_files_of_somebody_else_are_called_so(form: str, tmp_path: Path) -> None:
    import h5py
    import scipy.io
    from safetensors.numpy import save_file

    path, values = path_of(tmp_path, form), np.ones((2, 3), np.float32)
    if form == "parquet":
        pd.DataFrame(values, columns=list("abc")).to_parquet(path)
    elif form == "npy":
        path.mkdir()
        np.save(path / "x.npy", values)
    elif form == "npz":
        np.savez(path, x=values)
    elif form == "safetensors":
        save_file({"x": values}, path)
    elif form == "hdf5":
        with h5py.File(path, "w") as file:
            file["x"] = values
    elif form == "csv":
        pd.DataFrame(values, columns=list("abc")).to_csv(path)
    else:
        scipy.io.savemat(path, {"x": values})
    with pytest.raises(UsageError, match=r"features.*: not written by camapp.* Read it with a library of its format"):
        load_features(path)


@every_format
def test_files_of_a_later_version_say_so(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from camapp.features.formats import header

    path = path_of(tmp_path, form)
    with monkeypatch.context() as later:
        later.setattr(header, "VERSION", 2)
        OLD.save(path, form)
    with pytest.raises(UsageError, match=r"written by a later camapp \(version 2 .* reads 1\).*pip install --upgrade"):
        load_features(path)


def test_facts_of_a_later_camapp_that_this_one_does_not_know_are_left_out(tmp_path: Path) -> None:
    OLD.save(tmp_path / "x", "npy")
    header = json.loads((tmp_path / "x" / "features.json").read_text())
    del header["crc32"]
    header["mood"] = "good"
    header["layers"][0]["info"]["colour"] = "red"
    header["crc32"] = zlib.crc32(json.dumps(header).encode())
    (tmp_path / "x" / "features.json").write_text(json.dumps(header))
    assert_equal(load_features(tmp_path / "x"), OLD)


def test_a_file_under_the_suffix_of_another_format_says_what_it_is(tmp_path: Path) -> None:
    for form in FORMATS:
        if form == "npy":
            continue
        (file, *_) = OLD.save(path_of(tmp_path / form, form))
        wrong = "npz" if form != "npz" else "mat"
        other = file.rename(file.with_suffix(f".{wrong}"))
        with pytest.raises(
            UsageError, match=rf"is {FORMATS[form].title} under the suffix of .* Rename it to features\."
        ):
            load_features(other)
        other.rename(file)
        assert_equal(load_features(file), OLD)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.parquet", b"", r"is empty \(0 bytes\)"),
        ("x.parquet", b"\xff\xd8\xff\xe0 a JPEG", r"damaged, cut short, or not a Parquet file at all"),
        ("x.npz", b"\xff\xd8\xff\xe0 a JPEG", "damaged, cut short, or not an .npz file at all"),
        ("x.h5", b"text", "damaged, cut short, or not an HDF5 file at all"),
        ("x.mat", b"text", "damaged, cut short, or not a MATLAB file at all"),
        ("x.safetensors", b"text", "damaged, cut short, or not a safetensors file at all"),
        ("x.jpg", b"\xff\xd8\xff\xe0 a JPEG", r"is no file of features: it begins with .* reads \.parquet"),
        ("x.csv", b"a,b\n1,2\n", "not written by camapp"),
    ],
)
def test_other_files_are_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_features(tmp_path / name)


def test_a_path_with_nothing_there_is_an_error_that_knows_a_folder_put_aside(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There are no features at .*x\. Check the path"):
        load_features(tmp_path / "x")
    OLD.save(tmp_path / "x", "npy")
    (tmp_path / "x").rename(tmp_path / ".x.0123456789ab.old")
    with pytest.raises(UsageError, match=r"An earlier one is whole in .*\.x\.0123456789ab\.old: rename it"):
        load_features(tmp_path / "x")


def test_errors_of_the_operating_system_stay_what_they_are(tmp_path: Path) -> None:
    (file,) = OLD.save(tmp_path / "x.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
        with pytest.raises(PermissionError):
            load_features(file)


def test_hdf5_without_h5py_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = OLD.save(tmp_path / "x.h5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    for call in (lambda: load_features(file), lambda: OLD.save(tmp_path / "y.h5")):
        with pytest.raises(UsageError, match=r'HDF5 needs h5py: pip install "camapp\[hdf5\]"'):
            call()


def test_what_a_format_cannot_hold_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from camapp.features.formats import mat, safetensors

    monkeypatch.setattr(mat, "LARGEST_BYTES", 7)
    with pytest.raises(UsageError, match=r'"x" takes 8 bytes.* Write HDF5'):
        OLD.save(tmp_path / "x.mat")
    monkeypatch.setattr(safetensors, "LONGEST_HEADER", 200_100)
    with pytest.raises(UsageError, match=r"names of 1 pictures do not fit into the header.* Write Parquet"):
        OLD.save(tmp_path / "x.safetensors")
    assert found(tmp_path) == {}


def test_safetensors_reads_a_header_as_long_as_the_limit_lets_through(tmp_path: Path) -> None:
    names = tuple(f"{number:06d}\\{'x' * 900}" for number in range(100_000))
    table = FeatureTable(names, {"x": np.zeros((100_000, 1), np.float16)}, table_of({"x": (1,)}, ()).info)
    (file,) = table.save(tmp_path / "x.safetensors")
    assert file.stat().st_size > 90_000_000
    assert load_features(file).names == names
