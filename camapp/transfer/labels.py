"""What the labels of training and test pictures must be, told before any picture is decoded."""

from __future__ import annotations

import os
from pathlib import Path

from camapp.errors import UsageError
from camapp.features.table import FeatureTable
from camapp.sources.pictures import Source, find_pictures

# The label of each picture, by its path, or by its name in a table of features.
_Labels = dict[str | Path, str]


def check_labels(train: Source | FeatureTable, test: Source | FeatureTable | None) -> None:
    """Refuse what no classifier can be learnt from, or tried on.

    Args:
        train: as for ``train_probe``.
        test: as for ``train_probe``.

    Raises:
        UsageError: a picture without a label, one class only, a class that only test has, or pictures that are in both.
    """
    learnt = _labels("train", train)
    classes = set(learnt.values())
    if len(classes) < 2:
        raise UsageError(f"All pictures of train are of one class, {next(iter(classes), '')!r}. It takes two or more.")
    if test is None:
        return
    tried = _labels("test", test)
    unknown = sorted(set(tried.values()) - classes)
    if unknown:
        raise UsageError(
            f"Pictures of test are of classes that train has none of: {', '.join(unknown[:5])}. Train has "
            f"{', '.join(sorted(classes)[:20])}. Leave them out, or train on such pictures too."
        )
    shared = sorted(path for path in learnt.keys() & tried.keys() if isinstance(path, Path))
    if shared:
        raise UsageError(
            f"{len(shared)} picture(s) are in train and in test, such as {shared[0]}: what was learnt by heart tells "
            "nothing. Keep test pictures apart, or leave test out."
        )


def _labels(what: str, source: Source | FeatureTable) -> _Labels:
    labels: _Labels
    if isinstance(source, FeatureTable):
        labels = {name: label for name, label in zip(source.names, source.labels or (), strict=False) if label}
        loose = next((name for name in source.names if name not in labels), None)
    else:
        pictures = find_pictures(source)
        labels = {Path(os.path.realpath(one.path)): one.label for one in pictures if one.label is not None}
        loose = next((one.name for one in pictures if one.label is None), None)
    if loose is not None:
        raise UsageError(
            f"Pictures of {what} have no labels, such as {loose}. Sort them into one subfolder a class, or give a "
            "table (.csv) with the columns path and label."
        )
    return labels
