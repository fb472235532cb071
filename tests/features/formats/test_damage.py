"""Files cut short or with changed bytes: an error that says so, or the same table; never another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from camapp.errors import UsageError
from camapp.features.formats import FORMATS, load_features
from camapp.features.table import FeatureTable
from tests.features.formats.tables import assert_equal, table_of

TABLE = table_of(
    {"layer4": (40,), "score": ()}, tuple("abcdef"), labels=tuple("xyzxyz"), provenance={"model": "resnet18"}
)


def saved(folder: Path, form: str, table: FeatureTable) -> tuple[Path, list[Path]]:
    files = table.save(folder / "features", form)
    return (files[0] if form != "npy" else files[0].parent), files


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_cut_short_anywhere_is_refused(form: str, tmp_path: Path) -> None:
    path, files = saved(tmp_path, form, TABLE)
    for file in files:
        whole = file.read_bytes()
        for length in {0, 1, 8, *np.linspace(2, len(whole) - 1, 60).astype(int)}:
            file.write_bytes(whole[:length])
            try:
                found = load_features(path)
            except UsageError:
                continue
            # What ends a file may say nothing more, but then nothing is lost.
            assert_equal(found, TABLE)
            assert length > 0.9 * len(whole)
        file.write_bytes(whole)
        assert_equal(load_features(path), TABLE)


@pytest.mark.parametrize("form", FORMATS)
def test_changed_bytes_never_give_another_table(form: str, tmp_path: Path) -> None:
    path, files = saved(tmp_path, form, TABLE)
    random = np.random.default_rng(0)
    refused = 0
    for file in files:
        whole = file.read_bytes()
        for place in random.integers(0, len(whole), 150):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << int(random.integers(8))
            file.write_bytes(damaged)
            try:
                assert_equal(load_features(path), TABLE)
            except UsageError:
                refused += 1
        file.write_bytes(whole)
    assert refused > 20 * len(files)
