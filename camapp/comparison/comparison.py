"""Comparison: the maps of several methods and layers side by side, and how far they agree."""

from __future__ import annotations

import base64
import html
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from camapp.cam.methods import METHODS
from camapp.cam.metrics.similarity import overlap_matrix, spearman_matrix
from camapp.comparison.saving import SavedComparison, save_comparison
from camapp.explanation import Explanation, Prediction
from camapp.files import safe_stem
from camapp.images.decode import Picture
from camapp.images.geometry import Geometry
from camapp.images.render import ALPHA, png_bytes
from camapp.images.sheet import Tile, contact_sheet

# The part of the pixels that counts as the hottest, where maps are asked how far they overlap.
HOTTEST = 0.2
TILE_SIDE = 300
OWN_CHOICE, WHOLE_NETWORK = "own choice of layer", "whole network"


@dataclass(frozen=True, eq=False)
class Cell:
    """One method at one layer.

    Args:
        method: the method's name.
        layer: the layer asked for; None where the method chose its own, or looks at the whole network.
        explanation: what it gave, of one class; None where it gave nothing.
        reason: why it gave nothing.
    """

    method: str
    layer: str | None
    explanation: Explanation | None
    reason: str | None = None

    @property
    def title(self) -> str:
        """Method and layer in words."""
        return f"{METHODS[self.method].title} · {self.where}"

    @property
    def where(self) -> str:
        """The layers looked at."""
        looked_at = self.explanation.layer if self.explanation else self.layer
        return looked_at or (OWN_CHOICE if METHODS[self.method].takes_layer else WHOLE_NETWORK)


