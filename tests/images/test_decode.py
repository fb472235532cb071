"""Decoding: every odd picture is read as it is meant, or refused with its cause; nothing else ever comes out."""

from __future__ import annotations

import io
import os
import re
import struct
import sys
import threading
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, features

from camapp.errors import DecodeError, UsageError
from camapp.images import convert, formats
from camapp.images.decode import Limits, Picture, decode
from tests.images.odd_pictures import (
    BLUE,
    GREEN,
    ODD_PICTURES,
    RED,
    WHITE,
    Odd,
    bare_png,
    deep_png,
    heic_header,
    jpeg,
    moving,
    palette_with_transparency,
    png,
    quadrants,
    saved,
    with_orientation,
)

SOUND: dict[str, bytes] = {
    "jpeg": jpeg(),
    "progressive": saved(quadrants(), "JPEG", progressive=True),
    "turned jpeg": with_orientation("JPEG", 6),
    "cmyk": saved(quadrants().convert("CMYK"), "JPEG"),
    "mpo": moving("MPO"),
    "png": saved(quadrants(), "PNG"),
    "palette png": palette_with_transparency("PNG"),
    "deep png": deep_png(3, 70),
    "apng": moving("PNG"),
    "gif": moving("GIF"),
    "bmp": saved(quadrants().resize((12, 8)), "BMP"),
    "rle bmp": saved(quadrants().quantize(4), "BMP"),
    "webp": saved(quadrants(), "WEBP"),
    "moving webp": moving("WEBP", lossless=True),
    "tiff": saved(quadrants().resize((12, 8)), "TIFF"),
    "lzw tiff": saved(quadrants(), "TIFF", compression="tiff_lzw"),
    "jpeg tiff": saved(quadrants(), "TIFF", compression="jpeg"),
    "fax": saved(quadrants().convert("1"), "TIFF", compression="group4"),
    "pages": moving("TIFF", compression="tiff_deflate"),
    "float tiff": saved(Image.fromarray(np.linspace(0, 1, 96, dtype=np.float32).reshape(8, 12)), "TIFF"),
    "ppm": saved(quadrants().resize((12, 8)), "PPM"),
    "text pgm": b"P2 4 2 255 0 1 2 3 4 5 6 7\n",
    "deep pgm": b"P5 4 2 4095\n" + bytes(range(16)),
}
if features.check("avif"):
    SOUND["avif"] = saved(quadrants(), "AVIF")


def grey(values: list[list[int]]) -> Image.Image:
    return Image.fromarray(np.array(values, np.uint8))


def corners(picture: Picture) -> list[tuple[int, ...]]:
    """The colours at the top left, top right, bottom left, bottom right."""
    return [tuple(int(v) for v in picture.rgb[y, x]) for y in (2, -3) for x in (2, -3)]


def grey_values(picture: Picture) -> list[list[int]]:
    assert (picture.rgb == picture.rgb[..., :1]).all()
    return picture.rgb[..., 0].tolist()


def about_colour_and_depth(picture: Picture) -> str:
    """Its notes, without the one on small pictures, which most pictures here deserve."""
    return "; ".join(note for note in picture.notes if "heatmap" not in note)


# The table


@pytest.mark.parametrize("odd", ODD_PICTURES, ids=lambda odd: odd.file[:40])
def test_each_odd_picture_is_read_or_refused_as_the_table_says(odd: Odd, tmp_path: Path) -> None:
    path = odd.write(tmp_path)
    if odd.refusal:
        with pytest.raises(DecodeError, match=odd.refusal) as caught:
            decode(path)
        assert str(tmp_path) not in str(caught.value)
        assert re.fullmatch(r"[A-Z].+\.", str(caught.value))
        return
    picture = decode(path)
    assert picture.size == odd.size
    assert picture.name == odd.file
    assert len(picture.notes) == len(odd.notes)
    for note, expected in zip(picture.notes, odd.notes, strict=True):
        assert re.search(expected, note)
    np.testing.assert_allclose(picture.rgb[0, 0].astype(int), odd.corner, atol=6)


def test_the_pixels_are_upright_contiguous_bytes_that_nobody_can_change() -> None:
    picture = decode(with_orientation("PNG", 6))
    assert picture.rgb.dtype == np.uint8
    assert picture.rgb.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        picture.rgb[0, 0] = 0


# EXIF orientation. Each pixel's place is written down by hand from the EXIF standard's table of row 0 and column 0.

