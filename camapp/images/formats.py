"""Which format bytes are of, by their content; who opens it; how many frames it has."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
    features,
)

from camapp.errors import DecodeError

READ = "JPEG, PNG, WebP, GIF, AVIF, TIFF, BMP, PPM and, with the extra camapp[heif], HEIC"

# Pillow 12.3 counts the pages of a TIFF in quadratic time, and 20 MiB have room for 150,000 of them.
MOST_PAGES = 1000

# The plugins are called themselves: Image.open judges a size by the global MAX_IMAGE_PIXELS before it can be seen here.
# The list leaves out what should not meet untrusted bytes (EPS, which starts Ghostscript; PSD, FITS, ...).
OPENERS: dict[str, Callable[[BinaryIO, str], ImageFile.ImageFile]] = {
    "JPEG": JpegImagePlugin.jpeg_factory,  # opens MPO, two photos in one JPEG, too
    "PNG": PngImagePlugin.PngImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "WebP": WebPImagePlugin.WebPImageFile,
    "AVIF": AvifImagePlugin.AvifImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "PPM": PpmImagePlugin.PpmImageFile,
}

_SIGNATURES = {
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "GIF": rb"GIF8[79]a",
    "WebP": rb"RIFF....WEBP",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "BMP": rb"BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0\0\0",  # the size of its second header: "BMW" is no bitmap
    "PPM": rb"P[1-6f]\s+[\d#]",
}

_AVIF_BRANDS = {b"avif", b"avis"}

_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}

_CONTAINER_BRANDS = {b"mif1", b"msf1"}  # of both; the compatible brands tell which

_FOREIGN = {
    "a PDF document": rb"%PDF-",
    "a PostScript drawing": rb"%!PS|\xc5\xd0\xd3\xc6",
    "a Photoshop file": rb"8BPS",
    "a JPEG 2000 picture": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    "a JPEG XL picture": rb"\0\0\0\x0cJXL |\xff\x0a",
    "a DICOM file": rb".{128}DICM",
    "a FITS file": rb"SIMPLE  =",
    "an HDF5 file": rb"\x89HDF\r\n",
    "a NumPy array": rb"\x93NUMPY",
    "an icon": rb"\0\0[\1\2]\0",
    "a video": rb"....ftyp|\x1aE\xdf\xa3|RIFF....AVI ",
    "a ZIP archive, or a document or checkpoint in one": rb"PK\x03\x04",
    "a compressed file": rb"\x1f\x8b|BZh|\xfd7zXZ|7z\xbc\xaf|\x28\xb5\x2f\xfd",
}


def kind_of(data: bytes) -> str:
    """Which format the bytes are of, by their first few."""
    if kind := _container_kind(data):
        return kind
    for kind, signature in _SIGNATURES.items():
        if re.match(signature, data, re.DOTALL):
            return kind
    raise DecodeError(_not_a_picture(data))


def _container_kind(data: bytes) -> str | None:
    """AVIF and HEIC share a container with MP4 video; its brands tell them apart."""
    if data[4:8] != b"ftyp":
        return None
    end = min(int.from_bytes(data[:4], "big"), 256)
    brands = [data[8:12], *(data[at : at + 4] for at in range(16, end, 4))]
    for brand in brands:
        if brand in _AVIF_BRANDS:
            return "AVIF"
        if brand in _HEIC_BRANDS:
            return "HEIC"
    return "HEIC" if _CONTAINER_BRANDS.intersection(brands) else None


def _not_a_picture(data: bytes) -> str:
    for what, signature in _FOREIGN.items():
        if re.match(signature, data, re.DOTALL):
            return f"This is {what}, which camapp does not read. Save it as PNG or JPEG first (camapp reads {READ})."
    head = data[:4096].lower().removeprefix(codecs.BOM_UTF8).lstrip()
    if re.match(rb"<!doctype html|<html", head):
        return "This is a web page, not a picture: perhaps an error page saved under its name. Download it again."
    if b"<svg" in head and head.startswith(b"<"):
        return "This is an SVG drawing, which camapp does not read. Export it as PNG first."
    if _is_text(data[:4096]):
        return f"This is text, not a picture. camapp reads {READ}."
    return f"This is not a picture that camapp knows (it reads {READ}). Check the file, or save it as PNG."


def _is_text(head: bytes) -> bool:
    if re.search(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]", head):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # incremental: the cut may lie inside a character
    except UnicodeDecodeError:
        return False
    return True


def opener_of(kind: str) -> Callable[[BinaryIO, str], ImageFile.ImageFile]:
    """What opens pictures of a kind, if this installation can."""
    if kind in ("AVIF", "WebP") and not features.check(kind.lower()):
        raise DecodeError(f"This is {kind}, which this build of Pillow cannot read. Save it as PNG or JPEG first.")
    if kind != "HEIC":
        return OPENERS[kind]
    try:
        from pillow_heif import HeifImageFile  # not registered with Pillow: that would change it for the whole program
    except ImportError as error:
        raise DecodeError('This is HEIC, which needs an extra: pip install "camapp[heif]".') from error
    return HeifImageFile


class RationedBytes(io.BytesIO):
    """A file whose headers can be read a few times over, and no more.

    A TIFF can list the same megabytes under thousands of tags and pages; Pillow 12.3 keeps a copy of each.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.ration = 8 * len(data) + 2**16

    def read(self, size: int | None = -1, /) -> bytes:
        """As of any file, while the ration lasts."""
        part = super().read(size)
        self.ration -= len(part)
        if self.ration < 0:
            raise DecodeError(
                "The file points at the same bytes again and again, as damaged or hostile files do. "
                "Save it again as PNG or JPEG."
            )
        return part


def frame_notes(image: ImageFile.ImageFile, data: bytes) -> list[str]:
    """A note on how many frames there are, where there are several."""
    try:
        count = _frame_count(image, data)
    except Exception:  # damage past the first frame costs only the count
        return ["the first frame; what follows it is damaged"]
    if count <= 1:
        return []
    unit = {"TIFF": "pages", "MPO": "pictures", "HEIF": "pictures"}.get(image.format or "", "frames")
    return [f"first of {f'more than {MOST_PAGES}' if count > MOST_PAGES and unit == 'pages' else count} {unit}"]


def _frame_count(image: ImageFile.ImageFile, data: bytes) -> int:
    if isinstance(image, GifImagePlugin.GifImageFile):
        return _gif_frame_count(data)
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        return _tiff_page_count(data) if image.is_animated else 1
    return getattr(image, "n_frames", 1)


def _tiff_page_count(data: bytes) -> int:
    # An image of its own: one whose next page is damaged is left half set up.
    pages = TiffImagePlugin.TiffImageFile(RationedBytes(data), "")
    count = 1
    with suppress(EOFError):
        while count <= MOST_PAGES:
            pages.seek(count)
            count += 1
    return count


def _gif_frame_count(data: bytes) -> int:
    """The image blocks of a GIF. Pillow 12.3 counts them by filling the area of each, however large it claims to be."""
    at, count = 13 + _gif_palette_size(data[10]), 0
    while at < len(data) and data[at] in b"!,":
        if data[at] == ord(","):
            count += 1
            at += 11 + _gif_palette_size(data[at + 9])
        else:
            at += 2
        while data[at]:  # sub-blocks, each led by its length
            at += data[at] + 1
        at += 1
    return count


def _gif_palette_size(flags: int) -> int:
    return 6 << (flags & 7) if flags & 128 else 0
