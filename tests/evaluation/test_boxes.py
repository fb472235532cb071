"""Boxes meet their pictures: found by path or name, turned, scaled and brought into the model's input."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from camapp.errors import AnnotationError
from camapp.evaluation.boxes import Annotations, Box, PictureBoxes, fit_to_picture, object_boxes
from camapp.images.decode import decode
from camapp.images.geometry import FITS, Fit, Geometry, Preprocessing, prepare
from camapp.images.picture import Picture
from camapp.sources.pictures import PictureFile, find_pictures
from tests.evaluation.annotated import Edges, bright_edges, write_picture

WHOLE = Geometry((100, 80), (100, 80), 0, 0, 1, 1, "stretch")
BOX = (Box((1.0, 2.0, 3.0, 4.0)),)


def annotations(*files: str, path: str = "/data/boxes.json") -> Annotations:
    return Annotations(Path(path), tuple(PictureBoxes(file, BOX) for file in files))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("size", "edges"), [((300, 200), (110, 40, 210, 160)), ((90, 250), (20, 100, 70, 150))])
def test_a_box_lies_in_the_models_input_where_its_object_does(
    fit: Fit, size: tuple[int, int], edges: Edges, tmp_path: Path
) -> None:
    """The oracle is the picture itself: the bright rectangle in the tensor that the model gets."""
    write_picture(tmp_path / "p.png", size, edges)
    inputs, geometry, _ = prepare(decode(tmp_path / "p.png"), Preprocessing((64, 64), 72), fit)
    (found,) = object_boxes([Box(tuple(map(float, edges)))], geometry, "x", 0).boxes.tolist()
    np.testing.assert_allclose(found, bright_edges(inputs[0].permute(1, 2, 0).numpy()), atol=0.75)


def test_boxes_are_clipped_to_what_the_model_sees_and_dropped_where_it_sees_nothing() -> None:
    # A crop of the middle 100 columns of a picture of 300, at half the size.
    geometry = Geometry((300, 100), (50, 50), 100, 0, 2, 2, "crop")
    boxes = [Box((50.0, 10.0, 120.0, 60.0)), Box((0.0, 0.0, 90.0, 90.0)), Box((199.0, 0.0, 300.0, 90.0))]
    found = object_boxes(boxes, geometry, "x", 0).boxes
    assert found.tolist() == [[0, 5, 10, 30]]  # the last one shows half a pixel: less than can be measured
    assert object_boxes(boxes[1:2], geometry, "x", 0).boxes.shape == (0, 4)


@pytest.mark.parametrize("name", ["Tiger cat", "tiger_cat", "TIGER-CAT "])
def test_boxes_of_the_explained_class_stand_alone(name: str) -> None:
    boxes = [Box((0.0, 0.0, 9.0, 9.0), "dog"), Box((10.0, 10.0, 20.0, 20.0), name)]
    found = object_boxes(boxes, WHOLE, "tiger cat", 282)
    assert found.matched
    assert found.boxes.tolist() == [[10, 10, 20, 20]]


def test_boxes_match_by_index_too_and_all_count_where_none_matches() -> None:
    boxes = [Box((0.0, 0.0, 9.0, 9.0), "chat", 282), Box((10.0, 10.0, 20.0, 20.0), "chien", 151)]
    by_index = object_boxes(boxes, WHOLE, "tiger cat", 282)
    assert (by_index.matched, by_index.boxes.tolist()) == (True, [[0, 0, 9, 9]])
    none = object_boxes(boxes, WHOLE, "espresso", 967)
    assert (none.matched, len(none.boxes)) == (False, 2)


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
def test_boxes_drawn_on_stored_pixels_turn_with_the_picture(orientation: int) -> None:
    stored = np.zeros((40, 70, 3), np.uint8)
    stored[5:15, 10:50] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    Image.fromarray(stored).save(buffer, "PNG", exif=exif)
    picture = decode(buffer.getvalue())
    assert picture.size == (40, 70)
    annotated = PictureBoxes("p", (Box((10.0, 5.0, 50.0, 15.0)),), (70, 40))
    ((box,), notes) = fit_to_picture(annotated, picture)
    assert box.xyxy == bright_edges(picture.rgb)
    assert notes == ["boxes drawn on the stored pixels: turned upright with the picture"]
    # Drawn on the upright picture, and saying so, they stay; saying nothing, they stay with a note.
    upright = PictureBoxes("p", (Box(bright_edges(picture.rgb)),), (40, 70))
    assert fit_to_picture(upright, picture) == (list(upright.boxes), [])
    unsaid = PictureBoxes("p", upright.boxes)
    assert fit_to_picture(unsaid, picture) == (
        list(unsaid.boxes),
        ["the boxes name no size: taken as drawn on the upright picture"],
    )


def test_a_pictures_orientation_is_read_from_its_data_not_from_its_notes() -> None:
    rgb = np.zeros((70, 40, 3), np.uint8)
    annotated = PictureBoxes("p", (Box((10.0, 5.0, 50.0, 15.0)),), (70, 40))
    ((box,), _) = fit_to_picture(annotated, Picture(rgb, orientation=6))
    assert box.xyxy == (25, 10, 35, 50)
    with pytest.raises(AnnotationError, match="another shape"):
        fit_to_picture(annotated, Picture(rgb, notes=("turned upright (EXIF orientation 6)",)))


def test_boxes_of_a_copy_of_another_size_are_scaled() -> None:
    picture = Picture(np.zeros((375, 500, 3), np.uint8))
    (box,), notes = fit_to_picture(PictureBoxes("p", (Box((10.0, 20.0, 100.0, 150.0)),), (250, 188)), picture)
    assert box.xyxy == pytest.approx((20, 20 * 375 / 188, 200, 150 * 375 / 188))
    assert notes == ["boxes drawn on a copy of another size: scaled"]


@pytest.mark.parametrize("size", [(375, 500), (500, 333), (400, 375)])
def test_boxes_of_a_picture_of_another_shape_are_refused(size: tuple[int, int]) -> None:
    picture = Picture(np.zeros((375, 500, 3), np.uint8))
    with pytest.raises(AnnotationError, match=rf"{size[0]}x{size[1]} pixels, but the picture has 500x375"):
        fit_to_picture(PictureBoxes("p", BOX, size), picture)


def test_a_box_outside_of_the_picture_is_refused_and_one_that_sticks_out_is_clipped() -> None:
    picture = Picture(np.zeros((80, 100, 3), np.uint8))
    with pytest.raises(AnnotationError, match=r"\[100, 0, 120, 10\] lies outside of the picture.*100x80"):
        fit_to_picture(PictureBoxes("p", (Box((100.0, 0.0, 120.0, 10.0)),)), picture)
    (box,), _ = fit_to_picture(PictureBoxes("p", (Box((-3.0, 70.0, 120.0, 90.5)),)), picture)
    assert box.xyxy == (0, 70, 100, 80)


def test_boxes_are_found_by_path_in_the_source_or_from_the_annotations_folder_then_by_name() -> None:
    pictures = [
        PictureFile(Path("/pictures/a/1.jpg"), "a/1.jpg"),
        PictureFile(Path("/data/images/2.jpg"), "2.jpg"),
        PictureFile(Path("/elsewhere/3.jpg"), "3.jpg"),
        PictureFile(Path("/elsewhere/n01_4.JPEG"), "n01_4.JPEG"),
        PictureFile(Path("/elsewhere/5.jpg"), "5.jpg"),
    ]
    found = annotations("b/1.jpg", "a/1.jpg", "images/2.jpg", "x/3.jpg", "n01_4").assign(pictures)
    assert {name: boxes.file for name, boxes in found.items()} == {
        "a/1.jpg": "a/1.jpg",
        "2.jpg": "images/2.jpg",
        "3.jpg": "x/3.jpg",
        "n01_4.JPEG": "n01_4",
    }


def test_a_name_that_fits_several_annotations_or_pictures_is_refused() -> None:
    with pytest.raises(AnnotationError, match=r'"1.jpg" may be "a/1.jpg", "b/1.jpg"'):
        annotations("a/1.jpg", "b/1.jpg").assign([PictureFile(Path("/x/1.jpg"), "1.jpg")])
    two = [PictureFile(Path(f"/x/{folder}/1.jpg"), f"{folder}/1.jpg") for folder in "ab"]
    with pytest.raises(AnnotationError, match=r'the boxes of "1.jpg" fit two pictures, "a/1.jpg" and "b/1.jpg"'):
        annotations("1.jpg").assign(two)


def test_annotations_of_other_pictures_altogether_are_refused() -> None:
    with pytest.raises(AnnotationError, match=r'none of its pictures, such as "a/1.jpg", is in the source'):
        annotations("a/1.jpg").assign([PictureFile(Path("/x/2.jpg"), "2.jpg")])


def test_a_real_folder_meets_its_annotations(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/1.png"):
        write_picture(tmp_path / "pictures" / name, (20, 20), (5, 5, 9, 9))
    found = annotations("a/1.png", "pictures/b/1.png", path=str(tmp_path / "boxes.json")).assign(
        find_pictures(tmp_path / "pictures")
    )
    assert {name: boxes.file for name, boxes in found.items()} == {"a/1.png": "a/1.png", "b/1.png": "pictures/b/1.png"}
    assert object_boxes(BOX, WHOLE, "", 0).boxes.dtype == torch.float32
