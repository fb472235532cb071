"""train_probe: a classifier of the user's own classes on the features of a backbone, tried on pictures kept apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from camapp.backbones.load import LoadedModel
from camapp.errors import StoppedError, UsageError
from camapp.features.probe import Probe, ProbeReport, evaluate_probe, fit_probe, split
from camapp.features.probe.fitting import check_settings
from camapp.features.saved import ProbeSettings, headed_model, save_probe
from camapp.features.table import FeatureTable
from camapp.hooks.selection import Pattern
from camapp.images.geometry import Fit, checked_fit
from camapp.sources.pictures import Source
from camapp.transfer.extraction import Progress, extract_features, is_cancelled, opened
from camapp.transfer.labels import check_labels


@dataclass(frozen=True)
class TrainedProbe:
    """A classifier with the backbone whose features it reads.

    Args:
        probe: the classifier of features.
        backbone: whose features they are.
        settings: which features they are.
        report: how it did on the pictures kept apart; None where none were.
        trained_on: names of the pictures that it was trained on.
        failures: pictures of the sources that could not be read: name and reason.
    """

    probe: Probe
    backbone: LoadedModel
    settings: ProbeSettings
    report: ProbeReport | None
    trained_on: tuple[str, ...]
    failures: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        told = (
            "" if self.report is None else f", accuracy {self.report.accuracy:.3f} on {self.report.pictures} pictures"
        )
        layers = " + ".join(self.settings.layers)
        what = f"{self.probe.kind} on {layers} of {self.backbone.name}"
        return f"TrainedProbe({what}, {len(self.probe.classes)} classes{told})"

    def model(self, name: str = "probe") -> LoadedModel:
        """Backbone and classifier as one model, for ``camapp.explain`` and all else that takes a model."""
        return headed_model(self.backbone, self.probe, self.settings, name)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write it as a file that ``camapp.load_model`` opens.

        Args:
            path: ends in ``.camapp``.
            overwrite: replace a file of that name.

        Raises:
            UsageError: another ending, a file that is there, or a backbone that has no card to be loaded by.
        """
        facts: dict[str, Any] = {"pictures": len(self.trained_on)}
        if self.report is not None:
            facts |= {
                "tested": self.report.pictures,
                "accuracy": self.report.accuracy,
                "balanced_accuracy": self.report.balanced_accuracy,
            }
        return save_probe(path, self.probe, self.backbone, self.settings, facts, overwrite=overwrite)


def train_probe(
    model: str | Path | LoadedModel,
    train: Source | FeatureTable,
    test: Source | FeatureTable | None = None,
    *,
    layers: Pattern | Sequence[Pattern] = "penultimate",
    pool: str = "auto",
    normalize: bool = False,
    kind: str = "linear",
    C: float | None = None,  # noqa: N803 - scikit-learn's name of it
    alpha: float | None = None,
    k: int | None = None,
    test_share: float = 0.25,
    seed: int = 0,
    fit: Fit | None = None,
    batch_size: int = 32,
    workers: int | None = None,
    progress: Progress = iter,
    cancel: Any | None = None,
) -> TrainedProbe:
    """Teach a frozen backbone your own classes, and see how well it tells them.

    Args:
        model: as for ``extract_features``.
        train: a folder with one subfolder a class, a table (.csv) of paths and labels, or features taken before by the
            same model, whose layers, pool, normalisation and fit then stand.
        test: the same, of pictures kept apart; where there are none, ``test_share`` of ``train`` is kept apart.
        layers: whose features; those of several layers are joined.
        pool: one of ``camapp.features.POOLS``.
        normalize: scale each picture's features of a layer to length 1 (L2).
        kind: ``"linear"``, ``"ridge"`` or ``"knn"``, as for ``camapp.features.probe.fit_probe``.
        C: as for ``fit_probe``; found by cross-validation by default.
        alpha: as for ``fit_probe``.
        k: as for ``fit_probe``.
        test_share: the share of ``train`` kept apart for the report, where there is no ``test``; 0 for none, so that
            the classifier learns from every picture and there is no report.
        seed: of the split and the cross-validation; the same seed gives the same classifier.
        fit: "crop", "letterbox" or "stretch"; the model card's own way by default.
        batch_size: pictures in one forward.
        workers: threads that decode pictures.
        progress: wraps the pictures' names, to show how far it is.
        cancel: as for ``extract_features``; asked before and after the fit too.

    Raises:
        UsageError: no labels, one class only, a class too small to be split, or an option that cannot be meant.
        LayerError, ModelError, WeightsError, DecodeError, StoppedError: as ``extract_features``.

    Example:
        >>> trained = camapp.train_probe("efficientnet_lite0", "clothing/train", "clothing/test")
        >>> print(trained.report.to_markdown())
        >>> trained.save("clothing.camapp")
        >>> camapp.explain("clothing.camapp", "shirt.jpg").overlay(0)
    """
    check_settings(kind, {"C": C, "alpha": alpha, "k": k})
    loaded = opened(model)
    how = None if fit is None else checked_fit(fit)
    options: dict[str, Any] = {
        "layers": layers,
        "pool": pool,
        "normalize": normalize,
        "fit": how,
        "batch_size": batch_size,
        "workers": workers,
        "progress": progress,
        "cancel": cancel,
    }
    parts = learn_and_try(loaded, train, test, test_share, seed, options)
    learnt, tried = parts.learnt, parts.tried
    _heed(cancel)
    probe = fit_probe(learnt.joined(), learnt.labels or (), kind=kind, C=C, alpha=alpha, k=k, seed=seed)
    _heed(cancel)
    settings = _settings(learnt, loaded)
    if kind == "knn" and len(learnt.layers) > 1 and not settings.normalize:
        note = "neighbours over several layers: that of the larger numbers decides, unless normalize=True (--normalize)"
        probe = replace(probe, notes=(*probe.notes, note))
    report = None if tried is None else evaluate_probe(probe, tried.joined(), tried.labels or (), tried.names)
    return TrainedProbe(probe, loaded, settings, report, learnt.names, parts.failures)


