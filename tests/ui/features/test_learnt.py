"""A classifier as it is kept: counted in bytes, without what it was made of, and offered once however often opened."""

from __future__ import annotations

import gc
import json
import tempfile
import weakref
from pathlib import Path

import pytest

from camapp.errors import UsageError
from camapp.features.table import FeatureTable
from camapp.transfer import train_probe
from camapp.ui.environment import private_folder
from camapp.ui.features import extracting
from camapp.ui.features.downloads import keep_probe, probe_file, report_zip
from camapp.ui.features.learnt import Learnt
from camapp.ui.features.summary_view import summary_of
from camapp.ui.frame.kept import Kept
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.results import Results
from tests.ui.features.made import coloured_zip


@pytest.fixture(scope="module")
def table(pool: ModelPool, tmp_path_factory: pytest.TempPathFactory) -> FeatureTable:
    archive = coloured_zip(tmp_path_factory.mktemp("learnt") / "colours.zip", 3)
    request = extracting.Request((str(archive),), pool.default)
    return extracting.extract(pool, request, progress=lambda *_: None, cancel=lambda: False).table


def learnt(pool: ModelPool, table: FeatureTable, kind: str = "linear") -> Learnt:
    return Learnt(train_probe(pool.load(pool.default, slow=True), table, kind=kind), pool.default, "colours")


def test_it_counts_the_tensors_of_the_classifier(pool: ModelPool, table: FeatureTable) -> None:
    linear, neighbours = learnt(pool, table), learnt(pool, table, "knn")
    confusion = 3 * 3 * 8
    assert linear.bytes == 4 * (3 * 1280 + 3) + confusion
    kept = len(neighbours.trained.trained_on)
    assert neighbours.bytes == kept * (4 * 1280 + 8) + confusion


def test_what_is_kept_of_it_has_a_size_and_holds_no_features(pool: ModelPool, table: FeatureTable) -> None:
    copy = FeatureTable(table.names, dict(table.features), table.info, table.labels, table.provenance)
    one, alive = learnt(pool, copy, "knn"), weakref.ref(copy)
    results = Results()
    downloads = keep_probe(results, one, "me")
    del copy
    gc.collect()
    assert alive() is None
    assert sum(result.size for result in results._kept.things()) == one.bytes > 4 * 1280
    assert downloads["probe"] == "colours.camapp"


def test_however_often_it_is_opened_one_model_is_offered(pool: ModelPool, table: FeatureTable) -> None:
    one, other, before = learnt(pool, table), learnt(pool, table), len(pool._trained)
    names = {one.offered(pool, "me") for _ in range(3)}
    assert len(names) == 1
    assert len(pool._trained) == before + 1
    assert pool.labels(names.pop()) == ("blue", "green", "red")
    assert other.offered(pool, "me") != one.offered(pool, "me")


def test_a_model_that_made_room_is_offered_anew(
    pool: ModelPool, table: FeatureTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = learnt(pool, table)
    first = one.offered(pool, "me")
    monkeypatch.setattr(pool, "_trained", Kept("gone"))
    assert one.offered(pool, "me") != first
    assert pool.is_loaded(one.offered(pool, "me"))


def test_the_name_that_nobody_guesses_stands_in_no_call_and_no_result(
    pool: ModelPool, table: FeatureTable, tmp_path: Path
) -> None:
    name = learnt(pool, table).offered(pool, "me")
    request = extracting.Request((str(coloured_zip(tmp_path / "more.zip", 2)),), name)
    found = extracting.extract(pool, request, progress=lambda *_: None, cancel=lambda: False)
    assert "colours.camapp" in found.model.hint
    assert found.table.provenance["model"] == "colours.camapp"
    summary = summary_of(found, "token", "files")
    secret = name.removeprefix("colours classifier-")
    assert secret not in json.dumps([summary, found.table.provenance])
    assert "'colours.camapp'" in summary["code"]["python"]
    assert "--model colours.camapp " in summary["code"]["command"]


def test_downloads_write_nothing_outside_the_private_folder(
    pool: ModelPool, table: FeatureTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = learnt(pool, table).trained
    private_folder()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert probe_file(trained)
    assert report_zip(trained)


def test_two_long_labels_that_differ_late_are_refused_not_made_one(table: FeatureTable) -> None:
    first, second = table.names[:2]
    with pytest.raises(UsageError, match=f'A label has 61 characters.*"{first},xxx'):
        extracting.labelled(table, f"{first},{'x' * 60}1\n{second},{'x' * 60}2")
    folders = table.with_labels(["x" * 60 + str(row % 2) for row in range(len(table))])
    with pytest.raises(UsageError, match=f'61 characters.*"{first}"'):
        extracting.labelled(folders, "")
