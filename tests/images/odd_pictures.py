"""Every odd picture people upload, made on the spot, and what must become of it: one table for all who take pictures.

for odd in ODD_PICTURES:
    path = odd.write(tmp_path)
    if odd.refusal: the text of the error matches this expression (and names no folder)
    else: the picture has odd.size and odd.notes, and odd.corner at its top left
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, features

WIDTH, HEIGHT = 48, 32
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


@dataclass(frozen=True)
class Odd:
    """A file and what must become of it.

    Args:
        file: its name, which often lies about its content.
        content: makes its bytes.
        size: width and height of the decoded picture.
        notes: all its notes, each as an expression that must be found in it.
        corner: its colour at the top left, within 6.
        refusal: an expression found in the error's text, where it must be refused.
    """

    file: str
    content: Callable[[], bytes]
    size: tuple[int, int] = (WIDTH, HEIGHT)
    notes: tuple[str, ...] = ()
    corner: tuple[int, int, int] = RED
    refusal: str | None = None

    def write(self, folder: Path) -> Path:
        path = folder / self.file
        path.write_bytes(self.content())
        return path


def quadrants() -> Image.Image:
    """48x32: red and green above, blue and white below. Turned any way it looks different."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[: HEIGHT // 2, : WIDTH // 2] = RED
    pixels[: HEIGHT // 2, WIDTH // 2 :] = GREEN
    pixels[HEIGHT // 2 :, : WIDTH // 2] = BLUE
    pixels[HEIGHT // 2 :, WIDTH // 2 :] = WHITE
    return Image.fromarray(pixels)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def with_orientation(kind: str, orientation: int, **options: object) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return saved(quadrants(), kind, exif=exif, **options)


def jpeg() -> bytes:
    return saved(quadrants(), "JPEG", quality=95, subsampling=0)


def hidden_colour() -> Image.Image:
    """Red that is fully transparent at the top left, opaque green beside it."""
    image = quadrants().convert("RGBA")
    image.putalpha(
        Image.fromarray(np.where(np.arange(WIDTH) < WIDTH // 2, 0, 255).astype(np.uint8)[None].repeat(32, 0))
    )
    return image


def png(width: int, height: int, depth: int, colour: int, rows: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG written by hand: ``colour`` 0 is grey, 2 RGB, 4 grey and alpha, 6 RGBA; ``rows`` are raw, big-endian."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    stride = len(rows) // height
    filtered = b"".join(b"\0" + rows[at : at + stride] for at in range(0, len(rows), stride or 1))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    extra = b"".join(chunk(*named) for named in chunks)
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", zlib.compress(filtered)) + chunk(b"IEND", b"")


def bare_png(width: int, height: int) -> bytes:
    """A header that promises many pixels, and next to no data."""
    return png(width, height, 8, 2, b"")


def deep_png(top_left: int, rest: int) -> bytes:
    """48x32 of 16-bit grey."""
    values = np.full((HEIGHT, WIDTH), rest, ">u2")
    values[0, 0] = top_left
    return png(WIDTH, HEIGHT, 16, 0, values.tobytes())


def deep_colour_png(colour: tuple[int, int, int]) -> bytes:
    """48x32 of 16 bits a channel."""
    return png(WIDTH, HEIGHT, 16, 2, np.full((HEIGHT, WIDTH, 3), colour, ">u2").tobytes())


def float_tiff() -> bytes:
    """From -1 at the top left to 3 at the bottom right, with one NaN."""
    values = np.linspace(-1, 3, WIDTH * HEIGHT, dtype=np.float32).reshape(HEIGHT, WIDTH)
    values[5, 5] = np.nan
    return saved(Image.fromarray(values), "TIFF")


def palette_with_transparency(kind: str) -> bytes:
    image = quadrants().quantize(4)
    return saved(image, kind, transparency=image.getpixel((0, 0)))


def moving(kind: str, **options: object) -> bytes:
    """Three frames, the first upright."""
    frames = [quadrants().transpose(Image.Transpose.ROTATE_180), Image.new("RGB", (WIDTH, HEIGHT), BLUE)]
    return saved(quadrants(), kind, save_all=True, append_images=frames, **options)


def heic_header() -> bytes:
    """How an iPhone's photo begins."""
    return b"\0\0\0\x24ftypheic\0\0\0\0mif1MiHEMiPrmiafMiHBheic" + bytes(200)


SVG = b'<?xml version="1.0"?>\n<!-- drawn by hand -->\n<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
HTML = b"\n<!DOCTYPE html><html><head><title>404</title></head><body>Not found <svg/></body></html>"
DAMAGED = "damaged or truncated"

ODD_PICTURES: tuple[Odd, ...] = (
    Odd("photo.jpg", jpeg),
    Odd("progressive.jpg", lambda: saved(quadrants(), "JPEG", quality=95, subsampling=0, progressive=True)),
    Odd("picture.png", lambda: saved(quadrants(), "PNG")),
    Odd("picture.bmp", lambda: saved(quadrants(), "BMP")),
    Odd("picture.webp", lambda: saved(quadrants(), "WEBP", lossless=True)),
    Odd("picture.tif", lambda: saved(quadrants(), "TIFF", compression="tiff_lzw")),
    Odd("picture.ppm", lambda: saved(quadrants(), "PPM")),
    *([Odd("picture.avif", lambda: saved(quadrants(), "AVIF", quality=95))] if features.check("avif") else []),
    # names
    Odd("NO_EXTENSION", jpeg),
    Odd("PNG AS.JPG", lambda: saved(quadrants(), "PNG")),
    Odd("jpeg as.png", jpeg),
    Odd("picture as.txt", jpeg),
    Odd("Füße 猫 🙂 it's (1) & 100%.jpg", jpeg),
    Odd("n" * 196 + ".jpg", jpeg),
    # EXIF
    Odd("phone.jpg", lambda: with_orientation("JPEG", 6, quality=95), (HEIGHT, WIDTH), ("EXIF orientation 6",), BLUE),
    Odd("turned.png", lambda: with_orientation("PNG", 3), notes=("EXIF orientation 3",), corner=WHITE),
    Odd("turned.tif", lambda: with_orientation("TIFF", 8), (HEIGHT, WIDTH), ("EXIF orientation 8",), GREEN),
    Odd("damaged exif.jpg", lambda: saved(quadrants(), "JPEG", quality=95, exif=b"Exif\0\0garbage")),
    Odd("damaged exif.png", lambda: saved(quadrants(), "PNG", exif=b"garbage")),
    # transparency
    Odd("alpha.png", lambda: saved(hidden_colour(), "PNG"), notes=("transparent",), corner=WHITE),
    Odd("grey alpha.png", lambda: saved(hidden_colour().convert("LA"), "PNG"), notes=("transparent",), corner=WHITE),
    Odd("opaque alpha.png", lambda: saved(quadrants().convert("RGBA"), "PNG")),
    Odd("palette.png", lambda: saved(quadrants().quantize(4), "PNG")),
    Odd("clear.png", lambda: palette_with_transparency("PNG"), notes=("transparent",), corner=WHITE),
    Odd("clear.gif", lambda: palette_with_transparency("GIF"), notes=("transparent",), corner=WHITE),
    # depth and colour
    Odd("16-bit.png", lambda: deep_png(32896, 65535), notes=("16-bit",), corner=(128, 128, 128)),
    Odd("12-bit.png", lambda: deep_png(2056, 4095), notes=("12-bit",), corner=(128, 128, 128)),
    Odd("16-bit.tif", lambda: saved(Image.fromarray(np.full((32, 48), 51400, np.uint16)), "TIFF"), notes=("16-bit",),
        corner=(200, 200, 200)),
    Odd("16-bit colours.png", lambda: deep_colour_png((51400, 0, 65535)), notes=("16 bits",), corner=(200, 0, 255)),
    Odd("12-bit colours.png", lambda: deep_colour_png((2056, 0, 4095)), notes=("12 bits",), corner=(136, 0, 255)),
    Odd("float.tif", float_tiff, notes=("from -1 to 3", "NaN"), corner=(0, 0, 0)),
    Odd("print.jpg", lambda: saved(quadrants().convert("CMYK"), "JPEG", quality=95), notes=("approximate colours",)),
    Odd("grey.jpg", lambda: saved(quadrants().convert("L"), "JPEG", quality=95), corner=(76, 76, 76)),
    Odd("one bit.png", lambda: saved(Image.new("1", (WIDTH, HEIGHT), 1), "PNG"), corner=WHITE),
    Odd("fax.tif", lambda: saved(Image.new("1", (WIDTH, HEIGHT), 1), "TIFF", compression="group4"), corner=WHITE),
    # frames and pages
    Odd("moving.gif", lambda: moving("GIF"), notes=("first of 3 frames",)),
    Odd("moving.png", lambda: moving("PNG"), notes=("first of 3 frames",)),
    Odd("moving.webp", lambda: moving("WEBP", lossless=True), notes=("first of 3 frames",)),
    Odd("scan.tif", lambda: moving("TIFF"), notes=("first of 3 pages",)),
    Odd("two lenses.jpg", lambda: moving("MPO", quality=95, subsampling=0), notes=("first of 3 pictures",)),
    # sizes
    Odd("dot.png", lambda: saved(Image.new("RGB", (1, 1), BLUE), "PNG"), (1, 1), ("1x1",), BLUE),
    Odd("banner.png", lambda: saved(Image.new("RGB", (1600, 32), BLUE), "PNG"), (1600, 32), corner=BLUE),
    Odd("sliver.png", lambda: saved(Image.new("RGB", (4000, 20)), "PNG"), refusal="4000x20 is 200:1"),
    Odd("108 megapixels.png", lambda: bare_png(12000, 9000), refusal=r"108,000,000 pixels \(12000x9000\)"),
    Odd("400 megapixels.png", lambda: bare_png(20000, 20000), refusal=r"400,000,000 pixels \(20000x20000\)"),
    Odd("too many bytes.jpg", lambda: jpeg().ljust(20 * 2**20 + 1, b"\0"), refusal="20,971,521 bytes"),
    # no pictures
    Odd("half.jpg", lambda: jpeg()[: len(jpeg()) // 2], refusal=DAMAGED),
    Odd("half.png", lambda: saved(hidden_colour(), "PNG")[:90], refusal=DAMAGED),
    Odd("empty.jpg", lambda: b"", refusal="empty"),
    Odd("text.jpg", lambda: "Schöne Grüße,\nkein Bild".encode(), refusal="text"),
    Odd("error page.jpg", lambda: HTML, refusal="web page"),
    Odd("drawing.svg", lambda: SVG, refusal="SVG"),
    Odd("drawing.png", lambda: SVG, refusal="SVG"),
    Odd("noise.jpg", lambda: np.random.default_rng(0).bytes(999), refusal="not a picture"),
    Odd("paper.jpg", lambda: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", refusal="PDF"),
    Odd("figure.jpg", lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", refusal="PostScript"),
    Odd("film.jpg", lambda: b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom", refusal="video"),
    Odd("iphone.jpg", heic_header, refusal="HEIC"),
)  # fmt: skip
