"""From the original picture to the model's input, and the exact way back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from PIL import Image

from camapp.errors import UsageError
from camapp.images.decode import Picture

Fit = Literal["crop", "letterbox", "stretch"]
FITS: tuple[Fit, ...] = ("crop", "letterbox", "stretch")

# Past this aspect a centre crop shows the model a sliver: such pictures are letterboxed, and a note says so.
LONGEST_CROPPED_ASPECT = 4.0

INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@dataclass(frozen=True)
class Preprocessing:
    """How a model wants its pictures.

    Args:
        size: height and width of the model's input, in pixels.
        resize: length of the picture's short side before the crop, in pixels.
        interpolation: one of ``INTERPOLATIONS``.
        mean: per channel, on the 0-1 scale.
        std: per channel, on the 0-1 scale.
        fit: what is done with a picture of another aspect than the input's: ``"crop"`` cuts out the centre,
            ``"letterbox"`` pads, ``"stretch"`` squashes.
    """

    size: tuple[int, int]
    resize: int
    interpolation: str = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    fit: Fit = "crop"


@dataclass(frozen=True)
class Geometry:
    """The affine map between model pixels and original pixels, both measured from their top-left corners.

    A point ``(x, y)`` of the model's input lies at ``(left + x * step_x, top + y * step_y)`` of the original picture.

    Args:
        original: width and height of the original picture.
        model: width and height of the model's input.
        left: original x of the input's left edge; negative where the input is padded.
        top: original y of the input's top edge; negative where the input is padded.
        step_x: original pixels per model pixel, horizontally.
        step_y: original pixels per model pixel, vertically.
        fit: the policy that led here.
    """

    original: tuple[int, int]
    model: tuple[int, int]
    left: float
    top: float
    step_x: float
    step_y: float
    fit: Fit

    @property
    def seen(self) -> tuple[float, float, float, float]:
        """What the model saw of the original picture: left, top, right, bottom, in original pixels."""
        width, height = self.original
        right = self.left + self.model[0] * self.step_x
        bottom = self.top + self.model[1] * self.step_y
        return max(0.0, self.left), max(0.0, self.top), min(float(width), right), min(float(height), bottom)

    @property
    def seen_pixels(self) -> tuple[slice, slice]:
        """Rows and columns of the original pixels whose centres the model saw; index arrays of shape (H, W) with it."""
        left, top, right, bottom = self.seen
        rows = slice(_first_centre(top), max(_first_centre(bottom), _first_centre(top) + 1))
        columns = slice(_first_centre(left), max(_first_centre(right), _first_centre(left) + 1))
        return rows, columns

    @property
    def sees_all(self) -> bool:
        """Whether every original pixel was seen."""
        rows, columns = self.seen_pixels
        return (rows.start, columns.start) == (0, 0) and (columns.stop, rows.stop) == self.original

    def to_original(self, heatmap: np.ndarray) -> np.ndarray:
        """Bring a heatmap at model size (any size that covers the model's input) to the original size and place.

        Bilinear in exact arithmetic, as pixel centres lie; zero where the model saw nothing.

        Args:
            heatmap: (h, w), covering the whole model input.

        Returns:
            (H, W) float32 of the original picture's size.
        """
        rows, columns = self.seen_pixels
        height, width = heatmap.shape
        y = ((np.arange(rows.start, rows.stop) + 0.5 - self.top) / self.step_y) * (height / self.model[1]) - 0.5
        x = ((np.arange(columns.start, columns.stop) + 0.5 - self.left) / self.step_x) * (width / self.model[0]) - 0.5
        placed = np.zeros((self.original[1], self.original[0]), np.float32)
        placed[rows, columns] = _sample(_sample(heatmap.astype(np.float32), y).T, x).T
        return placed

    def scaled_to(self, original: tuple[int, int]) -> Geometry:
        """How the model's input lies in the same picture at another size, its width and height given in pixels."""
        across, down = original[0] / self.original[0], original[1] / self.original[1]
        return replace(
            self,
            original=original,
            left=self.left * across,
            top=self.top * down,
            step_x=self.step_x * across,
            step_y=self.step_y * down,
        )

    def point_to_model(self, x: float, y: float) -> tuple[float, float]:
        """The model pixel coordinates of an original point."""
        return (x - self.left) / self.step_x, (y - self.top) / self.step_y

    def point_to_original(self, x: float, y: float) -> tuple[float, float]:
        """The original pixel coordinates of a point of the model's input."""
        return self.left + x * self.step_x, self.top + y * self.step_y


@dataclass(frozen=True, eq=False)
class Placed:
    """What a model sees of a picture, before it is normalised.

    Args:
        pixels: (h, w, 3) uint8 RGB, of the size of the model's input.
        geometry: how they lie in the picture.
        notes: what was done to it on the way.
    """

    pixels: np.ndarray
    geometry: Geometry
    notes: tuple[str, ...] = ()


def place(picture: Picture, how: Preprocessing, fit: Fit | None = None) -> Placed:
    """Resize a picture and cut it, or pad it, to a model's input.

    Args:
        picture: the decoded picture.
        how: the model's preprocessing.
        fit: overrides the preprocessing's own policy. By default very elongated pictures (past 4:1), of which a centre
            crop would show a sliver, are letterboxed.

    Raises:
        UsageError: ``fit`` is none of crop, letterbox, stretch.
    """
    notes: tuple[str, ...] = ()
    if fit is None:
        fit = how.fit
        aspect = max(picture.full_size) / min(picture.full_size)
        if fit == "crop" and aspect > LONGEST_CROPPED_ASPECT:
            fit = "letterbox"
            notes = (f"{aspect:.1f}:1 is too elongated for a centre crop: letterboxed, so that the model sees it all",)
    put = {"crop": _crop, "letterbox": _letterbox, "stretch": _stretch}[checked_fit(fit)]
    return Placed(*put(picture.to_pil(), how), notes)


def normalized(pixels: torch.Tensor, how: Preprocessing) -> torch.Tensor:
    """Pixels as the numbers that a model wants: ``(pixels / 255 - mean) / std``, computed where they are.

    Args:
        pixels: (B, h, w, 3) uint8.
        how: the model's preprocessing.

    Returns:
        (B, 3, h, w) float32, contiguous, on the same device.
    """
    values = pixels.permute(0, 3, 1, 2).float().div_(255)
    mean = torch.tensor(how.mean, device=pixels.device).view(3, 1, 1)
    std = torch.tensor(how.std, device=pixels.device).view(3, 1, 1)
    return values.sub_(mean).div_(std).contiguous()


def prepare(picture: Picture, how: Preprocessing, fit: Fit | None = None) -> tuple[torch.Tensor, Geometry, list[str]]:
    """Turn a picture into a model's input: ``place``, then ``normalized``.

    Returns:
        The normalised input of shape (1, 3, h, w), float32; its geometry; and notes about what was done.

    Raises:
        UsageError: as ``place``.
    """
    placed = place(picture, how, fit)
    return normalized(torch.from_numpy(placed.pixels)[None], how), placed.geometry, list(placed.notes)


def checked_fit(fit: str) -> Fit:
    """``fit`` as one of ``FITS``.

    Raises:
        UsageError: it is none of them.
    """
    for known in FITS:
        if fit == known:
            return known
    raise UsageError(f'fit="{fit}" is not a way to fit a picture; use one of {", ".join(FITS)}.')


def _crop(image: Image.Image, how: Preprocessing) -> tuple[np.ndarray, Geometry]:
    """Short side to ``resize``, then the centre: pixel for pixel what torchvision's Resize and CenterCrop do."""
    height, width = how.size
    short, long = min(image.size), max(image.size)
    scaled_long = int(how.resize * long / short)
    scaled = (how.resize, scaled_long) if image.width <= image.height else (scaled_long, how.resize)
    resized = _resize(image, scaled, how)
    left, top = round((scaled[0] - width) / 2), round((scaled[1] - height) / 2)
    pixels = np.asarray(resized.crop((left, top, left + width, top + height)))  # outside of the picture: black
    return pixels.copy(), _geometry(image, how, scaled, left, top, "crop")


def _letterbox(image: Image.Image, how: Preprocessing) -> tuple[np.ndarray, Geometry]:
    """The whole picture, as large as it fits, on a ground of the model's mean colour."""
    height, width = how.size
    scale = min(width / image.width, height / image.height)
    scaled = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    left, top = (width - scaled[0]) // 2, (height - scaled[1]) // 2
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[:] = np.rint(np.array(how.mean) * 255).astype(np.uint8)
    pixels[top : top + scaled[1], left : left + scaled[0]] = np.asarray(_resize(image, scaled, how))
    return pixels, _geometry(image, how, scaled, -left, -top, "letterbox")


def _stretch(image: Image.Image, how: Preprocessing) -> tuple[np.ndarray, Geometry]:
    """The whole picture at the model's size, whatever its aspect."""
    scaled = (how.size[1], how.size[0])
    return np.asarray(_resize(image, scaled, how)).copy(), _geometry(image, how, scaled, 0, 0, "stretch")


def _resize(image: Image.Image, size: tuple[int, int], how: Preprocessing) -> Image.Image:
    return image if image.size == size else image.resize(size, INTERPOLATIONS[how.interpolation])


def _geometry(
    image: Image.Image, how: Preprocessing, scaled: tuple[int, int], left: int, top: int, fit: Fit
) -> Geometry:
    """``scaled`` is the size of the whole resized picture; ``left`` and ``top`` place the input in it."""
    step_x, step_y = image.width / scaled[0], image.height / scaled[1]
    return Geometry(image.size, (how.size[1], how.size[0]), left * step_x, top * step_y, step_x, step_y, fit)


def _first_centre(edge: float) -> int:
    """The first pixel whose centre lies at or past ``edge``."""
    return int(np.ceil(edge - 0.5))


def _sample(rows: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Linear interpolation along the first axis at fractional indices, clamped to the ends."""
    at = np.clip(at, 0, len(rows) - 1)
    below = np.floor(at).astype(np.intp)
    above = np.minimum(below + 1, len(rows) - 1)
    part = (at - below).astype(np.float32)[:, None]
    return rows[below] * (1 - part) + rows[above] * part