@dataclass(frozen=True, eq=False)
class Comparison:
    """One class of one picture, explained in N cells.

    Args:
        picture: the picture.
        model: the model's name.
        weights: where its weights come from, their SHA-256, and whether they are random.
        methods: names, in the order asked for.
        layers: in the order asked for; None is each method's own choice.
        cells: row by row: a method's layers beside each other, one cell for a method of the whole network.
        target: the class explained in all of them.
        predictions: the five likeliest classes.
        geometry: how the model's input lies in the picture.
        notes: what was done to the picture, and what to know about the maps.
        seconds: time for all.
    """

    picture: Picture
    model: str
    weights: dict[str, Any]
    methods: tuple[str, ...]
    layers: tuple[str | None, ...]
    cells: tuple[Cell, ...]
    target: Prediction
    predictions: tuple[Prediction, ...]
    geometry: Geometry
    notes: tuple[str, ...]
    seconds: float

    def __len__(self) -> int:
        return len(self.cells)

    def cell(self, method: str, layer: str | None = None) -> Cell | None:
        """The cell of a method and a layer as they were asked for; None where there is none."""
        return next((cell for cell in self.cells if (cell.method, cell.layer) == (method, layer)), None)

    @cached_property
    def correlation(self) -> np.ndarray:
        """(N, N) float64: Spearman's rank correlation of each two maps, at the size of the model's input.

        NaN where a cell has no map, or one that is the same everywhere.
        """
        return self._matrix(spearman_matrix)

    @cached_property
    def overlap(self) -> np.ndarray:
        """(N, N) float64 in [0, 1]: of each two maps' hottest 20 % of pixels, the intersection over the union.

        At the size of the model's input; pixels of value 0 are never hot. NaN where a cell has no map, or a blank one.
        """
        return self._matrix(lambda maps: overlap_matrix(maps, HOTTEST))

    def sheet(self, *, alpha: float = ALPHA, colormap: str = "viridis") -> Image.Image:
        """All overlays on one contact sheet: a row a method, or rows of four where there is one layer.

        Args:
            alpha: as in ``Explanation.overlay``.
            colormap: as in ``Explanation.overlay``.
        """
        across = len(self.layers) if len(self.layers) > 1 else min(4, len(self.methods))
        size = self.picture.no_larger_than(TILE_SIDE).size
        tiles = [self._tile(cell, alpha, colormap) for cell in self._in_places()]
        title = f"{self.picture.name}: {self.target} · {self.model}"
        return contact_sheet(tiles, across, size=size, title=title, colormap=colormap)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        stem: str | None = None,
        alpha: float = ALPHA,
        colormap: str = "viridis",
    ) -> SavedComparison:
        """Write each cell's overlay, the contact sheet, ``comparison.json``, ``correlation.csv`` and ``overlap.csv``.

        Args:
            folder: made if missing.
            stem: how the names of pictures begin; the picture's name by default.
            alpha: as in ``Explanation.overlay``.
            colormap: as in ``Explanation.overlay``.

        Raises:
            UsageError: a stem with folders, no such alpha or colour map.
        """
        stem = safe_stem(self.picture.name) if stem is None else stem
        return save_comparison(self, Path(folder), stem, alpha=alpha, colormap=colormap)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pixels, ready for JSON; numbers that are none are null."""
        return {
            "input": self.picture.name,
            "size": list(self.picture.size),
            "model": self.model,
            "weights": self.weights,
            "target": {"index": self.target.index, "label": self.target.label},
            "methods": list(self.methods),
            "layers": list(self.layers),
            "cells": [_cell_dict(cell) for cell in self.cells],
            "correlation": {"measure": "Spearman, at the model's input size", "values": _numbers(self.correlation)},
            "overlap": {"measure": "IoU of the hottest 20% of pixels", "values": _numbers(self.overlap)},
            "notes": list(self.notes),
            "seconds": round(self.seconds, 4),
        }

    def __repr__(self) -> str:
        return f"Comparison({self.picture.name}: {self.target}; {', '.join(cell.title for cell in self.cells)})"

    def _repr_html_(self) -> str:
        """The contact sheet, as a notebook shows it, with the reasons of empty cells."""
        data = base64.b64encode(png_bytes(np.asarray(self.sheet()))).decode()
        told = "; ".join(cell.title for cell in self.cells)
        reasons = "".join(f"<br>{html.escape(f'{c.title}: {c.reason}')}" for c in self.cells if c.reason)
        picture = f'<img alt="{html.escape(f"Heatmaps of {self.target}: {told}")}" src="data:image/png;base64,{data}">'
        return f"{picture}<small>{reasons}</small>"

    def _in_places(self) -> list[Cell | None]:
        """The cells with free places beside those of methods that have one only."""
        if len(self.layers) == 1:
            return list(self.cells)
        placed: list[Cell | None] = []
        for method in self.methods:
            row: list[Cell | None] = [cell for cell in self.cells if cell.method == method]
            placed += row + [None] * (len(self.layers) - len(row))
        return placed

    def _tile(self, cell: Cell | None, alpha: float, colormap: str) -> Tile | None:
        if cell is None:
            return None
        if cell.explanation is None:
            return Tile(None, cell.title, cell.reason or "")
        painted = cell.explanation.no_larger_than(TILE_SIDE).overlay(alpha=alpha, colormap=colormap)
        return Tile(np.asarray(painted), cell.title, cell.explanation.reasons[0] or "")

    def _matrix(self, measure: Any) -> np.ndarray:
        """A measure of the maps that there are, in the places of their cells."""
        number = [n for n, cell in enumerate(self.cells) if cell.explanation]
        maps = [self.cells[n].explanation.model_maps[0] for n in number]  # type: ignore[union-attr]
        matrix = np.full((len(self), len(self)), np.nan)
        matrix[np.ix_(number, number)] = measure(torch.from_numpy(np.stack(maps))).numpy()
        matrix.setflags(write=False)
        return matrix


def _cell_dict(cell: Cell) -> dict[str, Any]:
    facts: dict[str, Any] = {"method": cell.method, "layer": cell.layer, "reason": cell.reason}
    if cell.explanation is None:
        return facts
    told = cell.explanation.to_dict()
    return {**facts, "looked_at": cell.explanation.layer, "map": told["maps"][0], "seconds": told["seconds"]}


def _numbers(matrix: np.ndarray) -> list[list[float | None]]:
    """Rounded to what a map's pixels can tell."""
    return [[round(float(one), 6) if np.isfinite(one) else None for one in row] for row in matrix]
