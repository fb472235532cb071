"""Which features tell the classes best."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from camapp.errors import UsageError
from camapp.features.probe import compare, evaluate_probe, fit_probe, split
from tests.features.probe.clouds import clouds


@pytest.mark.parametrize("kind", ["linear", "knn"])
def test_rows_are_those_of_probes_fitted_one_by_one(kind: str) -> None:
    features, labels = clouds(3, 20, 8, apart=0.8)
    candidates = {"all": features, "few": torch.from_numpy(features[:, :2])}
    train, test = split(labels)
    compared = compare(candidates, labels, train, test, kind=kind)
    assert (compared.trained, compared.tested, compared.kind) == (45, 15, kind)
    for row, (name, given) in zip(compared.rows, candidates.items(), strict=True):
        probe = fit_probe(given[train], [labels[place] for place in train], kind=kind)
        report = evaluate_probe(probe, given[test], [labels[place] for place in test])
        assert (row.name, row.size) == (name, given.shape[1])
        assert (row.accuracy, row.balanced_accuracy) == (report.accuracy, report.balanced_accuracy)
        assert 0 < row.seconds < 60


def test_the_table_has_the_best_first_and_the_smaller_of_those_alike() -> None:
    features, labels = clouds(2, 20, 4, apart=30)
    noise = np.random.default_rng(0).normal(size=(40, 3))
    train, test = split(labels)
    compared = compare({"noise": noise, "large": np.tile(features, 2), "small": features}, labels, train, test)
    assert compared.best.name == "small"
    lines = compared.to_markdown().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:5]] == ["| small", "| large", "| noise"]
    assert lines[2].startswith("| small | 4 | 100.0 % | 100.0 % | ")
    assert lines[-1] == (
        "Logistic regression, fitted on 30 pictures and tried on 10. One picture is 10.0 % of the accuracy."
    )
    assert [row["name"] for row in compared.to_dict()["rows"]] == ["noise", "large", "small"]


def test_what_cannot_be_compared_is_refused() -> None:
    features, labels = clouds(2, 6)
    train, test = split(labels)
    with pytest.raises(UsageError, match="No candidates"):
        compare({}, labels, train, test)
    with pytest.raises(UsageError, match=r'labels \(candidate "b"\) for 11 rows'):
        compare({"a": features, "b": features[1:]}, labels, train, test)
    bad = features.copy()
    bad[4, 2] = math.nan
    with pytest.raises(UsageError, match=r'features "b" hold NaN .* rows: 4'):
        compare({"a": features, "b": bad}, labels, train, test)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([0, 1, 2, 3], [3, 4], "1 rows are in train and in test, such as 3"),
        ([0, 1, 2, 12], [3], "train holds row 12; there are 12 pictures"),
        ([0, 1], [-1], "test holds row -1"),
        ([], [1], "train holds no rows"),
        ([0, 1], [0.5], "test holds no rows"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(train: list[int], test: list[int], message: str) -> None:
    features, labels = clouds(2, 6)
    with pytest.raises(UsageError, match=message):
        compare({"a": features}, labels, train, test)
