"""What is to be kept in mind about a map."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from camapp.cautions import cautions


@dataclass
class Scored:
    label: str
    probability: float


def told(
    method: str = "gradcam",
    layer: str = "layer4",
    probability: float = 0.5,
    grid: tuple[int, int] = (7, 7),
    side: int = 300,
) -> str:
    return " ".join(cautions(method, layer, [Scored("cat", probability)], grid, (side, side)))


def test_an_ordinary_map_has_no_cautions() -> None:
    assert told() == ""
    assert told(probability=float("nan")) == ""  # a target that is no class


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "eigencam"}, "EigenCAM ignores the class"),
        ({"probability": 0.002}, "gives cat only 0.20%"),
        ({"probability": 0.99951}, "saturated"),
        ({"grid": (4, 4)}, "only 4 x 4 places"),
        ({"side": 20}, "only 20 x 20 pixels"),
    ],
)
def test_what_stands_out_is_said(options: dict[str, object], words: str) -> None:
    assert words in told(**options)  # type: ignore[arg-type]


def test_methods_that_look_at_no_layer_have_no_coarse_layer() -> None:
    assert told("fullgrad", "", grid=(2, 2)) == ""