def _heed(cancel: Any | None) -> None:
    if is_cancelled(cancel):
        raise StoppedError("Stopped as asked; nothing was trained. The model is as it was.")


@dataclass(frozen=True)
class Parts:
    """Features to learn from, and features to try what was learnt on.

    Args:
        learnt: with labels.
        tried: with labels; None where no pictures are kept apart.
        failures: pictures of both that could not be read: name and reason.
    """

    learnt: FeatureTable
    tried: FeatureTable | None
    failures: tuple[tuple[str, str], ...]


def learn_and_try(
    model: LoadedModel,
    train: Source | FeatureTable,
    test: Source | FeatureTable | None,
    test_share: float,
    seed: int,
    options: dict[str, Any],
) -> Parts:
    """The labelled features of training and test pictures; without test pictures, of a share of the former kept apart.

    Args:
        model: the backbone.
        train: as for ``train_probe``.
        test: as for ``train_probe``.
        test_share: as for ``train_probe``.
        seed: of the split.
        options: for ``extract_features``.

    Raises:
        UsageError: as ``train_probe``.
    """
    check_labels(train, test)
    learnt = _table(model, train, options)
    if test is not None:
        if isinstance(train, FeatureTable) and not isinstance(test, FeatureTable):
            options = {**options, **_options_of(learnt, model)}
        tried = _table(model, test, options)
        _check_alike(learnt, tried)
        return Parts(learnt, tried, (*learnt.failures, *tried.failures))
    if test_share == 0:
        return Parts(learnt, None, learnt.failures)
    kept, apart = split(learnt.labels or (), test_share, seed)
    return Parts(learnt.rows(kept), learnt.rows(apart), learnt.failures)


def _options_of(table: FeatureTable, model: LoadedModel) -> dict[str, Any]:
    """What ``extract_features`` was told for a table."""
    facts = table.provenance
    fit = facts["input"]["fit"]
    return {
        "layers": table.layers,
        "pool": facts["pool"],
        "normalize": facts["normalize"],
        "fit": None if fit == model.card.preprocessing.fit else fit,
    }


def _settings(table: FeatureTable, model: LoadedModel) -> ProbeSettings:
    return ProbeSettings(**_options_of(table, model))


def _check_alike(learnt: FeatureTable, tried: FeatureTable) -> None:
    for what in ("pool", "normalize", "input"):
        if learnt.provenance[what] != tried.provenance[what]:
            raise UsageError(
                f"The features of train and test were not taken alike: {what} is {learnt.provenance[what]} for one and "
                f"{tried.provenance[what]} for the other. Take both the same way."
            )
    if learnt.layers != tried.layers:
        raise UsageError(
            f"The features of train are of {', '.join(learnt.layers)}, those of test of {', '.join(tried.layers)}. "
            "Take both from the same layers."
        )


def _table(model: LoadedModel, source: Source | FeatureTable, options: dict[str, Any]) -> FeatureTable:
    if not isinstance(source, FeatureTable):
        return extract_features(model, source, **options)
    missing = {"model", "weights", "input", "pool", "normalize"} - source.provenance.keys()
    if missing:
        raise UsageError(
            f"The features do not say how they were taken ({', '.join(sorted(missing))}): camapp.extract_features and "
            "load_features give such that do. camapp.features.probe.fit_probe takes plain arrays."
        )
    made_by = source.provenance["weights"].get("sha256"), source.provenance["model"]
    if model.card.weights is None:
        raise UsageError(
            f"{model.name} is a network given by hand: whether it is the one that took the features cannot be told. "
            "Give the pictures instead."
        )
    if made_by != (model.weights.sha256, model.name):
        raise UsageError(
            f"The features were taken by {made_by[1] or 'an unknown model'}, not by {model.name} with the weights that "
            "are loaded. Give the pictures instead, or load that model."
        )
    return source