UPRIGHT = {
    1: [[0, 1, 2], [3, 4, 5]],
    2: [[2, 1, 0], [5, 4, 3]],
    3: [[5, 4, 3], [2, 1, 0]],
    4: [[3, 4, 5], [0, 1, 2]],
    5: [[0, 3], [1, 4], [2, 5]],
    6: [[3, 0], [4, 1], [5, 2]],
    7: [[5, 2], [4, 1], [3, 0]],
    8: [[2, 5], [1, 4], [0, 3]],
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize(
    ("kind", "options"),
    [("PNG", {}), ("WEBP", {"lossless": True}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"})],
)
def test_every_exif_orientation_puts_each_pixel_where_the_standard_says(
    orientation: int, kind: str, options: dict[str, object]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.repeat(np.array(UPRIGHT[1], np.uint8)[..., None] * 40, 3, axis=2))
    picture = decode(saved(stored, kind, exif=exif, **options))
    assert grey_values(picture) == (np.array(UPRIGHT[orientation]) * 40).tolist()
    assert picture.orientation == orientation
    expected = f"turned upright (EXIF orientation {orientation})" if orientation > 1 else ""
    assert about_colour_and_depth(picture) == expected


@pytest.mark.skipif(not features.check("avif"), reason="Pillow was built without AVIF")
def test_an_avif_is_turned_once() -> None:
    picture = decode(with_orientation("AVIF", 6, quality=100))
    assert picture.size == (32, 48)
    np.testing.assert_allclose(corners(picture), [BLUE, RED, WHITE, GREEN], atol=6)


def test_a_turned_picture_keeps_no_exif_and_is_not_turned_again() -> None:
    once = decode(with_orientation("JPEG", 6, quality=95))
    assert not once.to_pil().getexif()
    assert (once.orientation, Picture.from_pil(once.to_pil()).orientation) == (6, 1)
    twice = decode(saved(once.to_pil(), "PNG"))
    assert twice.notes == ()
    np.testing.assert_array_equal(twice.rgb, once.rgb)


@pytest.mark.parametrize("orientation", [0, 9, 255, 65535])
def test_an_orientation_that_does_not_exist_is_ignored(orientation: int) -> None:
    picture = decode(with_orientation("PNG", orientation))
    np.testing.assert_array_equal(picture.rgb, np.asarray(quadrants()))
    assert picture.orientation == 1


# Transparency. Expected: colour * alpha + ground * (1 - alpha), rounded by hand.


def test_half_transparent_colours_are_mixed_with_white() -> None:
    picture = decode(saved(Image.new("RGBA", (40, 40), (200, 100, 0, 128)), "PNG"))
    assert picture.rgb[7, 7].tolist() == [227, 177, 127]
    assert picture.notes == ("transparent parts laid on white",)


def test_half_transparent_colours_are_mixed_with_the_background_asked_for() -> None:
    picture = decode(saved(Image.new("RGBA", (40, 40), (200, 100, 0, 128)), "PNG"), background=(0, 0, 255))
    assert picture.rgb[7, 7].tolist() == [100, 50, 127]
    assert picture.notes == ("transparent parts laid on rgb(0, 0, 255)",)


def test_half_transparent_grey_is_mixed_with_white() -> None:
    assert decode(saved(Image.new("LA", (2, 2), (100, 51)), "PNG")).rgb[0, 0].tolist() == [224, 224, 224]


@pytest.mark.parametrize("mode", ["RGBa", "La"])
def test_premultiplied_alpha_gives_the_same_as_straight_alpha(mode: str) -> None:
    straight = Image.new(mode.upper(), (2, 2), (200, 200, 200, 51) if mode == "RGBa" else (200, 51))
    assert Picture.from_pil(straight.convert(mode)).rgb[0, 0].tolist() == [244, 244, 244]


@pytest.mark.parametrize(
    ("image", "transparency", "expected"),
    [
        (grey([[0, 30], [40, 65]]), 30, [[0, 255], [40, 65]]),
        (Image.fromarray(np.array([[0, 300], [40000, 65535]], np.uint16)), 300, [[0, 255], [156, 255]]),
        (Image.fromarray(np.array([[[9, 9, 9], [7, 7, 7]]], np.uint8)), (7, 7, 7), [[9, 255]]),
        (grey([[0, 80]]).quantize(2), bytes([255, 255]), [[0, 80]]),
    ],
    ids=["grey", "16-bit grey", "RGB", "palette"],
)
def test_the_one_colour_that_a_png_calls_transparent_becomes_white(
    image: Image.Image, transparency: object, expected: list[list[int]]
) -> None:
    assert grey_values(decode(saved(image, "PNG", transparency=transparency))) == expected


def test_a_palette_with_an_alpha_for_each_colour_is_mixed_colour_by_colour() -> None:
    image = Image.frombytes("P", (3, 1), bytes([0, 1, 2]))
    image.putpalette([0, 0, 0, 100, 100, 100, 200, 200, 200])
    assert grey_values(decode(saved(image, "PNG", transparency=bytes([0, 51, 255])))) == [[255, 224, 200]]


# Depth


def test_16_bit_grey_is_scaled_by_its_range_and_not_clipped() -> None:
    rows = struct.pack(">4H", 0, 257, 32896, 65535)
    picture = decode(png(4, 1, 16, 0, rows))
    assert grey_values(picture) == [[0, 1, 128, 255]]
    assert about_colour_and_depth(picture) == "16-bit grey: 0-65535 scaled to 0-255"


def test_12_bit_grey_in_a_16_bit_file_is_scaled_by_its_own_range() -> None:
    picture = decode(png(4, 1, 16, 0, struct.pack(">4H", 0, 16, 2056, 4095)))
    assert grey_values(picture) == [[0, 1, 128, 255]]
    assert about_colour_and_depth(picture) == "12-bit grey: 0-4095 scaled to 0-255"


def test_a_value_just_past_12_bits_is_taken_for_16() -> None:
    assert grey_values(decode(png(2, 1, 16, 0, struct.pack(">2H", 2056, 4096)))) == [[8, 16]]


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "I;16L", "I;16N"])
def test_every_byte_order_of_16_bits_reads_alike(mode: str) -> None:
    order = {"I;16B": ">u2", "I;16N": "=u2"}.get(mode, "<u2")
    image = Image.frombytes(mode, (2, 1), np.array([32896, 65535], order).tobytes())
    assert grey_values(Picture.from_pil(image)) == [[128, 255]]


def test_a_deep_pgm_is_scaled_by_its_declared_maximum() -> None:
    assert grey_values(decode(b"P5 3 1 1000\n" + struct.pack(">3H", 0, 500, 1000))) == [[0, 128, 255]]


def test_16_bit_tiff_whose_zero_is_white_is_not_shown_as_a_negative() -> None:
    data = saved(Image.fromarray(np.array([[0, 65535, 32896]], np.uint16)), "TIFF")
    tag = struct.pack("<HHIH", 262, 3, 1, 1)  # PhotometricInterpretation: zero is black
    assert tag in data
    assert grey_values(decode(data)) == [[0, 255, 128]]
    assert grey_values(decode(data.replace(tag, struct.pack("<HHIH", 262, 3, 1, 0)))) == [[255, 0, 127]]


def test_16_bit_colours_keep_their_upper_half() -> None:
    picture = decode(png(1, 1, 16, 2, struct.pack(">3H", 0x1234, 0x80FF, 0xFFFF)))
    assert picture.rgb[0, 0].tolist() == [0x12, 0x80, 0xFF]
    assert "16 bits a channel" in about_colour_and_depth(picture)


def test_12_bit_colours_in_a_16_bit_file_are_not_left_black() -> None:
    picture = decode(png(1, 1, 16, 2, struct.pack(">3H", 0, 0x0800, 0x0FFF)))
    assert picture.rgb[0, 0].tolist() == [0, 136, 255]


def test_a_float_tiff_is_stretched_between_its_finite_extremes() -> None:
    values = np.array([[-1, 0, 1, 3], [np.nan, np.inf, -np.inf, 2]], np.float32)
    picture = decode(saved(Image.fromarray(values), "TIFF"))
    assert grey_values(picture) == [[0, 64, 128, 255], [0, 255, 0, 191]]
    assert "from -1 to 3" in about_colour_and_depth(picture)
    assert "3 pixels" in about_colour_and_depth(picture)


@pytest.mark.parametrize("value", [0.7, np.nan, np.inf, -3e38])
def test_a_float_picture_of_one_value_is_no_division_by_zero(value: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = decode(saved(Image.fromarray(np.full((2, 2), value, np.float32)), "TIFF"))
    assert grey_values(picture) == [[0, 0], [0, 0]]


def test_the_largest_floats_do_not_overflow() -> None:
    values = np.array([[-3.4e38, 0, 3.4e38]], np.float32)
    assert grey_values(decode(saved(Image.fromarray(values), "TIFF"))) == [[0, 128, 255]]


def test_signed_values_are_stretched_between_their_extremes() -> None:
    image = Image.fromarray(np.array([[-1000, 0, 1000]], np.int32))
    assert grey_values(decode(saved(image, "TIFF"))) == [[0, 128, 255]]


# Colour models


def test_cmyk_is_converted_by_the_plain_formula() -> None:
    picture = decode(saved(Image.new("CMYK", (32, 32), (255, 0, 0, 0)), "TIFF"))
    assert picture.rgb[0, 0].tolist() == [0, 255, 255]
    assert picture.notes == ("CMYK converted to RGB: approximate colours",)


def test_a_cmyk_jpeg_is_not_shown_as_its_negative() -> None:
    picture = decode(saved(Image.new("CMYK", (32, 32), (0, 0, 255, 0)), "JPEG", quality=95))
    np.testing.assert_allclose(picture.rgb[0, 0].astype(int), (255, 255, 0), atol=4)


def test_grey_and_one_bit_become_three_equal_channels() -> None:
    assert grey_values(decode(saved(grey([[0, 77], [200, 255]]), "PNG"))) == [[0, 77], [200, 255]]
    assert grey_values(decode(saved(grey([[0, 255]]).convert("1"), "PNG"))) == [[0, 255]]


def test_the_colours_of_a_palette_are_shown_and_not_its_indices() -> None:
    np.testing.assert_array_equal(decode(saved(quadrants().quantize(4), "GIF")).rgb, np.asarray(quadrants()))


def test_a_colour_profile_is_not_applied() -> None:
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    picture = decode(saved(quadrants(), "PNG", icc_profile=profile))
    np.testing.assert_array_equal(picture.rgb, np.asarray(quadrants()))


# Frames


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "WEBP"])
def test_of_many_frames_the_first_is_read_just_as_if_it_were_alone(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    picture = decode(moving(kind, **options))
    np.testing.assert_array_equal(picture.rgb, np.asarray(quadrants()))
    assert picture.notes == (f"first of 3 {'pages' if kind == 'TIFF' else 'frames'}",)


def test_damage_behind_the_first_frame_costs_only_the_count() -> None:
    data = moving("GIF")
    picture = decode(data[: len(data) - 30])
    np.testing.assert_array_equal(picture.rgb, np.asarray(quadrants()))
    assert picture.notes == ("the first frame; what follows it is damaged",)


def test_damage_in_a_later_page_does_not_spill_into_the_first() -> None:
    data = bytearray(moving("TIFF", tiffinfo={0x0112: 6}))
    first = int.from_bytes(data[4:8], "little")
    after_tags = first + 2 + 12 * int.from_bytes(data[first : first + 2], "little")
    second = int.from_bytes(data[after_tags : after_tags + 4], "little")
    data[second + 2 : second + 60] = b"\xff" * 58
    picture = decode(bytes(data))
    assert corners(picture) == [BLUE, RED, WHITE, GREEN]
    assert picture.notes == ("the first frame; what follows it is damaged", "turned upright (EXIF orientation 6)")


def test_pages_past_a_thousand_are_not_counted() -> None:
    page = Image.new("L", (32, 32))
    data = saved(page, "TIFF", save_all=True, append_images=[page] * 1000)
    assert decode(data).notes == ("first of more than 1000 pages",)


# Limits


def test_a_picture_of_exactly_the_most_pixels_is_read_and_one_more_row_is_not() -> None:
    limits = Limits(max_pixels=40 * 40)
    assert decode(saved(Image.new("L", (40, 40)), "PNG"), limits=limits).size == (40, 40)
    with pytest.raises(DecodeError, match=r"1,640 pixels \(40x41\); the limit is 1,600"):
        decode(saved(Image.new("L", (40, 41)), "PNG"), limits=limits)


def test_a_picture_of_exactly_fifty_to_one_is_read_and_a_longer_one_is_not() -> None:
    assert decode(saved(Image.new("L", (1600, 32)), "PNG")).size == (1600, 32)
    assert decode(saved(Image.new("L", (32, 1600)), "PNG")).size == (32, 1600)
    with pytest.raises(DecodeError, match=r"32x1601 is 50\.03:1"):
        decode(saved(Image.new("L", (32, 1601)), "PNG"))


def test_the_original_size_is_kept_however_large() -> None:
    assert decode(saved(Image.new("L", (5000, 3000)), "JPEG")).size == (5000, 3000)


def test_a_side_below_32_pixels_is_read_with_a_warning() -> None:
    assert decode(saved(Image.new("L", (32, 32)), "PNG")).notes == ()
    assert decode(saved(Image.new("L", (100, 31)), "PNG")).notes == (
        "only 100x31: below 32 pixels a heatmap means little",
    )


def test_bytes_past_the_limit_are_refused_with_the_numbers() -> None:
    data = jpeg()
    assert decode(data, limits=Limits(max_bytes=len(data))).size == (48, 32)
    with pytest.raises(DecodeError, match=rf"{len(data):,} bytes .*limit is {len(data) - 1:,} bytes"):
        decode(data, limits=Limits(max_bytes=len(data) - 1))


def test_a_file_past_the_limit_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.jpg"
    path.touch()
    os.truncate(path, 2**40)  # sparse: it takes no space, but reading it would take an hour
    with pytest.raises(DecodeError, match="1,099,511,627,776 bytes"):
        decode(path)


def test_an_endless_stream_is_read_to_one_byte_past_the_limit() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size: int = -1) -> bytes:
            assert size > 0
            self.given += size
            return b"\xff" * size

    stream = Endless()
    with pytest.raises(DecodeError, match="limit is 3,000,000 bytes"):
        decode(stream, limits=Limits(max_bytes=3_000_000))
    assert stream.given == 3_000_001


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMAPP_MAX_BYTES", "123456")
    monkeypatch.setenv("CAMAPP_MAX_PIXELS", "1500")
    assert Limits.from_environment() == Limits(max_bytes=123456, max_pixels=1500)
    with pytest.raises(DecodeError, match="1,536 pixels"):
        decode(jpeg())
    assert decode(jpeg(), limits=Limits()).size == (48, 32)


