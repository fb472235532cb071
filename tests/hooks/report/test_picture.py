"""The picture over depth: what is drawn where, looked up in the figure itself."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

from camapp.hooks.report.drawing import SIGNS
from camapp.hooks.report.picture import depth_figure, depth_png
from camapp.hooks.report.records import Snapshot, Verdict
from tests.hooks.report.snapshots import NAN, deep, empty, ordinary, sick, statistics


def axes_of(snapshot: Snapshot) -> list[Axes]:
    figure = depth_figure(snapshot)
    assert figure is not None
    figure.draw_without_rendering()
    return figure.axes


def labels_of(axis: Axes) -> dict[int, str]:
    places = map(round, axis.get_xticks())
    return dict(zip(places, (label.get_text() for label in axis.get_xticklabels()), strict=True))


def line(axis: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    (found,) = [one for one in axis.lines if one.get_label() == label]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata())


def signs(axis: Axes) -> dict[int, list[str]]:
    """The verdicts above each place."""
    shown: dict[int, list[str]] = {}
    for one in axis.lines:
        if one.get_label() in SIGNS:
            assert one.get_marker() == SIGNS[one.get_label()][0]  # type: ignore[index]
            assert one.get_ydata()[0] > 1, "above the axes"  # type: ignore[index]
            shown.setdefault(round(one.get_xdata()[0]), []).append(str(one.get_label()))  # type: ignore[index]
    return shown


def red_places(axis: Axes) -> list[float]:
    return [patch.get_x() + patch.get_width() / 2 for patch in axis.patches if patch.get_label() == "NaN or Inf"]  # type: ignore[attr-defined]


def test_norms_lie_at_their_layers_in_running_order_on_a_logarithmic_scale() -> None:
    gradients, activations = axes_of(ordinary(0))
    assert gradients.get_yscale() == activations.get_yscale() == "log"
    x, y = line(gradients, "norm")
    np.testing.assert_array_equal(x, range(5))
    np.testing.assert_allclose(y, 0.02 * 1.5 ** np.arange(5))
    np.testing.assert_allclose(line(activations, "norm")[1], 400 / np.arange(1, 6))
    assert labels_of(activations) == dict(enumerate(("conv1", "bn1", "relu", "layer1.0.conv1", "fc")))


def test_the_bands_reach_from_median_to_95th_and_99th_percentile() -> None:
    gradients = axes_of(ordinary(0))[0]
    outer, inner = (band.get_paths()[0].get_extents() for band in gradients.collections)
    first, last = (next(one for one in ordinary(0).of("gradient") if one.name == name) for name in ("conv1", "fc"))
    assert (inner.y0, inner.y1) == pytest.approx((first.p50, last.p95))
    assert (outer.y0, outer.y1) == pytest.approx((first.p95, last.p99))


def test_what_is_not_finite_is_red_and_verdicts_have_their_signs() -> None:
    gradients, activations = axes_of(sick())
    assert red_places(gradients) == red_places(activations) == [pytest.approx(2)]
    assert signs(gradients) == {0: ["vanishing"], 2: ["non-finite"], 3: ["exploding"]}
    assert signs(activations) == {1: ["dead"], 2: ["non-finite"], 3: ["saturated"]}
    assert np.isnan(line(gradients, "norm")[1][2])
    colors = {label.get_text(): label.get_color() for label in activations.get_xticklabels()}
    assert colors["frozen"] == "black"
    assert colors["stem.conv"] != "black"


def test_zeros_lie_on_a_line_of_their_own_and_missing_gradients_are_marked() -> None:
    gradients, activations = axes_of(sick())
    x, y = line(gradients, "all zero")
    assert list(x) == [0]
    positive = [one.p50 for one in sick().of("gradient") if one.p50 > 0]
    bottom, _ = gradients.get_ylim()
    assert bottom < y[0] < min(positive)
    assert list(line(gradients, "no gradient")[0]) == [4]
    assert list(line(activations, "all zero")[0]) == [1]
    assert "0" in {text.get_text() for text in gradients.texts}
    heights = [tick for tick in gradients.get_yticks() if tick > bottom]
    assert min(heights) > y[0], "no number of the scale beside the zero"


@pytest.mark.parametrize("layers", [100, 150, 300, 700])
def test_names_do_not_overlap_however_many_layers_and_sick_ones_are_named(layers: int) -> None:
    gradients, activations = axes_of(deep(layers, lost=layers - 7, silent=5))
    shown = labels_of(activations)
    if layers <= 150:
        assert len(shown) == layers
    names = [one.name for one in deep(layers, lost=layers - 7, silent=5).of("gradient")]
    assert all(names[at] == label for at, label in shown.items())
    assert layers - 7 in shown
    boxes = [label.get_window_extent() for label in activations.get_xticklabels()]
    assert all(one.x1 <= other.x0 + 1 for one, other in pairwise(boxes))
    assert red_places(gradients) == [pytest.approx(layers - 7)]
    x, y = line(gradients, "norm")
    assert len(x) == layers
    assert np.isfinite(y).sum() == layers - 2, "all but the non-finite and the silent one"


def test_a_very_long_name_loses_its_middle_and_dollars_are_no_formula() -> None:
    long = "model.vision_tower." + "encoder.layers." * 5 + "attention.q_proj"
    shown = list(labels_of(axes_of(Snapshot(0, None, (statistics(long), statistics("a$b$c"))))[0]).values())
    assert len(shown[0]) == 48
    assert shown[0].startswith("model.vision_tower.")
    assert shown[0].endswith("attention.q_proj")
    assert shown[1] == r"a\$b\$c"


def test_a_verdict_on_a_parameter_is_above_its_layer_or_in_the_title() -> None:
    verdicts = (
        Verdict("conv.weight", "parameter gradient", "vanishing", ""),
        Verdict("class_token", "parameter gradient", "exploding", ""),
    )
    snapshot = Snapshot(0, None, (statistics("conv#0"), statistics("conv@1#0"), statistics("fc")), verdicts)
    figure = depth_figure(snapshot)
    assert figure is not None
    assert signs(figure.axes[0]) == {0: ["vanishing"]}
    assert figure.get_suptitle() == "step 0\nnot in the picture: class_token (exploding)"


def test_without_layers_the_parameters_are_drawn_and_without_anything_nothing() -> None:
    only = Snapshot(0, None, tuple(one for one in sick().statistics if one.of == "parameter gradient"))
    (axis,) = axes_of(only)
    assert labels_of(axis) == {0: "head.weight"}
    assert red_places(axis) == [0]
    assert depth_png(empty()) is None


@pytest.mark.parametrize(
    "figures",
    [
        {"norm": 0.0, "p50": 0.0, "p95": 0.0, "p99": 0.0},
        {"norm": NAN, "nonfinite": 4, "p50": NAN, "p95": NAN, "p99": NAN},
        {"norm": 5e-324, "p50": 0.0, "p95": 0.0, "p99": 5e-324},
        {"norm": 1.7e308, "p50": 1e-300, "p95": 1.0, "p99": 1e300},
        {"norm": math.inf, "nonfinite": 0},
    ],
)
def test_extreme_figures_are_drawn_too(figures: dict[str, Any], recwarn: pytest.WarningsRecorder) -> None:
    for count in (1, 2, 100):
        drawn = depth_png(Snapshot(0, 1.0, tuple(statistics(f"l{k}", **figures) for k in range(count))))
        assert drawn is not None
        assert np.asarray(Image.open(io.BytesIO(drawn)).convert("L")).std() > 5
    assert not [str(one.message) for one in recwarn]


def test_matplotlib_is_loaded_only_to_draw() -> None:
    program = (
        "import sys, camapp.hooks.report.records, camapp.hooks.report.history, camapp.hooks.report.json_lines, "
        "camapp.hooks.report.tensorboard, camapp.hooks.report.wandb; "
        "print({'matplotlib', 'tensorboard', 'wandb'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
