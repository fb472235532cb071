"""A picture: upright 8-bit RGB pixels, and what was done to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from camapp.errors import UsageError
from camapp.images.convert import WHITE, colour, convert, named_failures, size_notes, strict_loading


@dataclass(frozen=True, eq=False, repr=False)
class Picture:
    """An upright picture at its original size, and what was done to it on the way.

    Args:
        rgb: (H, W, 3) uint8; kept contiguous and read-only.
        name: what to call it in messages and file names, without a folder.
        notes: what was done to it, a phrase each, fit to be shown to a user.
        orientation: the EXIF orientation (1-8) that was undone; 1 where the pixels were stored upright.
        reduced_from: width and height that it had before it was made smaller; None where it was not.

    Raises:
        UsageError: ``rgb`` is no such array, or has no pixels.
    """

    rgb: np.ndarray
    name: str = "picture"
    notes: tuple[str, ...] = ()
    orientation: int = 1
    reduced_from: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.rgb.dtype != np.uint8 or self.rgb.ndim != 3 or self.rgb.shape[2] != 3 or not self.rgb.size:
            raise UsageError(f"{_described(self.rgb)} is not a picture; expected (H, W, 3) of uint8 with H, W >= 1.")
        own = np.ascontiguousarray(self.rgb).view()  # a view: the caller's own array stays writeable
        own.flags.writeable = False
        object.__setattr__(self, "rgb", own)

    def __repr__(self) -> str:
        return f"Picture({self.name!r}, {self.width}x{self.height}, notes={self.notes!r})"

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self.rgb.shape[1]

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self.rgb.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels, in Pillow's order."""
        return self.width, self.height

    @property
    def full_size(self) -> tuple[int, int]:
        """Width and height in pixels of the picture as it was stored, before it was made smaller."""
        return self.reduced_from or self.size

    def no_larger_than(self, side: int) -> Picture:
        """The picture with its longer side at most ``side`` pixels, resampled by Lanczos; itself where it fits."""
        if max(self.size) <= side:
            return self
        scale = side / max(self.size)
        size = (max(1, round(self.width * scale)), max(1, round(self.height * scale)))
        smaller = self.to_pil().resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        return replace(self, rgb=np.asarray(smaller), reduced_from=self.full_size)

    def to_pil(self) -> Image.Image:
        """A Pillow image of its own memory, without metadata."""
        return Image.fromarray(self.rgb)

    @classmethod
    def from_array(cls, array: np.ndarray, name: str = "picture") -> Picture:
        """Take a copy of pixels as they are.

        Args:
            array: (H, W), (H, W, 1) or (H, W, 3); uint8, or float in [0, 1].
            name: what to call it.

        Raises:
            UsageError: another shape or dtype, or values outside of [0, 1].
        """
        array = np.asarray(array)
        shaped = array[..., None] if array.ndim == 2 else array
        fits = shaped.ndim == 3 and shaped.shape[2] in (1, 3) and shaped.size
        if not fits or not (shaped.dtype == np.uint8 or shaped.dtype.kind == "f"):
            raise UsageError(
                f"{_described(array)} is not a picture; expected (H, W), (H, W, 1) or (H, W, 3) of uint8, "
                f"or of float in 0-1.{_advice(array)}"
            )
        if shaped.dtype.kind == "f":
            shaped = _eight_bits(shaped)
        rgb = np.broadcast_to(shaped, (*shaped.shape[:2], 3)).copy()
        return cls(rgb, name, tuple(size_notes(rgb)))

    @classmethod
    def from_pil(cls, image: Image.Image, name: str = "picture", background: Sequence[int] = WHITE) -> Picture:
        """Convert a Pillow image just as a file is converted: EXIF rotation, transparency, 16 bits, CMYK and so on.

        Args:
            image: of any mode; of several frames, the current one.
            name: what to call it.
            background: the colour behind transparent parts, 0-255.

        Raises:
            UsageError: no Pillow image, or one without pixels.
            DecodeError: its pixels cannot be loaded or converted.
        """
        if not isinstance(image, Image.Image):
            raise UsageError(f"A {type(image).__name__} is not a Pillow image; arrays go to Picture.from_array.")
        if not image.width * image.height:
            raise UsageError(f"A Pillow image of {image.width}x{image.height} has no pixels; give one that has.")
        ground = colour(background)
        with strict_loading, named_failures("Pillow"):
            rgb, notes, orientation = convert(image, ground)
        return cls(rgb, name, tuple(notes), orientation)


def _described(array: np.ndarray) -> str:
    return f"An array of shape {array.shape} and dtype {array.dtype}"


def _advice(array: np.ndarray) -> str:
    if array.ndim == 4:
        return " Give one picture of the batch: array[0]."
    if array.ndim == 3 and array.shape[2] == 4:
        return " With transparency: Picture.from_pil(Image.fromarray(array))."
    if array.ndim == 3 and array.shape[0] in (1, 3):
        return " Put the channels last: array.transpose(1, 2, 0)."
    return " Scale the values to 0-255 and use array.astype(numpy.uint8)." if array.dtype.kind in "iu" else ""


def _eight_bits(values: np.ndarray) -> np.ndarray:
    low, high = values.min(), values.max()
    if not (low >= 0 and high <= 1):  # NaN fails too
        raise UsageError(
            f"Float pixels must lie in 0-1; found {low:g} to {high:g}. Scale them, or give uint8 of 0-255."
        )
    scaled = np.multiply(values, 255, dtype=np.float32, casting="same_kind")
    return np.rint(scaled, out=scaled).astype(np.uint8)
