"""Files of boxes: camapp's own JSON, COCO instances, Pascal VOC XML; told apart by their content."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from camapp.errors import AnnotationError
from camapp.evaluation.boxes import Annotations, Box, Edges, PictureBoxes

_EXPECTED = (
    'Expected is a JSON list of {"file": ..., "boxes": [{"xyxy": [left, top, right, bottom]}]}, a COCO instances file, '
    "a Pascal VOC XML file, or a folder of those."
)


def read_boxes(path: str | Path) -> Annotations:
    """Read where the objects of pictures are.

    Args:
        path: a JSON list of ``{"file", "boxes": [{"xyxy", "name"?, "class"?}], "size"?}``; a COCO instances file; a
            Pascal VOC XML file; or a folder, searched for VOC files. Other fields are ignored.

    Returns:
        The boxes, as edges in pixels from the picture's top-left corner. Left out, with a note: COCO's crowds and
        boxes without an area. Kept, with a note: objects that VOC calls difficult.

    Raises:
        AnnotationError: nothing there, damaged, another format, or a box that cannot be meant; says where.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return _read_voc(path, sorted(path.rglob("*.xml")), path)
    text = _text_of(path)
    if text.lstrip()[:1] == "<":
        return _read_voc(path, [path], path.parent)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise AnnotationError(
            f"{path}, line {error.lineno}, column {error.colno}: this is no JSON ({error.msg}). {_EXPECTED}"
        ) from error
    except RecursionError as error:
        raise AnnotationError(f"{path}: lists within lists without an end. {_EXPECTED}") from error
    if isinstance(content, list):
        return _read_own(path, content)
    if isinstance(content, dict) and {"images", "annotations"} <= content.keys():
        return _read_coco(path, content)
    raise AnnotationError(f"{path}: {_EXPECTED}{_keys_of(content)}")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise AnnotationError(f"{path}: no such file or folder of boxes. Check the path and its spelling.") from error
    except OSError as error:
        raise AnnotationError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise AnnotationError(f"{path}: this is not UTF-8 text. {_EXPECTED}") from error


def _keys_of(content: object) -> str:
    if not isinstance(content, dict):
        return f" This is a {type(content).__name__}."
    return f" This is an object with the keys {', '.join(list(content)[:6]) or '(none)'}."


def _read_own(path: Path, content: list[Any]) -> Annotations:
    skipped: Counter[str] = Counter()
    pictures = []
    for number, entry in enumerate(content):
        place = f"{path}: [{number}]"
        _check(isinstance(entry, dict), place, 'an object with "file" and "boxes"', entry)
        file = _text(entry.get("file"), f"{place}.file", "the picture's path")
        _check(isinstance(entry.get("boxes"), list), f"{place}.boxes", "a list of boxes", entry.get("boxes"))
        boxes = []
        for k, given in enumerate(entry["boxes"]):
            at = f"{place}.boxes[{k}]"
            _check(isinstance(given, dict), at, 'an object with "xyxy"', given)
            x0, y0, x1, y1 = _four_numbers(given.get("xyxy"), f"{at}.xyxy", "[left, top, right, bottom]")
            name, index = given.get("name"), given.get("class")
            _check(name is None or isinstance(name, str), f"{at}.name", "a text", name)
            _check(index is None or _is_whole(index), f"{at}.class", "a whole number, the class's index", index)
            boxes.append(_box((x0, y0, x1, y1), f"{at}.xyxy", skipped, name, index))
        pictures.append(_picture(file, boxes, _size(entry.get("size"), f"{place}.size"), place))
    return _annotations(path, pictures, skipped)


