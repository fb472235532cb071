"""ProbeReport: how well a probe tells pictures it was not fitted on; shows and saves itself."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from camapp.errors import UsageError, closest
from camapp.features.probe.markdown import report_text
from camapp.features.probe.measures import (
    ClassMeasures,
    balanced_accuracy,
    class_measures,
    confusion_matrix,
    log_loss,
)
from camapp.features.probe.probe import Probe
from camapp.features.probe.reading import Features, indices, label_names, quoted
from camapp.files import check_report_folder, write_atomically, write_together

FILES = ("confusion.png", "misclassified.csv", "report.json", "report.md")


@dataclass(frozen=True)
class Misclassified:
    """A picture that was told wrong.

    Args:
        name: of the picture.
        label: the class that it is of.
        predicted: the class that the probe says.
        probability: of the predicted class, as the probe says; None where it has no probabilities.
    """

    name: str
    label: str
    predicted: str
    probability: float | None


@dataclass(frozen=True, eq=False)
class ProbeReport:
    """What ``evaluate_probe`` found.

    Args:
        kind: of the probe.
        settings: of the probe.
        notes: what a user should know.
        accuracy: the share of pictures told right.
        balanced_accuracy: the mean recall of the classes that have pictures here.
        log_loss: the mean of -log of the label's probability; None where the probe has no probabilities.
        measures: precision, recall, F1 and support of each class.
        confusion: (classes, classes) counts, a row a class that pictures are of, a column a class predicted.
        misclassified: the pictures told wrong, the most confident first.
    """

    kind: str
    settings: dict[str, Any]
    notes: tuple[str, ...]
    accuracy: float
    balanced_accuracy: float
    log_loss: float | None
    measures: tuple[ClassMeasures, ...]
    confusion: np.ndarray
    misclassified: tuple[Misclassified, ...]

    def __repr__(self) -> str:
        return f"ProbeReport({self.kind}, {self.pictures} pictures, accuracy {self.accuracy:.3f})"

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, sorted."""
        return tuple(one.name for one in self.measures)

    @property
    def pictures(self) -> int:
        """How many were told."""
        return int(self.confusion.sum())

    @property
    def majority(self) -> float:
        """The accuracy of naming the most frequent class for every picture: what a probe has to beat."""
        return max(one.support for one in self.measures) / self.pictures

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON, which has no NaN: undefined is None."""
        return {
            "kind": self.kind,
            "pictures": self.pictures,
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "majority": self.majority,
            "log_loss": self.log_loss,
            "classes": [_without_nan(asdict(one)) for one in self.measures],
            "confusion": self.confusion.tolist(),
            "misclassified": [asdict(one) for one in self.misclassified],
            "settings": self.settings,
            "notes": list(self.notes),
        }

    def to_markdown(self) -> str:
        """The report as text with tables."""
        return report_text(self)

    def confusion_png(self, path: str | os.PathLike[str] | None = None) -> bytes:
        """The confusion matrix as a PNG.

        Args:
            path: a file to write it to as well.
        """
        from camapp.features.probe.confusion import confusion_png  # matplotlib takes half a second to import

        content = confusion_png(self.confusion, self.classes)
        if path is not None:
            write_atomically(Path(path), content)
        return content

    def save(self, folder: str | os.PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write report.md, report.json, confusion.png and misclassified.csv, all or none.

        Args:
            folder: made if missing.
            overwrite: replace a report that is already there.

        Returns:
            The files.

        Raises:
            UsageError: there is a report already, or the folder is a file.
        """
        contents = {
            "confusion.png": self.confusion_png(),
            "misclassified.csv": _csv(self.misclassified),
            "report.json": json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False).encode(),
            "report.md": f"{self.to_markdown()}\n![Confusion matrix](confusion.png)\n".encode(),
        }
        check_report_folder(Path(folder), FILES, overwrite=overwrite)
        return write_together(Path(folder), contents)


def evaluate_probe(
    probe: Probe, features: Features, labels: Sequence[str], names: Sequence[str] | None = None
) -> ProbeReport:
    """Tell pictures with a probe, and compare with their labels.

    Args:
        probe: made by ``fit_probe`` on other pictures.
        features: (N, D) of the same model, layer and pooling.
        labels: N names of classes that the probe knows; it may know more.
        names: of the pictures; their rows by default.

    Raises:
        UsageError: lengths that differ, features of another size or not finite, or labels that the probe does not know.
    """
    scores = probe.scores(features)
    labels = label_names(labels, len(scores))
    unknown = sorted(set(labels) - set(probe.classes))
    if unknown:
        near = closest(unknown[0], probe.classes)
        raise UsageError(
            f"The probe was not fitted on {quoted(unknown)}. It knows {quoted(probe.classes)}."
            f"{f' Did you mean {near[0]}?' if near else ''} Leave those pictures out, or fit it on such pictures too."
        )
    names = list(map(str, range(len(scores)))) if names is None else label_names(names, len(scores), "names")
    targets, predicted = indices(labels, probe.classes), scores.argmax(1)
    confusion = confusion_matrix(targets, predicted, len(probe.classes))
    measures = class_measures(confusion, probe.classes)
    probabilities = probe.as_probabilities(scores)
    return ProbeReport(
        kind=probe.kind,
        settings=dict(probe.settings),
        notes=probe.notes,
        accuracy=float((targets == predicted).mean()),
        balanced_accuracy=balanced_accuracy(measures),
        log_loss=None if probabilities is None else log_loss(probabilities, targets),
        measures=measures,
        confusion=confusion,
        misclassified=_misclassified(probe.classes, targets, predicted, probabilities, names),
    )


def _misclassified(
    classes: Sequence[str],
    targets: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray | None,
    names: Sequence[str],
) -> tuple[Misclassified, ...]:
    wrong = [
        Misclassified(
            name=names[row],
            label=classes[targets[row]],
            predicted=classes[predicted[row]],
            probability=None if probabilities is None else float(probabilities[row, predicted[row]]),
        )
        for row in np.flatnonzero(targets != predicted).tolist()
    ]
    return tuple(sorted(wrong, key=lambda one: -(one.probability or 0.0)))


def _csv(wrong: Sequence[Misclassified]) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["name", "label", "predicted", "probability"])
    writer.writerows([one.name, one.label, one.predicted, one.probability] for one in wrong)
    return buffer.getvalue().encode()


def _without_nan(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in facts.items()}
