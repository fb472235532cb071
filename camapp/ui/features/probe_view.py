"""How well a trained classifier tells pictures kept apart: figures, confusion matrix, and the pictures told wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gradio as gr

from camapp.features.probe import ProbeReport
from camapp.transfer import TrainedProbe
from camapp.ui.features.code import train_code
from camapp.ui.features.extracting import Extraction
from camapp.ui.features.map_view import sprite_of
from camapp.ui.frame.component import view

# A matrix of more classes is no table that anybody reads, and a page of that many cells is slow.
MOST_CLASSES = 60
MOST_MISTAKES = 200

_HERE = Path(__file__).parent
_KINDS = {"linear": "Logistic regression", "ridge": "Ridge regression", "knn": "Nearest neighbours"}
_SETTINGS = {"linear": "C", "ridge": "alpha", "knn": "k"}


def probe_view(**options: Any) -> gr.HTML:
    """The component; its value is made by ``probe_of``, or ``{"error": message}``, or None. It triggers ``explain``."""
    return view(
        _HERE,
        "probe_view",
        html_template='<section class="probe" aria-label="Classifier" data-state="empty"></section>',
        **options,
    )


def probe_of(
    trained: TrainedProbe, extraction: Extraction, test_share: float, token: str, downloads: dict[str, Any]
) -> dict[str, Any]:
    """What the view shows: plain data, which the page writes as text and never as HTML.

    Args:
        trained: the classifier, with its report.
        extraction: of the features that it was trained on.
        test_share: of the pictures that were kept apart.
        token: of the classifier.
        downloads: ``files``, the token of its files, and their names: ``probe`` (None where it cannot be saved, with a
            ``reason``) and ``report``.
    """
    report = trained.report
    assert report is not None  # a share is always kept apart here
    right = int(report.confusion.diagonal().sum())
    wrong = report.misclassified[:MOST_MISTAKES]
    row_of = {name: row for row, name in enumerate(extraction.table.names)}
    return {
        "title": f"{_KINDS[trained.probe.kind]} on {' + '.join(trained.settings.layers)} of {trained.backbone.name}",
        "figures": [
            ["Accuracy", _percent(report.accuracy), f"{right} of {report.pictures} test pictures"],
            ["Majority baseline", _percent(report.majority), "always the commonest class"],
            ["Balanced accuracy", _percent(report.balanced_accuracy), "mean recall of the classes"],
            ["Trained on", str(len(trained.trained_on)), f"pictures of {len(report.classes)} classes"],
        ],
        "setting": _setting(trained),
        "notes": list(trained.probe.notes),
        "classes": list(report.classes),
        "confusion": report.confusion.tolist() if len(report.classes) <= MOST_CLASSES else None,
        "measures": _measures(report),
        "mistakes": [
            {
                "name": one.name,
                "label": one.label,
                "predicted": one.predicted,
                "probability": "" if one.probability is None else _percent(one.probability),
            }
            for one in wrong
        ],
        "more": len(report.misclassified) - len(wrong),
        "sprite": sprite_of([extraction.thumbnails[row_of[one.name]] for one in wrong]),
        "code": train_code(extraction.request, extraction.model, extraction.stem, trained.probe.kind, test_share),
        "downloads": downloads,
        "token": token,
    }


def _measures(report: ProbeReport) -> list[list[str]]:
    return [
        [one.name, *(_share(value) for value in (one.precision, one.recall, one.f1)), str(one.support)]
        for one in report.measures
    ]


def _setting(trained: TrainedProbe) -> str:
    name, settings = _SETTINGS[trained.probe.kind], trained.probe.settings
    chosen = f", chosen by {settings['chosen_by']}" if "chosen_by" in settings else ""
    return f"{name} = {settings[name]:g}{chosen}"


def _share(value: float) -> str:
    return "–" if math.isnan(value) else _percent(value)


def _percent(share: float) -> str:
    return f"{share:.1%}"