@pytest.mark.parametrize("value", ["lots", "0", "-5", "1.5", "20MB"])
def test_a_bad_limit_in_the_environment_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMAPP_MAX_PIXELS", value)
    with pytest.raises(UsageError, match=f'CAMAPP_MAX_PIXELS="{re.escape(value)}"'):
        decode(jpeg())


def test_an_empty_limit_in_the_environment_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMAPP_MAX_BYTES", "")
    assert Limits.from_environment() == Limits()


@pytest.mark.parametrize("field", ["max_bytes", "max_pixels", "max_aspect"])
def test_a_limit_that_allows_nothing_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match=f"{field}=0"):
        Limits(**{field: 0})


# Hostile files


def test_a_gif_with_a_vast_canvas_is_refused_from_its_header() -> None:
    disposal = b"!\xf9\x04\x08\0\0\0\0"  # makes Pillow fill the frame's area on opening
    frame = b"," + struct.pack("<4HB", 0, 0, 20000, 20000, 0) + b"\x02\x02\x4c\x01\0"
    with pytest.raises(DecodeError, match=r"400,000,000 pixels \(20000x20000\)"):
        decode(b"GIF89a" + struct.pack("<2H3B", 20000, 20000, 0, 0, 0) + disposal + frame + b";")


def test_vast_later_frames_of_a_gif_cost_nothing() -> None:
    disposal = b"!\xf9\x04\x08\0\0\0\0"
    frame = disposal + b"," + struct.pack("<4HB", 0, 0, 12000, 12000, 0) + b"\x02\x02\x4c\x01\0"
    started = time.monotonic()
    picture = decode(saved(quadrants(), "GIF")[:-1] + frame * 20000 + b";")
    assert picture.notes == ("first of 20001 frames",)
    assert time.monotonic() - started < 5  # filled one by one they take half an hour


