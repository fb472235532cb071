"""patch_similarity: which parts of one or two pictures look alike to a backbone, patch by patch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from camapp.backbones.layouts import find_layout
from camapp.backbones.load import LoadedModel
from camapp.backbones.recommend import stages
from camapp.errors import LayerError, UsageError
from camapp.explainer import PictureSource, open_picture, opened_model
from camapp.features.extractor import FeatureExtractor
from camapp.hooks.layers import module_name
from camapp.images.decode import Picture
from camapp.images.geometry import Fit, Geometry

# Patches along a side: beyond, the cosines of each with each take too much; two pictures of 28 x 28 have 2.5 million.
MOST_ALONG_SIDE = 28


def patch_similarity(
    model: str | LoadedModel,
    a: PictureSource,
    b: PictureSource | None = None,
    layer: str | None = None,
    *,
    fit: Fit | None = None,
) -> PatchSimilarity:
    """The cosine similarity of the features of every patch of one or two pictures to every other; no gradients.

    A patch is one place of the layer's map, or one patch token; tokens in front of the patches (class, registers) are
    left out. A map of more than ``MOST_ALONG_SIDE`` places a side is averaged into so many, and a note says so.

    Args:
        model: the name of a model card, or a ``LoadedModel``.
        a: a picture, as for ``camapp.explain``.
        b: another one.
        layer: a layer that gives a map or tokens; by default the last one of finer places than those of the last map.
            Earlier layers tell textures and small parts apart, later ones kinds of things.
        fit: as for ``camapp.explain``.

    Raises:
        LayerError: a layer that does not exist, or whose output does not map onto the picture.
        DecodeError, ModelError, WeightsError, UsageError: as ``camapp.explain``.

    Example:
        >>> alike = camapp.patch_similarity("efficientnet_lite0", "cat.jpg", "dog.jpg", layer="blocks.4.2.bn3")
        >>> own, other = alike.similar_to(230, 110)  # the cat's eye
        >>> alike.best_matches(230, 110)
    """
    start = time.perf_counter()
    loaded = opened_model(model)
    pictures = tuple(open_picture(one) for one in (a, b) if one is not None)
    placed = [loaded.place(picture, fit) for picture in pictures]
    inputs = loaded.inputs(placed)
    key = layer or finer_layer(loaded)
    maps = _maps_of(loaded, key, inputs)
    pooled, pooling_note = _pooled(maps, key)
    features = pooled.flatten(2).transpose(1, 2).flatten(0, 1).double()  # (pictures x patches, C)
    lengths = features.norm(dim=1, keepdim=True)
    unit = features / torch.where(lengths > 0, lengths, 1.0)
    cosines = (unit @ unit.T).clamp(-1, 1).float().cpu().numpy()
    cosines.setflags(write=False)
    silent = int((lengths == 0).sum())
    silent_note = (f"{silent} patch(es) have only features of 0, and are similar to nothing",) if silent else ()
    warning = ("random weights: similarities mean little",) if loaded.weights.random else ()
    return PatchSimilarity(
        pictures=pictures,
        geometries=tuple(one.geometry for one in placed),
        model=loaded.name,
        layer=key,
        grid=(pooled.shape[2], pooled.shape[3]),
        cosines=cosines,
        notes=(*warning, *pooling_note, *silent_note, *(note for one in placed for note in one.notes)),
        seconds=time.perf_counter() - start,
    )


def finer_layer(model: LoadedModel) -> str:
    """The layer that ``patch_similarity`` looks at by default: the last one of finer places than the last map's."""
    return stages(model.module, torch.zeros(1, 3, *model.card.input.size, device=model.device)).fine


@dataclass(frozen=True)
class Match:
    """The patch of a picture that is most similar to another one.

    Args:
        picture: 0 for the first, 1 for the second.
        row: of the patch, from 0 at the top.
        column: of the patch, from 0 at the left.
        x: of its centre, in pixels of that picture.
        y: of its centre.
        cosine: how similar it is, -1 to 1.
    """

    picture: int
    row: int
    column: int
    x: float
    y: float
    cosine: float


