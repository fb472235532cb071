"""Where the objects are: boxes of pictures, found for a picture and brought into the model's input."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

import torch

from camapp.errors import AnnotationError
from camapp.images.geometry import Geometry
from camapp.images.picture import Picture
from camapp.sources.pictures import PictureFile

# What is narrower than this in the model's input covers none of its pixels for sure.
LEAST_PIXELS = 1.0

Edges: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True)
class Box:
    """One object.

    Args:
        xyxy: left, top, right, bottom edge in pixels of the picture, from its top-left corner; not clipped.
        name: what the object is, or None.
        index: the model's class index of it, or None.
    """

    xyxy: Edges
    name: str | None = None
    index: int | None = None


@dataclass(frozen=True)
class PictureBoxes:
    """The objects of one picture.

    Args:
        file: the picture's path as the annotation has it, with forward slashes.
        boxes: its objects.
        size: width and height of the picture that the boxes were drawn on, where the annotation says so.
    """

    file: str
    boxes: tuple[Box, ...]
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Annotations:
    """The boxes of many pictures.

    Args:
        path: the file or folder they were read from.
        pictures: the objects of each picture.
        notes: what was left out.
    """

    path: Path
    pictures: tuple[PictureBoxes, ...]
    notes: tuple[str, ...] = ()

    def assign(self, pictures: Iterable[PictureFile]) -> dict[str, PictureBoxes]:
        """Find the boxes of each picture: by its path inside the source or from the annotation's folder, else by name.

        Args:
            pictures: the pictures of a run.

        Returns:
            By the picture's name in the run; pictures without boxes are left out.

        Raises:
            AnnotationError: a file name fits several annotations, or several pictures fit one, or no picture has boxes.
        """
        by_path = {one.file: one for one in self.pictures}
        by_name: dict[str, list[PictureBoxes]] = defaultdict(list)
        for one in self.pictures:
            by_name[PurePosixPath(one.file).name].append(one)
        found: dict[str, PictureBoxes] = {}
        taken: dict[str, str] = {}
        for picture in pictures:
            boxes = by_path.get(picture.name) or by_path.get(self._from_here(picture.path))
            if boxes is None:
                boxes = self._by_name(picture, by_name)
            if boxes is None:
                continue
            if taken.setdefault(boxes.file, picture.name) != picture.name:
                raise AnnotationError(
                    f'{self.path}: the boxes of "{boxes.file}" fit two pictures, "{taken[boxes.file]}" and '
                    f'"{picture.name}". Give their paths from the folder of pictures in the annotations.'
                )
            found[picture.name] = boxes
        if not found:
            raise AnnotationError(
                f'{self.path}: none of its pictures, such as "{self.pictures[0].file}", is in the source. Check that '
                "both belong together."
            )
        return found

    def _from_here(self, path: Path) -> str:
        folder = self.path if self.path.is_dir() else self.path.parent
        path, folder = path.absolute(), folder.absolute()
        return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()

    def _by_name(self, picture: PictureFile, by_name: dict[str, list[PictureBoxes]]) -> PictureBoxes | None:
        name = picture.path.name
        hits = by_name.get(name) or by_name.get(picture.path.stem) or []  # VOC files of ImageNet leave the ending off
        if len(hits) > 1:
            listed = ", ".join(f'"{hit.file}"' for hit in hits[:3])
            raise AnnotationError(
                f'{self.path}: "{name}" may be {listed}. Give the source as the folder that these paths count from.'
            )
        return hits[0] if hits else None


@dataclass(frozen=True)
class ObjectBoxes:
    """The object of one picture, as the model sees it.

    Args:
        boxes: (n, 4) float32 edges in pixels of the model's input, clipped to it; n is 0 where nothing of it is seen.
        matched: whether the boxes are those of the explained class; if not, they are all that the picture has.
    """

    boxes: torch.Tensor
    matched: bool


def object_boxes(boxes: Sequence[Box], geometry: Geometry, label: str, index: int) -> ObjectBoxes:
    """The boxes of the explained class, or all where there are none of it, in the model's input.

    Args:
        boxes: those of one picture, as ``fit_to_picture`` gives them.
        geometry: how the model's input lies in the picture.
        label: the explained class's name.
        index: the explained class's index.
    """
    wanted = _same_name(label)
    of_class = [box for box in boxes if box.index == index or (box.name and _same_name(box.name) == wanted)]
    width, height = geometry.model
    seen = []
    for box in of_class or boxes:
        left, top = geometry.point_to_model(box.xyxy[0], box.xyxy[1])
        right, bottom = geometry.point_to_model(box.xyxy[2], box.xyxy[3])
        left, top, right, bottom = max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height))
        if right - left >= LEAST_PIXELS and bottom - top >= LEAST_PIXELS:
            seen.append((left, top, right, bottom))
    return ObjectBoxes(torch.tensor(seen, dtype=torch.float32).reshape(-1, 4), bool(of_class))


def fit_to_picture(annotated: PictureBoxes, picture: Picture) -> tuple[list[Box], list[str]]:
    """The boxes in pixels of the upright picture, clipped to it, and notes on what was done to them.

    Boxes are taken to lie on the picture as it is shown, upright. Only where their own size says otherwise are they
    turned (width and height swapped, and the picture's EXIF orientation turns it) or scaled (the same shape at another
    size).

    Raises:
        AnnotationError: they were drawn on a picture of another shape, or one lies outside of the picture.
    """
    boxes, notes = list(annotated.boxes), []
    size, turn = annotated.size, picture.orientation
    if size and size != picture.size and turn in _TURNS and size == picture.size[::-1]:
        boxes = [replace(box, xyxy=_turned(box.xyxy, size, turn)) for box in boxes]
        notes.append("boxes drawn on the stored pixels: turned upright with the picture")
    elif size and size != picture.size:
        boxes = [replace(box, xyxy=_scaled(box.xyxy, size, picture)) for box in boxes]
        notes.append("boxes drawn on a copy of another size: scaled")
    elif turn > 1 and size is None:
        notes.append("the boxes name no size: taken as drawn on the upright picture")
    return [replace(box, xyxy=_clipped(box.xyxy, picture)) for box in boxes], notes


# Where a point of the stored pixels, of width w and height h, lies upright, by EXIF orientation.
_TURNS = {
    5: lambda x, y, w, h: (y, x),
    6: lambda x, y, w, h: (h - y, x),
    7: lambda x, y, w, h: (h - y, w - x),
    8: lambda x, y, w, h: (y, w - x),
}


def _turned(xyxy: Edges, size: tuple[int, int], turn: int) -> Edges:
    x0, y0 = _TURNS[turn](xyxy[0], xyxy[1], *size)
    x1, y1 = _TURNS[turn](xyxy[2], xyxy[3], *size)
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _scaled(xyxy: Edges, size: tuple[int, int], picture: Picture) -> Edges:
    # A resized copy's sides are cut to whole pixels: its shape is the same only to within one of them.
    if abs(size[0] * picture.height - size[1] * picture.width) > max(sum(size), sum(picture.size)):
        raise AnnotationError(
            f"The boxes were drawn on {size[0]}x{size[1]} pixels, but the picture has {picture.width}x"
            f"{picture.height}, another shape. Correct the size, or give the picture that they were drawn on."
        )
    across, down = picture.width / size[0], picture.height / size[1]
    return xyxy[0] * across, xyxy[1] * down, xyxy[2] * across, xyxy[3] * down


def _clipped(xyxy: Edges, picture: Picture) -> Edges:
    x0, y0, x1, y1 = xyxy
    if x0 >= picture.width or y0 >= picture.height or x1 <= 0 or y1 <= 0:
        edges = ", ".join(f"{edge:g}" for edge in xyxy)
        raise AnnotationError(
            f"The box [{edges}] lies outside of the picture, which has {picture.width}x{picture.height} pixels. "
            "Boxes are [left, top, right, bottom] in pixels of the original picture."
        )
    return max(x0, 0.0), max(y0, 0.0), min(x1, float(picture.width)), min(y1, float(picture.height))


def _same_name(name: str) -> str:
    """Names of classes are the same in any case, and whether words are parted by spaces, underscores or hyphens."""
    return re.sub(r"[\s_-]+", " ", name.strip()).casefold()