def test_a_tiff_that_lists_the_same_bytes_under_many_tags_takes_little_memory() -> None:
    size, bombs = 2**20, 500
    tags = [(256, 4, 1, 8), (257, 4, 1, 8), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    tags += [(273, 4, 1, 0), (277, 3, 1, 1), (278, 4, 1, 8), (279, 4, 1, 64)]
    tags += [(40000 + i, 1, size, 0) for i in range(bombs)]
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    data = (b"II*\0" + struct.pack("<I", 8) + directory).ljust(size, b"\0")
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="again and again"):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 20 * size
    finally:
        tracemalloc.stop()


def test_deep_pixels_are_converted_without_wide_copies_of_the_whole_picture() -> None:
    data = saved(Image.fromarray(np.arange(8_000_000, dtype=np.uint16).reshape(2500, 3200)), "PNG", compress_level=1)
    tracemalloc.start()
    try:
        decode(data)
        assert tracemalloc.get_traced_memory()[1] < 24_000_000 + 36_000_000  # the pixels themselves, and one band
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["png", "palette png", "deep png", "float tiff", "cmyk", "turned jpeg", "gif"])
def test_the_seams_between_bands_do_not_show(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = decode(SOUND[kind])
    monkeypatch.setattr(convert, "BAND_PIXELS", 100)
    banded = decode(SOUND[kind])
    np.testing.assert_array_equal(banded.rgb, whole.rgb)
    assert banded.notes == whole.notes


# Damage. Whatever the bytes: a picture, or a DecodeError.


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [kind for kind in SOUND if kind != "text pgm"])  # its last digits cannot be missed
def test_a_file_cut_anywhere_is_refused_or_gives_the_same_pixels(kind: str) -> None:
    data = SOUND[kind]
    whole = decode(data).rgb
    refused = 0
    for cut in range(0, len(data), max(1, len(data) // 200)):
        try:
            picture = decode(data[:cut])
        except DecodeError:
            refused += 1
            continue
        np.testing.assert_array_equal(picture.rgb, whole)
    assert refused > 10


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=1500, deadline=None, database=None)
@given(
    kind=st.sampled_from(sorted(SOUND)),
    edits=st.lists(st.tuples(st.integers(0, 5000), st.binary(min_size=1, max_size=4)), max_size=8),
    keep=st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_any_damage_ends_in_a_picture_or_a_decode_error(kind: str, edits: list[tuple[int, bytes]], keep: float) -> None:
    data = bytearray(SOUND[kind])
    for at, replacement in edits:
        at %= len(data)
        data[at : at + len(replacement)] = replacement
    assert_read_or_refused(bytes(data[: int(len(data) * keep)]))


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=500, deadline=None, database=None)
@given(
    start=st.sampled_from([b"", *(data[:12] for data in SOUND.values()), heic_header()[:40]]),
    rest=st.binary(max_size=200),
)
def test_noise_after_any_signature_ends_in_a_picture_or_a_decode_error(start: bytes, rest: bytes) -> None:
    assert_read_or_refused(start + rest)


def assert_read_or_refused(data: bytes) -> None:
    try:
        picture = decode(data, limits=Limits(max_pixels=1_000_000))
    except DecodeError:
        return
    assert picture.rgb.shape == (picture.height, picture.width, 3)
    assert picture.width * picture.height <= 1_000_000


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OverflowError(), struct.error(), SyntaxError(), RecursionError(), KeyError(5), AssertionError(),
     Image.DecompressionBombError(), EOFError(), ZeroDivisionError(), SystemError()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_whatever_pillow_raises_becomes_a_decode_error_that_keeps_its_cause(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(formats.OPENERS, "JPEG", raising(error))
    with pytest.raises(DecodeError) as caught:
        decode(jpeg())
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_is_not_swallowed(stop: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(formats.OPENERS, "JPEG", raising(stop))
    with pytest.raises(type(stop)):
        decode(jpeg())


def raising(error: BaseException) -> Callable[..., ImageFile.ImageFile]:
    def opener(*_: object) -> ImageFile.ImageFile:
        raise error

    return opener


# HEIC and AVIF


@pytest.mark.parametrize("major", [b"heic", b"heix", b"hevc", b"mif1", b"msf1"])
def test_heic_without_its_extra_names_the_extra(major: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    data = heic_header().replace(b"ftypheic", b"ftyp" + major)
    with pytest.raises(DecodeError, match=r'pip install "camapp\[heif\]"'):
        decode(data)


def test_heic_with_its_extra_is_read_and_turned_once() -> None:
    pillow_heif = pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    pillow_heif.from_pillow(quadrants().resize((96, 64), Image.Resampling.NEAREST)).save(buffer, exif=exif.tobytes())
    picture = decode(buffer.getvalue())
    assert picture.size == (64, 96)
    np.testing.assert_allclose(corners(picture), [BLUE, RED, WHITE, GREEN], atol=8)
    assert picture.notes == ("turned upright (EXIF orientation 6)",)
    assert picture.orientation == 6
    assert "HEIF" not in Image.OPEN


@pytest.mark.skipif(not features.check("avif"), reason="Pillow was built without AVIF")
def test_avif_in_the_container_it_shares_with_heic_is_read_as_avif() -> None:
    data = SOUND["avif"]
    assert data[8:12] == b"avif"
    np.testing.assert_allclose(corners(decode(data[:8] + b"mif1" + data[12:])), [RED, GREEN, BLUE, WHITE], atol=40)


@pytest.mark.parametrize("kind", ["AVIF", "WebP"])
def test_a_format_that_pillow_was_built_without_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "check", lambda feature: False)
    start = b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf" if kind == "AVIF" else SOUND["webp"]
    with pytest.raises(DecodeError, match=f"{kind}, which this build of Pillow cannot read"):
        decode(start)


# Sources


def test_every_kind_of_source_gives_the_same_pixels(tmp_path: Path) -> None:
    class Slow(io.RawIOBase):
        """Gives three bytes at a time, as sockets may."""

        def __init__(self, data: bytes) -> None:
            self.buffer = io.BytesIO(data)

        def read(self, size: int = -1) -> bytes:
            return self.buffer.read(min(size, 3))

    path = tmp_path / "photo.jpg"
    path.write_bytes(jpeg())
    expected = decode(jpeg()).rgb
    with open(path, "rb") as file:
        sources = [path, str(path), bytearray(jpeg()), memoryview(jpeg()), io.BytesIO(jpeg()), file, Slow(jpeg())]
        for source in sources:
            np.testing.assert_array_equal(decode(source).rgb, expected)


def test_a_picture_is_named_after_its_file_without_the_folder(tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    path.write_bytes(jpeg())
    assert decode(path).name == "cat.jpg"
    with open(path, "rb") as file:
        assert decode(file).name == "cat.jpg"
    assert decode(jpeg()).name == "picture"
    assert decode(io.BytesIO(jpeg())).name == "picture"
    assert decode(path, name="my cat").name == "my cat"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every file name is Unicode")
def test_a_file_name_that_is_not_unicode_can_be_printed(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/gr\xfcn.jpg"
    with open(path, "wb") as file:
        file.write(jpeg())
    assert decode(os.fsdecode(path)).name.encode() == "gr\N{REPLACEMENT CHARACTER}n.jpg".encode()


def test_a_path_that_is_no_file_is_refused_with_the_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(jpeg())
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for path, reason in [
        (tmp_path / "missing.jpg", "No such file"),
        (tmp_path / "link", "No such file"),
        (tmp_path / "file" / "below.jpg", "No such file"),
        ("", "No such file"),
        (tmp_path, "This is a folder"),
        (tmp_path / "pipe", "pipe or a device"),
        ("a\0b.jpg", "could not be read"),
        ("n" * 5000, "could not be read"),
    ]:
        with pytest.raises(DecodeError, match=reason) as caught:
            decode(path)
        assert str(tmp_path) not in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.jpg"
    path.write_bytes(jpeg())
    path.chmod(0)
    with pytest.raises(DecodeError, match="permission denied"):
        decode(path)


def test_a_stream_that_gives_no_bytes_is_refused_with_the_reason() -> None:
    class Broken(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise TimeoutError(110, "Connection timed out")

    closed = io.BytesIO(jpeg())
    closed.close()
    for stream, reason in [
        (io.StringIO("text"), '"rb"'),
        (io.BytesIO(), "empty"),
        (closed, "could not be read"),
        (Broken(), "Connection timed out"),
    ]:
        with pytest.raises(DecodeError, match=reason):
            decode(stream)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "source", [None, 3, np.zeros((4, 4, 3), np.uint8), quadrants()], ids=lambda s: type(s).__name__
)
def test_a_source_of_the_wrong_kind_is_a_usage_error(source: object) -> None:
    with pytest.raises(UsageError, match="give a path, bytes or a binary file"):
        decode(source)  # type: ignore[arg-type]


@pytest.mark.parametrize("background", ["white", (1, 2), (0, 0, 256), (0, -1, 0), (0.5, 0, 0), None])
def test_a_background_that_is_no_colour_is_a_usage_error(background: object) -> None:
    with pytest.raises(UsageError, match="is not a colour"):
        decode(jpeg(), background=background)  # type: ignore[arg-type]


# The host program's Pillow


def test_truncated_files_are_refused_also_where_the_host_lets_pillow_fill_them_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    for kind in ("jpeg", "png", "bmp", "gif"):
        with pytest.raises(DecodeError, match="damaged or truncated"):
            decode(SOUND[kind][:-60] if kind != "gif" else saved(quadrants(), "GIF")[:-20])
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_many_threads_refuse_truncated_files_and_give_the_hosts_setting_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    outcomes: list[bool] = []

    def work() -> None:
        for _ in range(40):
            try:
                decode(jpeg()[:-60])
                outcomes.append(False)
            except DecodeError:
                outcomes.append(True)
            outcomes.append(decode(jpeg()).size == (48, 32))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [True] * 480
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_pillows_own_pixel_limit_is_neither_changed_nor_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2**20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(saved(Image.new("L", (2000, 2000)), "PNG")).size == (2000, 2000)
        with pytest.raises(DecodeError, match="108,000,000 pixels"):
            decode(bare_png(12000, 9000))
    assert Image.MAX_IMAGE_PIXELS == 2**20


# Pictures from arrays and from Pillow


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[0, 9], [200, 255]], np.uint8), [[0, 9], [200, 255]]),
        (np.array([[[7], [8]]], np.uint8), [[7, 8]]),
        (np.array([[[7, 7, 7], [8, 8, 8]]], np.uint8)[:, ::-1], [[8, 7]]),
        (np.array([[0, 0.2, 1]], np.float32), [[0, 51, 255]]),
        (np.array([[0, 0.5, 1]], np.float64), [[0, 128, 255]]),
        (np.array([[0, 0.5, 1]], np.float16), [[0, 128, 255]]),
    ],
    ids=["(H, W)", "(H, W, 1)", "(H, W, 3)", "float32", "float64", "float16"],
)
def test_arrays_are_taken_as_they_are(array: np.ndarray, expected: list[list[int]]) -> None:
    picture = Picture.from_array(array, name="mine")
    assert grey_values(picture) == expected
    assert picture.name == "mine"
    assert picture.rgb.flags.c_contiguous


