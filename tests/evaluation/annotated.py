"""Pictures with planted boxes, and the same boxes written in each format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from PIL import Image

Edges = tuple[float, float, float, float]
Planted = Mapping[str, tuple[tuple[int, int], Sequence[tuple[str, Edges]]]]  # file -> (size, [(name, edges)])


def write_picture(path: Path, size: tuple[int, int], edges: Edges, seed: int = 0) -> None:
    """A dark noisy picture with a bright rectangle at ``edges``."""
    pixels = np.random.default_rng(seed).integers(0, 60, (size[1], size[0], 3), dtype=np.uint8)
    x0, y0, x1, y1 = map(int, edges)
    pixels[y0:y1, x0:x1] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_own(path: Path, planted: Planted) -> Path:
    entries = [
        {
            "file": file,
            "size": list(size),
            "boxes": [{"name": name, "xyxy": list(edges), "score": 1} for name, edges in boxes],
            "licence": "none",
        }
        for file, (size, boxes) in planted.items()
    ]
    path.write_text(json.dumps(entries, indent=1))
    return path


def write_coco(path: Path, planted: Planted) -> Path:
    names = sorted({name for _, boxes in planted.values() for name, _ in boxes})
    images = [
        {"id": 100 + number, "file_name": file, "width": size[0], "height": size[1]}
        for number, (file, (size, _)) in enumerate(planted.items())
    ]
    annotations = [
        {
            "id": 7,
            "image_id": 100 + number,
            "category_id": 40 + names.index(name),
            "bbox": [edges[0], edges[1], edges[2] - edges[0], edges[3] - edges[1]],
            "iscrowd": 0,
        }
        for number, (_, boxes) in enumerate(planted.values())
        for name, edges in boxes
    ]
    categories = [{"id": 40 + number, "name": name} for number, name in enumerate(names)]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def write_voc(folder: Path, planted: Planted) -> Path:
    """One XML file a picture, its pixels counted from 1 and its last pixel inside."""
    for number, (file, (size, boxes)) in enumerate(planted.items()):
        objects = "".join(
            f"<object><name>{escape(name)}</name><bndbox><xmin>{e[0] + 1:g}</xmin><ymin>{e[1] + 1:g}</ymin>"
            f"<xmax>{e[2]:g}</xmax><ymax>{e[3]:g}</ymax></bndbox></object>"
            for name, e in boxes
        )
        text = (
            f"<annotation><filename>{escape(Path(file).name)}</filename><size><width>{size[0]}</width>"
            f"<height>{size[1]}</height><depth>3</depth></size>{objects}</annotation>"
        )
        path = folder / Path(file).parent / f"{number}.xml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def bright_edges(pixels: np.ndarray) -> Edges:
    """The edges of the bright rectangle in pixels (H, W) or (H, W, 3) of any scale, to half a pixel."""
    grey = pixels.mean(axis=2) if pixels.ndim == 3 else pixels
    bright = grey > (float(grey.max()) + float(np.median(grey))) / 2
    rows, columns = np.nonzero(bright.any(axis=1))[0], np.nonzero(bright.any(axis=0))[0]
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)
