"""Any Pillow image to upright 8-bit RGB pixels, band by band."""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from PIL import ExifTags, Image, ImageFile, TiffImagePlugin

from camapp.errors import DecodeError, UsageError

WHITE = (255, 255, 255)

# Models see 224 pixels and more; of a smaller side too little is left to point at.
SMALLEST_USEFUL_SIDE = 32

# Conversions run over bands of this many pixels, so that their wide intermediate copies stay small.
BAND_PIXELS = 2**20

# How the stored rows lie in the upright picture, as a view of it, by EXIF orientation.
_STORED: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda upright: upright,
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: np.rot90(upright),
    7: lambda upright: upright[::-1, ::-1].transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}

BandConverter = Callable[[Image.Image], np.ndarray]


class _StrictLoading:
    """Lets Pillow refuse truncated files, also where the host program has told it to fill them up with grey.

    ``ImageFile.LOAD_TRUNCATED_IMAGES`` is global, so threads are counted: the last one out gives it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._hosts = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._hosts = ImageFile.LOAD_TRUNCATED_IMAGES
                ImageFile.LOAD_TRUNCATED_IMAGES = False
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._hosts:
                ImageFile.LOAD_TRUNCATED_IMAGES = True


strict_loading = _StrictLoading()


@contextmanager
def named_failures(kind: str) -> Iterator[None]:
    """Turn whatever Pillow raises over a picture of this kind into a DecodeError."""
    try:
        yield
    except DecodeError:
        raise
    except MemoryError as error:
        raise DecodeError("There is not enough free memory to decode this picture. Make it smaller.") from error
    except Image.DecompressionBombError as error:  # Pillow 12.3 asks its own limit inside of GIF and TIFF
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise DecodeError(
            f"The {kind} picture has more pixels than Pillow itself accepts ({limit:,}, twice its MAX_IMAGE_PIXELS). "
            "Save it smaller, or as PNG or JPEG."
        ) from error
    except Exception as error:  # Pillow raises almost anything on damaged bytes: struct.error, SyntaxError, KeyError
        raise DecodeError(
            f"The {kind} picture is damaged or truncated, or of a rare kind that camapp does not read. "
            "Copy or download it again, or save it as PNG or JPEG."
        ) from error


def colour(background: Sequence[int]) -> tuple[int, int, int]:
    """Check that a background is a colour."""
    try:
        red, green, blue = (operator.index(value) for value in background)
    except (TypeError, ValueError):
        red = green = blue = -1
    if not (0 <= red <= 255 and 0 <= green <= 255 and 0 <= blue <= 255):
        raise UsageError(f"background={background!r} is not a colour; give three whole numbers of 0-255.")
    return red, green, blue


def convert(image: Image.Image, ground: tuple[int, int, int]) -> tuple[np.ndarray, list[str], int]:
    """The upright 8-bit RGB pixels of an image, notes on how they came about, and the EXIF orientation undone."""
    turned = _turned_by_loading(image)
    deep_colours = _has_deep_colours(image)
    image.load()
    turn = _orientation(image)
    size = (image.width, image.height) if turn >= 5 else (image.height, image.width)
    rgb = np.empty((*size, 3), np.uint8)
    stored = _STORED[turn](rgb)
    convert_band, notes = _band_converter(image, ground)
    for rows, band in _bands(image):
        stored[rows] = convert_band(band)
    if deep_colours:
        notes.append(_lift_twelve_bits(rgb))
    orientation = max(turn, turned)
    if orientation > 1:
        notes.insert(0, f"turned upright (EXIF orientation {orientation})")
    return rgb, notes + size_notes(rgb), orientation


def _turned_by_loading(image: Image.Image) -> int:
    """The orientation that loading undoes by itself, and then forgets: Pillow 12.3 for TIFF, pillow-heif for HEIC."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        turn = image.tag_v2.get(ExifTags.Base.Orientation)
    else:
        turn = image.info.get("original_orientation")
    return turn if turn in _STORED else 1


def _orientation(image: Image.Image) -> int:
    try:
        turn = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged EXIF around sound pixels: shown as stored
        return 1
    return turn if turn in _STORED else 1


def _has_deep_colours(image: Image.Image) -> bool:
    """Whether there are 16 bits a channel, of which Pillow 12.3 silently keeps the upper 8 (grey keeps all)."""
    tiles = getattr(image, "tile", [])
    return image.mode[0] not in "IF" and any(re.search(r";16[BLN]\b", str(tile.args)) for tile in tiles)