def test_a_picture_does_not_change_with_the_array_it_was_made_from() -> None:
    array = np.zeros((40, 40, 3), np.uint8)
    picture = Picture.from_array(array)
    array[:] = 255
    assert not picture.rgb.any()


@pytest.mark.parametrize(
    ("array", "advice"),
    [
        (np.zeros((3, 8, 9), np.uint8), r"array\.transpose\(1, 2, 0\)"),
        (np.zeros((8, 9, 4), np.uint8), "from_pil"),
        (np.zeros((2, 8, 9, 3), np.uint8), r"array\[0\]"),
        (np.zeros((8, 9), np.uint16), "dtype uint16.*0-255"),
        (np.zeros((8, 9), bool), "dtype bool"),
        (np.zeros((0, 9), np.uint8), r"shape \(0, 9\)"),
        (np.zeros(5, np.uint8), r"shape \(5,\)"),
        (np.full((2, 2), 255.0), "found 255 to 255"),
        (np.array([[-0.1, 0.5]]), "found -0.1 to 0.5"),
        (np.array([[np.nan, 0.5]]), "0-1"),
    ],
)
def test_an_array_that_is_no_picture_is_refused_with_advice(array: np.ndarray, advice: str) -> None:
    with pytest.raises(UsageError, match=advice):
        Picture.from_array(array)


