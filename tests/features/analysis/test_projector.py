"""The Embedding Projector's files: read back as the projector reads them, all or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.errors import UsageError
from camapp.features.analysis import save_projector


def read_tensors(folder: Path) -> np.ndarray:
    lines = (folder / "tensors.tsv").read_text().split("\n")
    assert lines.pop() == ""
    return np.array([[np.float32(value) for value in line.split("\t")] for line in lines])


def read_metadata(folder: Path) -> list[list[str]]:
    lines = (folder / "metadata.tsv").read_bytes().decode().split("\n")
    assert lines.pop() == ""
    return [line.split("\t") for line in lines]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_numbers_read_back_equal(tmp_path: Path, dtype: type) -> None:
    rng = np.random.default_rng(0)
    some = (rng.normal(size=(20, 7)) * 10.0 ** rng.integers(-4, 4, (20, 7))).astype(dtype)
    some[0] = [0, -0.0, 1, -1, np.finfo(dtype).max, np.finfo(dtype).tiny, 1 / 3]
    files = save_projector(tmp_path / "new" / "folder", some, range(20))
    np.testing.assert_array_equal(read_tensors(tmp_path / "new" / "folder"), some.astype(np.float32))
    assert [path.name for path in files] == ["tensors.tsv", "metadata.tsv", "projector_config.pbtxt"]
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(p.name for p in files)


def test_one_column_has_no_header_and_several_have_one(tmp_path: Path) -> None:
    some = torch.ones(2, 3)
    save_projector(tmp_path / "a", some, ["x.jpg", "y.jpg"])
    assert read_metadata(tmp_path / "a") == [["x.jpg"], ["y.jpg"]]
    save_projector(tmp_path / "b", some, ["x.jpg", "y.jpg"], [3, 4])
    assert read_metadata(tmp_path / "b") == [["name", "label"], ["x.jpg", "3"], ["y.jpg", "4"]]
    save_projector(tmp_path / "c", some, ["x.jpg", "y.jpg"], {"class": ["a", "b"], "split": ["train", "val"]})
    assert read_metadata(tmp_path / "c") == [
        ["name", "class", "split"],
        ["x.jpg", "a", "train"],
        ["y.jpg", "b", "val"],
    ]


@given(names=st.lists(st.text(max_size=8), min_size=1, max_size=6), labelled=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_name_is_one_cell_of_one_line(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], labelled: bool
) -> None:
    folder = tmp_path_factory.mktemp("projector")
    save_projector(folder, np.zeros((len(names), 1)), names, names if labelled else None)
    lines = (folder / "metadata.tsv").read_bytes().decode().splitlines()  # ends lines at all that may end one
    assert len(lines) == len(names) + labelled
    assert {line.count("\t") for line in lines} == {int(labelled)}
    assert all(line.strip() for line in lines)


def test_tabs_and_line_ends_are_escaped_and_empty_names_numbered(tmp_path: Path) -> None:
    names = ["a\tb", "c\nd", "e\r\nf", "g\u2028h", "", "猫.jpg", "C:\\x"]
    save_projector(tmp_path, np.zeros((7, 1)), names)
    assert read_metadata(tmp_path) == [
        ["a\\tb"],
        ["c\\nd"],
        ["e\\r\\nf"],
        ["g\\u2028h"],
        ["row 4"],
        ["猫.jpg"],
        ["C:\\x"],
    ]


def test_names_of_files_that_are_not_utf8_can_be_written(tmp_path: Path) -> None:
    save_projector(tmp_path, np.zeros((1, 1)), [b"caf\xe9.jpg".decode(errors="surrogateescape")])
    assert read_metadata(tmp_path) == [["caf\\udce9.jpg"]]


def test_tensorboards_configuration_names_both_files(tmp_path: Path) -> None:
    save_projector(tmp_path, np.zeros((1, 1)), ["a"])
    text = (tmp_path / "projector_config.pbtxt").read_text()
    assert 'tensor_path: "tensors.tsv"' in text
    assert 'metadata_path: "metadata.tsv"' in text


def test_files_there_are_not_replaced_unasked(tmp_path: Path) -> None:
    save_projector(tmp_path, np.zeros((1, 1)), ["a"])
    with pytest.raises(UsageError, match=r"holds a report already .*overwrite=True"):
        save_projector(tmp_path, np.ones((1, 1)), ["b"])
    assert read_metadata(tmp_path) == [["a"]]
    save_projector(tmp_path, np.ones((2, 1)), ["b", "c"], overwrite=True)
    assert read_metadata(tmp_path) == [["b"], ["c"]]
    assert read_tensors(tmp_path).tolist() == [[1], [1]]


def test_a_failed_write_leaves_the_files_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_projector(tmp_path, np.zeros((1, 1)), ["a"])
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if "metadata" in path.name:
            raise OSError("no space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        save_projector(tmp_path, np.ones((1, 1)), ["b"], overwrite=True)
    assert read_tensors(tmp_path).tolist() == [[0]]
    assert read_metadata(tmp_path) == [["a"]]
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("some", "names", "labels", "message"),
    [
        (np.zeros((2, 1)), ["a"], None, '2 rows and the column "name" has 1'),
        (np.zeros((2, 1)), ["a", "b"], [1], '2 rows and the column "label" has 1'),
        (np.zeros((2, 1)), ["a", "b"], {"name": [1, 2]}, 'called "name"'),
        (np.full((1, 1), np.nan), ["a"], None, "NaN"),
        (np.full((1, 1), 1e300), ["a"], None, "beyond float32"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, some: np.ndarray, names: list[str], labels: object, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        save_projector(tmp_path / "new", some, names, labels)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        save_projector(tmp_path / "file", np.zeros((1, 1)), ["a"])