def _lift_twelve_bits(rgb: np.ndarray) -> str:
    if rgb.max() > 4095 >> 8:
        return "16 bits a channel reduced to 8"
    np.multiply(rgb, 255 // (4095 >> 8), out=rgb)
    return "12 bits a channel in a 16-bit file: brightened, 16 levels remain"


def _bands(image: Image.Image) -> Iterator[tuple[slice, Image.Image]]:
    rows = max(1, BAND_PIXELS // image.width)
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        yield slice(top, bottom), image.crop((0, top, image.width, bottom))


def _band_converter(image: Image.Image, ground: tuple[int, int, int]) -> tuple[BandConverter, list[str]]:
    if image.mode[0] in "IF":  # I;16, I;16B, I, F: Pillow's own conversion would clip them at 255
        return _deep_grey_converter(image, ground)
    if image.has_transparency_data:
        return _alpha_converter(ground)
    notes = ["CMYK converted to RGB: approximate colours"] if image.mode == "CMYK" else []
    return lambda band: np.asarray(band.convert("RGB")), notes


def _alpha_converter(ground: tuple[int, int, int]) -> tuple[BandConverter, list[str]]:
    notes: list[str] = []

    def convert(band: Image.Image) -> np.ndarray:
        straight = band.convert("LA") if band.mode == "La" else band  # Pillow 12.3 has no way from La to RGBA
        layer = straight.convert("RGBA")
        if not notes and layer.getchannel("A").getextrema() != (255, 255):
            notes.append(_transparency_note(ground))
        return np.asarray(Image.alpha_composite(Image.new("RGBA", layer.size, (*ground, 255)), layer).convert("RGB"))

    return convert, notes


def _transparency_note(ground: tuple[int, int, int]) -> str:
    return f"transparent parts laid on {'white' if ground == WHITE else f'rgb{ground}'}"


def _deep_grey_converter(image: Image.Image, ground: tuple[int, int, int]) -> tuple[BandConverter, list[str]]:
    black, white, notes = _levels(image)
    see_through = image.info.get("transparency")  # 16-bit grey PNG: the one value that is transparent
    if isinstance(see_through, int):
        notes.append(_transparency_note(ground))

    def convert(band: Image.Image) -> np.ndarray:
        stored = np.asarray(band)
        values = stored.astype(np.float64)  # a band of it, not the picture
        np.nan_to_num(values, copy=False, nan=black, posinf=max(black, white), neginf=min(black, white))
        values -= black
        values *= 255 / (white - black) if white != black else 0
        grey = (np.clip(values, 0, 255, out=values) + 0.5).astype(np.uint8)
        rgb = np.repeat(grey[..., None], 3, axis=2)
        if isinstance(see_through, int):
            rgb[stored == see_through] = ground
        return rgb

    return convert, notes


def _levels(image: Image.Image) -> tuple[float, float, list[str]]:
    """The stored values that become black and white, and a note on them."""
    low, high, strange = _range(image)
    if image.mode != "F" and low >= 0 and high <= 65535:
        low, high = 0, 4095 if high <= 4095 else 65535
        notes = [f"{12 if high == 4095 else 16}-bit grey: 0-{high} scaled to 0-255"]
    else:
        notes = [f"values from {low:g} to {high:g} stretched to 0-255"]
    if strange:
        notes.append(f"{strange:,} pixels that are no number or infinite: NaN shown black")
    white_is_zero = getattr(image, "tag_v2", {}).get(ExifTags.Base.PhotometricInterpretation) == 0
    return (high, low, notes) if white_is_zero else (low, high, notes)  # Pillow 12.3 heeds that tag up to 8 bits only


def _range(image: Image.Image) -> tuple[float, float, int]:
    """The smallest and the largest finite value, and how many are not finite."""
    low, high, strange = np.inf, -np.inf, 0
    for _, band in _bands(image):
        values = np.asarray(band)
        finite = values[np.isfinite(values)]
        strange += values.size - finite.size
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high, strange) if low <= high else (0.0, 0.0, strange)


def size_notes(rgb: np.ndarray) -> list[str]:
    """A note on pixels too few to explain, or none."""
    height, width = rgb.shape[:2]
    if min(width, height) >= SMALLEST_USEFUL_SIDE:
        return []
    return [f"only {width}x{height}: below {SMALLEST_USEFUL_SIDE} pixels a heatmap means little"]