def test_a_pillow_image_is_converted_just_as_its_file() -> None:
    for data in SOUND.values():
        from_file, from_image = decode(data), Picture.from_pil(Image.open(io.BytesIO(data)))
        np.testing.assert_array_equal(from_image.rgb, from_file.rgb)
        assert from_image.notes == tuple(note for note in from_file.notes if not note.startswith("first of"))


def test_a_pillow_image_that_cannot_be_loaded_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="damaged or truncated"):
        Picture.from_pil(Image.open(io.BytesIO(jpeg()[:-60])))


def test_what_is_no_pillow_image_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="ndarray is not a Pillow image"):
        Picture.from_pil(np.zeros((4, 4, 3), np.uint8))  # type: ignore[arg-type]


def test_a_pillow_image_without_pixels_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="0x5 has no pixels"):
        Picture.from_pil(Image.new("RGB", (0, 5)))


def test_a_picture_goes_to_pillow_and_back_unchanged() -> None:
    picture = decode(jpeg())
    image = picture.to_pil()
    assert (image.size, image.mode, image.info) == (picture.size, "RGB", {})
    np.testing.assert_array_equal(Picture.from_pil(image).rgb, picture.rgb)
    image.paste((1, 2, 3), (0, 0, 48, 32))
    assert picture.rgb[0, 0].tolist() != [1, 2, 3]


def test_a_picture_shows_itself_in_one_line() -> None:
    assert repr(decode(deep_png(0, 65535), name="x.png")) == (
        "Picture('x.png', 48x32, notes=('16-bit grey: 0-65535 scaled to 0-255',))"
    )