def _read_coco(path: Path, content: dict[str, Any]) -> Annotations:
    for key in ("images", "annotations", "categories"):
        _check(isinstance(content.get(key, []), list), f"{path}: {key}", "a list", content.get(key))
    names: dict[Any, str] = {}
    for number, category in enumerate(content.get("categories", [])):
        place = f"{path}: categories[{number}]"
        _check(isinstance(category, dict) and "id" in category, place, 'an object with "id" and "name"', category)
        names[_identity(category["id"], place)] = _text(category.get("name"), f"{place}.name", "the category's name")
    skipped: Counter[str] = Counter()
    boxes: dict[Any, list[Box | None]] = defaultdict(list)
    places: dict[Any, str] = {}
    for number, image in enumerate(content["images"]):
        place = f"{path}: images[{number}]"
        _check(isinstance(image, dict) and "id" in image, place, 'an object with "id" and "file_name"', image)
        _text(image.get("file_name"), f"{place}.file_name", "the picture's path")
        places[_identity(image["id"], place)] = place
    for number, annotation in enumerate(content["annotations"]):
        place = f"{path}: annotations[{number}]"
        _check(isinstance(annotation, dict), place, 'an object with "image_id" and "bbox"', annotation)
        if annotation.get("iscrowd"):
            skipped["crowd regions of COCO left out"] += 1
            continue
        image_id = _identity(annotation.get("image_id"), f"{place}.image_id")
        _check(image_id in places, f"{place}.image_id", "the id of one of the images", image_id)
        x, y, width, height = _four_numbers(annotation.get("bbox"), f"{place}.bbox", "[left, top, width, height]")
        category_id = annotation.get("category_id")
        name = None if category_id is None else names.get(_identity(category_id, f"{place}.category_id"))
        boxes[image_id].append(_box((x, y, x + width, y + height), f"{place}.bbox", skipped, name))
    pictures = []
    for image in content["images"]:
        size = [image["width"], image["height"]] if "width" in image and "height" in image else None
        place = places[image["id"]]
        pictures.append(_picture(image["file_name"], boxes[image["id"]], _size(size, place), place))
    return _annotations(path, pictures, skipped)


def _read_voc(path: Path, files: list[Path], folder: Path) -> Annotations:
    if not files:
        raise AnnotationError(f"{path}: there is no .xml file in this folder. {_EXPECTED}")
    skipped: Counter[str] = Counter()
    pictures = []
    for file in files:
        root = _parse_xml(file)
        if root.tag != "annotation":
            raise AnnotationError(f"{file}: <{root.tag}> where <annotation> was expected. {_EXPECTED}")
        boxes = []
        for number, item in enumerate(root.findall("object"), start=1):
            place = f"{file}: object {number}"
            edges = [item.findtext(f"bndbox/{name}") for name in ("xmin", "ymin", "xmax", "ymax")]
            x0, y0, x1, y1 = _four_numbers([_number(edge) for edge in edges], f"{place}, bndbox", "xmin to ymax", edges)
            if (item.findtext("difficult") or "").strip() == "1":
                skipped["objects that VOC calls difficult kept"] += 1
            # VOC counts pixels from 1, and its last pixel belongs to the box.
            name = (item.findtext("name") or "").strip() or None
            boxes.append(_box((x0 - 1, y0 - 1, x1, y1), f"{place}, bndbox", skipped, name))
        sides = [_number(root.findtext(f"size/{side}")) for side in ("width", "height")]
        named = (root.findtext("filename") or "").strip() or file.stem
        inside = (file.parent.relative_to(folder) / named.replace("\\", "/")).as_posix()
        size = None if None in sides or 0 in sides else sides  # some tools write zeros for a size they do not know
        pictures.append(_picture(inside, boxes, _size(size, f"{file}: size"), str(file)))
    return _annotations(path, pictures, skipped)


