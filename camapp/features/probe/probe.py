"""Probe: a classifier on frozen features, as plain tensors that run in torch and go into files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from camapp.errors import UsageError
from camapp.features.probe.knn import Neighbours
from camapp.features.probe.parts import FORMAT, VERSION, check_parts
from camapp.features.probe.reading import Features, feature_matrix

# Features are scored in chunks of so many rows.
_ROWS = 4096


@dataclass(frozen=True, eq=False)
class Probe:
    """A classifier of features (D,), made by ``fit_probe``.

    Args:
        classes: the names of the classes, sorted; scores come in this order.
        kind: ``"linear"``, logistic regression; ``"ridge"``, ridge regression; or ``"knn"``, nearest neighbours.
        parameters: of the head. Linear and ridge: ``weight`` (classes, D) and ``bias`` (classes,), float32, on the
            features as they are, for the standardisation is folded in. kNN: ``features`` (N, D) float32, the training
            pictures' at unit length, and ``targets`` (N,) int64, their places among the classes.
        settings: ready for JSON: C, alpha or k and how it was chosen, the cross-validated accuracy, the seed, how many
            pictures it was fitted on.
        notes: what a user should know.
    """

    classes: tuple[str, ...]
    kind: str
    parameters: Mapping[str, Tensor]
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Probe({self.kind}, {len(self.classes)} classes, features of size {self.size})"

    @property
    def size(self) -> int:
        """D, the length of the features that it takes."""
        return self.parameters["features" if self.kind == "knn" else "weight"].shape[1]

    def head(self) -> nn.Module:
        """The probe as a module from features (B, D) to scores (B, classes), with tensors of its own.

        Its scores are differentiable with respect to the features. Linear: an ``nn.Linear`` whose softmax is the
        probabilities. Ridge: an ``nn.Linear`` of decision values. kNN: ``Neighbours``, the weighted votes; see there
        what their gradient means.
        """
        tensors = {name: tensor.clone() for name, tensor in self.parameters.items()}
        if self.kind == "knn":
            return Neighbours(tensors["features"], tensors["targets"], len(self.classes), self.settings["k"])
        linear = nn.Linear(self.size, len(self.classes), device="meta")
        linear.load_state_dict(tensors, assign=True)
        return linear

    def scores(self, features: Features) -> np.ndarray:
        """The head's scores (N, classes) float32 of features (N, D).

        Raises:
            UsageError: features of another size, or that are not finite.
        """
        matrix = feature_matrix(features)
        if matrix.shape[1] != self.size:
            raise UsageError(
                f"Features of size {matrix.shape[1]}; this probe was fitted on features of size {self.size}. Take "
                "those of the same model, layer and pooling."
            )
        head, rows = self.head(), torch.from_numpy(matrix.astype(np.float32))
        with torch.no_grad():
            return torch.cat([head(chunk) for chunk in rows.split(_ROWS)]).numpy()

    def probabilities(self, features: Features) -> np.ndarray | None:
        """The probability of each class (N, classes) float64; None for ridge, which has none.

        Linear: the softmax of the scores. kNN: a class's part of all votes; where there are none, all classes are
        equally probable.

        Raises:
            UsageError: as ``scores``.
        """
        return self.as_probabilities(self.scores(features))

    def as_probabilities(self, scores: np.ndarray) -> np.ndarray | None:
        """What ``probabilities`` makes of the head's scores (N, classes)."""
        if self.kind == "ridge":
            return None
        values = torch.from_numpy(scores).double()
        if self.kind == "linear":
            return values.softmax(1).numpy()
        total = values.sum(1, keepdim=True)
        return torch.where(total > 0, values / total, 1 / len(self.classes)).numpy()

    def predict(self, features: Features) -> list[str]:
        """The class of greatest score of each picture, the first of those alike.

        Raises:
            UsageError: as ``scores``.
        """
        return [self.classes[place] for place in self.scores(features).argmax(1)]

    def tensors(self) -> dict[str, Tensor]:
        """The parameters, to be written by safetensors."""
        return dict(self.parameters)

    def facts(self) -> dict[str, Any]:
        """All but the parameters, ready for JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "classes": list(self.classes),
            "settings": dict(self.settings),
            "notes": list(self.notes),
        }

    @classmethod
    def from_parts(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Probe:
        """The probe that ``tensors()`` and ``facts()`` came from.

        Raises:
            ModelError: they are damaged, do not belong together, or are of a later version.
        """
        check_parts(tensors, facts)
        return cls(
            classes=tuple(facts["classes"]),
            kind=facts["kind"],
            parameters=dict(tensors),
            settings=dict(facts["settings"]),
            notes=tuple(facts["notes"]),
        )
