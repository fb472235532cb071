"""Files of boxes: three formats hold the same boxes, and what is wrong in one is said with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from camapp.errors import AnnotationError
from camapp.evaluation import read_boxes
from tests.evaluation.annotated import write_coco, write_own, write_voc

PLANTED = {
    "a/cat.jpg": ((60, 40), [("tabby", (5.0, 6.0, 20.0, 30.0)), ("dog & co", (0.0, 0.0, 60.0, 40.0))]),
    "b/dog.png": ((30, 50), [("dog & co", (29.0, 0.0, 30.0, 1.0))]),
}


def held(path: Path) -> dict[str, tuple[object, list[tuple[object, object]]]]:
    return {one.file: (one.size, [(box.name, box.xyxy) for box in one.boxes]) for one in read_boxes(path).pictures}


def test_the_same_boxes_are_read_from_all_three_formats(tmp_path: Path) -> None:
    assert held(write_own(tmp_path / "own.json", PLANTED)) == PLANTED
    assert held(write_coco(tmp_path / "coco.json", PLANTED)) == PLANTED
    assert held(write_voc(tmp_path / "voc", PLANTED)) == PLANTED


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corners=st.lists(st.tuples(*[st.integers(0, 90)] * 2, *[st.integers(1, 60)] * 2), min_size=1, max_size=4))
def test_any_whole_boxes_are_the_same_in_all_three(tmp_path: Path, corners: list[tuple[int, int, int, int]]) -> None:
    boxes = [(f"n{k}", (float(x), float(y), float(x + w), float(y + h))) for k, (x, y, w, h) in enumerate(corners)]
    planted = {"p.jpg": ((150, 150), boxes)}
    own = held(write_own(tmp_path / "own.json", planted))
    assert own == planted
    assert held(write_coco(tmp_path / "coco.json", planted)) == own
    assert held(write_voc(tmp_path / "voc", planted)) == own


def test_one_voc_file_is_told_by_its_content_not_its_name(tmp_path: Path) -> None:
    folder = write_voc(tmp_path / "voc", PLANTED)
    alone = (folder / "a" / "0.xml").rename(tmp_path / "boxes.json")
    assert list(held(alone)) == ["cat.jpg"]


def test_crowds_and_boxes_without_area_are_left_out_and_difficult_ones_kept_each_with_a_note(tmp_path: Path) -> None:
    coco = json.loads(write_coco(tmp_path / "coco.json", PLANTED).read_text())
    coco["annotations"][0]["iscrowd"] = 1
    coco["annotations"][2]["bbox"][2] = 0
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    annotations = read_boxes(tmp_path / "coco.json")
    assert [len(one.boxes) for one in annotations.pictures] == [1, 0]
    assert annotations.notes == ("1 crowd regions of COCO left out", "1 boxes without an area left out")
    voc = write_voc(tmp_path / "voc", PLANTED)
    path = voc / "a" / "0.xml"
    path.write_text(path.read_text().replace("<object>", "<object><difficult>1</difficult>", 1))
    annotations = read_boxes(voc)
    assert len(annotations.pictures[0].boxes) == 2
    assert annotations.notes == ("1 objects that VOC calls difficult kept",)


def test_entries_of_one_file_are_joined(tmp_path: Path) -> None:
    entry = {"file": "./x.jpg", "boxes": [{"xyxy": [0, 0, 1, 1]}]}
    (tmp_path / "own.json").write_text(json.dumps([entry, {**entry, "boxes": [{"xyxy": [1, 1, 2, 2], "class": 4}]}]))
    (one,) = read_boxes(tmp_path / "own.json").pictures
    assert one.file == "x.jpg"
    assert [(box.xyxy, box.index) for box in one.boxes] == [((0, 0, 1, 1), None), ((1, 1, 2, 2), 4)]


BOX = '{"xyxy": [0, 0, 2, 2]}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1, column 1: this is no JSON"),
        ('[\n {"file": "a.jpg",\n  "boxes": [}\n]', r"line 3, column 13: this is no JSON"),
        ("[" * 100_000, r"this is no JSON|without an end"),
        ("3", r"Expected is a JSON list .* This is a int\."),
        ('{"pictures": []}', r"Expected is .* the keys pictures\."),
        ("[]", r"no picture is annotated"),
        ("[7]", r'\[0\]: expected an object with "file" and "boxes"; found 7\.'),
        ('[{"boxes": []}]', r"\[0\]\.file: expected the picture's path; found nothing\."),
        ('[{"file": "a.jpg"}]', r"\[0\]\.boxes: expected a list of boxes; found nothing\."),
        ('[{"file": "a.jpg", "boxes": [[0, 0, 1, 1]]}]', r'\[0\]\.boxes\[0\]: expected an object with "xyxy"'),
        (
            '[{"file": "a.jpg", "boxes": [{"xyxy": [0, 0, 1]}]}]',
            r"boxes\[0\]\.xyxy: expected four finite numbers.*1\]\.",
        ),
        ('[{"file": "a.jpg", "boxes": [{"xyxy": [0, 0, 1, NaN]}]}]', r"expected four finite numbers"),
        ('[{"file": "a.jpg", "boxes": [{"xyxy": [0, 0, 1, true]}]}]', r"expected four finite numbers"),
        ('[{"file": "a.jpg", "boxes": [{"xyxy": [5, 0, 1, 1]}]}]', r"right before left.*\[5, 0, 1, 1\]"),
        (f'[{{"file": "a.jpg", "boxes": [{BOX}], "size": [10]}}]', r"\[0\]\.size: expected width and height"),
        ('[{"file": "a.jpg", "boxes": [{"xyxy": [0, 0, 2, 2], "class": "4"}]}]', r"\.class: expected a whole number"),
        (
            '[{"file": "a.jpg", "boxes": [{"xyxy": [20, 0, 30, 2]}], "size": [10, 10]}]',
            r"outside of the picture.*10x10",
        ),
        (
            '[{"file": "a.jpg", "boxes": [], "size": [9, 9]}, {"file": "a.jpg", "boxes": [], "size": [8, 8]}]',
            r'"a.jpg" has two sizes',
        ),
        ('{"images": [{"id": 1}], "annotations": []}', r"images\[0\]\.file_name: expected the picture's path"),
        ('{"images": [{"id": [], "file_name": "a"}], "annotations": []}', r"images\[0\]: expected an id"),
        (
            '{"images": [], "annotations": [{"image_id": 9, "bbox": [0, 0, 1, 1]}]}',
            r"annotations\[0\]\.image_id: expected the id of one of the images; found 9",
        ),
        (
            '{"images": [{"id": 1, "file_name": "a"}], "annotations": [{"image_id": 1, "bbox": [0, 0, -3, 1]}]}',
            r"annotations\[0\]\.bbox: right before left",
        ),
        ("<annotation>\n<object></annotation>", r"line 2, column \d+: this is no XML \(mismatched tag\)"),
        ("<html></html>", r"<html> where <annotation> was expected"),
        (
            "<annotation><object><bndbox><xmin>1</xmin><ymin>x</ymin></bndbox></object></annotation>",
            r'object 1, bndbox: expected four finite numbers.*"x"',
        ),
        (
            '<!DOCTYPE a [<!ENTITY b "bb">]>\n<annotation><filename>&b;</filename></annotation>',
            r"line 1: a document type definition",
        ),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "boxes.json"
    path.write_text(text)
    with pytest.raises(AnnotationError, match=re.escape(str(path))) as raised:
        read_boxes(path)
    assert re.search(message, str(raised.value)), raised.value


def test_a_file_that_is_missing_or_no_text_and_a_folder_without_xml_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AnnotationError, match="no such file or folder of boxes"):
        read_boxes(tmp_path / "no.json")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00[")
    with pytest.raises(AnnotationError, match="not UTF-8"):
        read_boxes(tmp_path / "binary")
    with pytest.raises(AnnotationError, match=r"no \.xml file"):
        read_boxes(tmp_path)


def test_an_xml_file_cannot_read_other_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "a.xml"
    path.write_text(f'<!DOCTYPE a SYSTEM "{tmp_path / "secret"}">\n<annotation><filename>a.jpg</filename></annotation>')
    with pytest.raises(AnnotationError, match="document type definition"):
        read_boxes(path)