def _parse_xml(path: Path) -> ElementTree.Element:
    """The root of an XML file; one that declares entities or fetches others is refused."""
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data

    def refuse(*_: object) -> None:
        raise AnnotationError(
            f"{path}, line {parser.CurrentLineNumber}: a document type definition, which VOC files do not have and "
            "which can expand without an end. Remove it."
        )

    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(path.read_bytes(), True)
        return builder.close()
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise AnnotationError(
            f"{path}, line {error.lineno}, column {error.offset + 1}: this is no XML ({reason}). {_EXPECTED}"
        ) from error
    except OSError as error:
        raise AnnotationError(f"{path}: cannot be read ({error.strerror or error}).") from error


def _picture(file: str, boxes: list[Box | None], size: tuple[int, int] | None, place: str) -> PictureBoxes:
    kept = tuple(box for box in boxes if box is not None)
    if size:
        for box in kept:
            x0, y0, x1, y1 = box.xyxy
            if x0 >= size[0] or y0 >= size[1] or x1 <= 0 or y1 <= 0:
                edges = ", ".join(f"{edge:g}" for edge in box.xyxy)
                raise AnnotationError(
                    f"{place}: the box [{edges}] lies outside of the picture, whose size is given as {size[0]}x"
                    f"{size[1]}. Expected are edges in pixels of that picture."
                )
    name = file.replace("\\", "/")
    return PictureBoxes(name.removeprefix("./"), kept, size)


def _annotations(path: Path, pictures: list[PictureBoxes], skipped: Counter[str]) -> Annotations:
    """One entry a picture: those of one file are joined, as exports with an entry a box have several."""
    joined: dict[str, PictureBoxes] = {}
    for one in pictures:
        before = joined.get(one.file)
        if before and before.size != one.size:
            raise AnnotationError(f'{path}: "{one.file}" has two sizes, {before.size} and {one.size}. Correct one.')
        joined[one.file] = PictureBoxes(one.file, (*(before.boxes if before else ()), *one.boxes), one.size)
    if not joined:
        raise AnnotationError(f"{path}: no picture is annotated in it. {_EXPECTED}")
    return Annotations(path, tuple(joined.values()), tuple(f"{count} {what}" for what, count in skipped.items()))


def _box(
    xyxy: Edges, place: str, skipped: Counter[str], name: str | None = None, index: int | None = None
) -> Box | None:
    if xyxy[2] == xyxy[0] or xyxy[3] == xyxy[1]:
        skipped["boxes without an area left out"] += 1
        return None
    if xyxy[2] < xyxy[0] or xyxy[3] < xyxy[1]:
        edges = ", ".join(f"{edge:g}" for edge in xyxy)
        raise AnnotationError(f"{place}: right before left, or bottom before top, in the edges [{edges}].")
    return Box(xyxy, name, index)


def _four_numbers(given: Any, place: str, expected: str, shown: Any = None) -> Edges:
    numbers = given if isinstance(given, list) else []
    right = len(numbers) == 4 and all(_is_number(one) for one in numbers)
    _check(right, place, f"four finite numbers, {expected}", given if shown is None else shown)
    return float(numbers[0]), float(numbers[1]), float(numbers[2]), float(numbers[3])


def _size(given: Any, place: str) -> tuple[int, int] | None:
    if given is None:
        return None
    sides = given if isinstance(given, list) else []
    right = len(sides) == 2 and all(_is_number(side) and side >= 1 and side == int(side) for side in sides)
    _check(right, place, "width and height in whole pixels", given)
    return int(sides[0]), int(sides[1])


def _text(given: Any, place: str, expected: str) -> str:
    _check(isinstance(given, str) and bool(given.strip()), place, expected, given)
    return given


def _identity(given: Any, place: str) -> int | str:
    _check(isinstance(given, str) or _is_whole(given), place, "an id, a whole number or a text", given)
    return given


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)


def _is_whole(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _check(holds: bool, place: str, expected: str, found: Any) -> None:
    if holds:
        return
    shown = "nothing" if found is None else json.dumps(found, ensure_ascii=False, default=str)
    raise AnnotationError(f"{place}: expected {expected}; found {shown if len(shown) <= 80 else f'{shown[:77]}...'}.")
