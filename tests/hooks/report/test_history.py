"""The picture over steps: lines for few layers, a heat map for many, non-finite steps marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from camapp.hooks.report.drawing import RED
from camapp.hooks.report.history import history_figure, history_png
from camapp.hooks.report.records import Snapshot
from tests.hooks.report.snapshots import NAN, deep, empty, ordinary, sick, statistics


def figure_of(snapshots: list[Snapshot]) -> Figure:
    figure = history_figure(snapshots)
    assert figure is not None
    figure.draw_without_rendering()
    return figure


def changed(snapshot: Snapshot, name: str, **figures: float) -> Snapshot:
    found = (
        replace(one, **figures) if (one.name, one.of) == (name, "gradient") else one  # type: ignore[arg-type]
        for one in snapshot.statistics
    )
    return replace(snapshot, statistics=tuple(found))


def test_few_layers_are_lines_over_the_steps_in_order() -> None:
    norms, quantiles, loss = figure_of([ordinary(step, 1 / (1 + step)) for step in (100, 0, 50)]).axes
    lines = {str(one.get_label()).strip(): one for one in norms.lines}
    assert list(lines) == ["conv1", "bn1", "relu", "layer1.0.conv1", "fc"]
    np.testing.assert_array_equal(lines["fc"].get_xdata(), [0, 50, 100])
    np.testing.assert_allclose(lines["fc"].get_ydata(), 0.02 * 1.5**4 / np.array([1, 1.5, 2]))
    expected = next(one.p95 for one in ordinary(0).of("gradient") if one.name == "fc")
    assert quantiles.lines[4].get_ydata()[0] == pytest.approx(expected)  # type: ignore[index]
    assert len(quantiles.collections) == 5, "a band a layer"
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [1, 1 / 51, 1 / 101])
    assert norms.get_yscale() == quantiles.get_yscale() == "log"


def test_steps_that_are_not_finite_are_marked_and_their_points_left_out() -> None:
    steps = [ordinary(step) for step in range(0, 200, 50)]
    steps[1] = changed(steps[1], "relu", norm=NAN, nonfinite=3)
    steps[2] = replace(steps[2], loss=NAN)
    figure = figure_of(steps)
    assert figure.get_suptitle() == "NaN or Inf at 2 steps, first at step 50 (red)"
    for axis in figure.axes:
        red = [one.get_xdata()[0] for one in axis.lines if one.get_color() == RED]  # type: ignore[index]
        assert red == [50, 100]
    relu = next(one for one in figure.axes[0].lines if str(one.get_label()).strip() == "relu")
    assert list(np.isnan(relu.get_ydata())) == [False, True, False, False]
    quantile = figure.axes[1].lines[2]
    assert list(np.isnan(quantile.get_ydata())) == [False, True, False, False], "of zeros that a ReLU left"


def test_a_step_without_gradients_of_layers_breaks_no_line_but_is_marked() -> None:
    steps = [ordinary(0), ordinary(50), Snapshot(27, NAN, (statistics("fc.bias", "parameter gradient", nonfinite=1),))]
    figure = figure_of(steps)
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), [0, 50])
    assert "first at step 27" in figure.get_suptitle()


@pytest.mark.parametrize("lost", [-1, 7])
def test_the_heat_map_takes_the_larger_part_of_the_picture(lost: int) -> None:
    figure = figure_of([deep(40, step, lost=lost, silent=-1) for step in range(0, 250, 50)])
    figure.canvas.draw()
    assert figure.axes[0].get_position().height > 0.45


def test_of_a_step_that_is_there_twice_the_later_one_counts() -> None:
    twice = [changed(ordinary(0), "fc", norm=9.0), ordinary(50), ordinary(0)]
    fc = figure_of(twice).axes[0].lines[4]
    assert fc.get_ydata()[0] == pytest.approx(0.02 * 1.5**4)  # type: ignore[index]


def test_many_layers_are_a_heat_map_whose_cells_are_at_layer_and_step() -> None:
    steps = [
        deep(40, step, lost=7 if step == 100 else -1, silent=3 if step == 150 else -1) for step in range(0, 250, 50)
    ]
    figure = figure_of(steps)
    heat_map, quantiles = figure.axes[:2]
    assert [label.get_text() for label in heat_map.get_yticklabels()] == [one.name for one in steps[0].of("gradient")]
    assert heat_map.get_ylim() == (39.5, -0.5), "the first layer is above"
    norms, lost = heat_map.collections
    cells = np.ma.filled(np.ma.asarray(norms.get_array()).reshape(40, 5), np.nan)
    expected = np.array([[one.norm for one in step.of("gradient")] for step in steps]).T
    same = np.isfinite(expected) & (expected > 0)
    np.testing.assert_allclose(cells[same], expected[same])
    assert np.isnan(cells[7, 2])
    assert cells[3, 3] < expected[same].min(), "zeros lie under the scale"
    seen = ~np.ma.getmaskarray(np.ma.asarray(lost.get_array()).reshape(40, 5))
    assert np.argwhere(seen).tolist() == [[7, 2]]
    assert lost.cmap(0.5) == to_rgba(RED)  # type: ignore[attr-defined]
    edges = np.asarray(norms._coordinates)[0, :, 0]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(edges, [-25, 25, 75, 125, 175, 225])
    legend = heat_map.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["NaN or Inf", "all zero"]
    medians = [np.median([one.p95 for one in step.of("gradient") if np.isfinite(one.p95)]) for step in steps]
    np.testing.assert_allclose(quantiles.lines[0].get_ydata(), medians)


def test_three_hundred_layers_have_names_that_can_be_read() -> None:
    labels = figure_of([deep(300, step) for step in (0, 1)]).axes[0].get_yticklabels()
    assert 50 <= len(labels) <= 64
    heights = sorted(label.get_window_extent().y0 for label in labels)
    assert min(np.diff(heights)) >= labels[0].get_window_extent().height - 2


def test_parameters_stand_in_for_layers_and_nothing_gives_no_picture() -> None:
    only = [replace(step, statistics=tuple(step.of("parameter gradient"))) for step in (ordinary(0), ordinary(1))]
    assert [str(one.get_label()).strip() for one in figure_of(only).axes[0].lines] == [
        "conv1.weight",
        "bn1.weight",
        "fc.weight",
        "fc.bias",
    ]
    assert history_png([]) is None
    assert history_png([empty()]) is None


def test_one_step_or_a_wholly_broken_run_is_drawn_without_complaint(recwarn: pytest.WarningsRecorder) -> None:
    dead = [
        Snapshot(k, NAN, tuple(statistics(f"l{i}", norm=NAN, nonfinite=1, p50=NAN, p95=NAN, p99=NAN) for i in range(9)))
        for k in range(3)
    ]
    zero = [Snapshot(k, 0.0, (statistics("a", norm=0.0, p50=0.0, p95=0.0, p99=0.0),)) for k in range(3)]
    for run in ([ordinary()], [sick()], [deep()], dead, zero):
        drawn = history_png(run)
        assert drawn is not None
        assert drawn.startswith(b"\x89PNG")
    assert not [str(one.message) for one in recwarn]