@dataclass(frozen=True, eq=False)
class PatchSimilarity:
    """How similar the patches of P pictures (one or two) are, at one layer.

    Args:
        pictures: the P pictures.
        geometries: how the model's input lies in each.
        model: the model's name.
        layer: the layer.
        grid: rows and columns of patches, the same in each picture.
        cosines: (N, N) float32 in [-1, 1], N = P x rows x columns, picture by picture and row by row.
        notes: what was done to the pictures and patches.
        seconds: time for all.
    """

    pictures: tuple[Picture, ...]
    geometries: tuple[Geometry, ...]
    model: str
    layer: str
    grid: tuple[int, int]
    cosines: np.ndarray
    notes: tuple[str, ...]
    seconds: float

    def patch_at(self, x: float, y: float, of: int = 0) -> tuple[int, int]:
        """Row and column of the patch under a point of a picture.

        Args:
            x: in pixels of the picture as it is, from its left edge.
            y: from its top edge.
            of: which picture, 0 or 1.

        Raises:
            UsageError: no such picture, a point outside of it, or one that the model does not see.
        """
        geometry = self.geometries[self._checked(of)]
        width, height = geometry.original
        if not (0 <= x <= width and 0 <= y <= height):
            raise UsageError(f"({x:g}, {y:g}) is outside of the picture, which has {width} x {height} pixels.")
        across, down = geometry.point_to_model(x, y)
        column, row = across * self.grid[1] / geometry.model[0], down * self.grid[0] / geometry.model[1]
        if not (0 <= row <= self.grid[0] and 0 <= column <= self.grid[1]):
            left, top, right, bottom = (round(edge) for edge in geometry.seen)
            raise UsageError(
                f"The model does not see ({x:g}, {y:g}): it sees x from {left} to {right}, y from {top} to {bottom}. "
                'Choose a point inside, or show it all with fit="letterbox".'
            )
        return min(int(row), self.grid[0] - 1), min(int(column), self.grid[1] - 1)

    def centre_of(self, row: int, column: int, of: int = 0) -> tuple[float, float]:
        """X and y of a patch's centre, in pixels of its picture; padding has patches outside of it."""
        geometry = self.geometries[self._checked(of)]
        rows, columns = self.grid
        if not (0 <= row < rows and 0 <= column < columns):
            raise UsageError(f"There is no patch at row {row}, column {column}: there are {rows} x {columns}, from 0.")
        return geometry.point_to_original(
            (column + 0.5) * geometry.model[0] / columns, (row + 0.5) * geometry.model[1] / rows
        )

    def similar_to(self, x: float, y: float, of: int = 0) -> tuple[np.ndarray, ...]:
        """How similar every patch is to the one under a point.

        Args:
            x: as in ``patch_at``.
            y: as in ``patch_at``.
            of: as in ``patch_at``.

        Returns:
            One map for each picture, (rows, columns) float32 in [-1, 1].

        Raises:
            UsageError: as ``patch_at``.
        """
        row, column = self.patch_at(x, y, of)
        number = (of * self.grid[0] + row) * self.grid[1] + column
        return tuple(self.cosines[number].reshape(len(self.pictures), *self.grid))

    def on_picture(self, similarity: np.ndarray, of: int = 0) -> np.ndarray:
        """A map of ``similar_to`` at the picture's own size and place, (H, W) float32; 0 where nothing was seen."""
        return self.geometries[self._checked(of)].to_original(similarity)

    def best_matches(self, x: float, y: float, of: int = 0) -> tuple[Match, ...]:
        """The most similar patch of each picture; in the point's own picture, the one beside that patch itself.

        Raises:
            UsageError: as ``patch_at``.
        """
        here = self.patch_at(x, y, of)
        matches = []
        for number, cosines in enumerate(self.similar_to(x, y, of)):
            others = cosines.copy()
            if number == of:
                others[here] = -np.inf
            row, column = (int(place) for place in np.unravel_index(int(others.argmax()), others.shape))
            matches.append(
                Match(number, row, column, *self.centre_of(row, column, number), float(cosines[row, column]))
            )
        return tuple(matches)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pixels and the cosines, ready for JSON."""
        return {
            "inputs": [picture.name for picture in self.pictures],
            "sizes": [list(picture.size) for picture in self.pictures],
            "model": self.model,
            "layer": self.layer,
            "grid": list(self.grid),
            "range": [float(self.cosines.min()), float(self.cosines.max())],
            "notes": list(self.notes),
            "seconds": round(self.seconds, 4),
        }

    def __repr__(self) -> str:
        names = " and ".join(picture.name for picture in self.pictures)
        rows, columns = self.grid
        return f'PatchSimilarity({names}: {rows} x {columns} patches at "{self.layer}" of {self.model})'

    def _checked(self, of: int) -> int:
        if not 0 <= of < len(self.pictures):
            raise UsageError(f"of = {of}: there is {len(self.pictures)} picture(s), counted from 0.")
        return of


def _maps_of(model: LoadedModel, key: str, inputs: torch.Tensor) -> torch.Tensor:
    """What a layer gave, as maps (B, C, rows, columns) in float32."""
    features = FeatureExtractor(model, key, "none", channels_last=True)(inputs)
    if len(features) != 1:
        raise LayerError(f'"{key}" means {len(features)} layers ({", ".join(features)}). Name one.')
    ((name, output),) = features.items()
    layout = find_layout(model.module, module_name(features.info[name].layer), output.shape, inputs.shape)
    return layout.to_maps(output).detach().float()  # a trained classifier runs its backbone with a graph


def _pooled(maps: torch.Tensor, key: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Maps of at most ``MOST_ALONG_SIDE`` places a side, each the mean of those that it covers, and a note of it."""
    size = tuple(maps.shape[2:])
    steps = [ceil(side / MOST_ALONG_SIDE) for side in size]
    if max(steps) == 1:
        return maps, ()
    # Equal parts where the sides divide; else parts that share a row of places with their neighbours.
    smaller = ceil(size[0] / steps[0]), ceil(size[1] / steps[1])
    grids = [" x ".join(map(str, grid)) for grid in (size, smaller)]
    return F.adaptive_avg_pool2d(maps, smaller), (f'"{key}" has {grids[0]} places, averaged into {grids[1]} patches',)
