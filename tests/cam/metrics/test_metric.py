"""What all metrics have in common."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from camapp.cam.metrics import BASELINES, METRICS, Metric, Pointing, Sample, baseline_maps, find_metrics, win_rate
from camapp.errors import UsageError
from tests.cam.metrics.scenes import patch_score, sample

BETTER = ("average_drop", "insertion", "deletion", "road", "pointing", "energy", "iou", "max_box_acc", "pxap")


def planted(count: int) -> Sample:
    """Pictures for a model that looks at one place, with boxes and masks there; half bright there, half very bright."""
    inputs = torch.randn(count, 3, 32, 32) * 0.3
    inputs[:, :, 4:12, 20:28] += torch.linspace(1, 3, count)[:, None, None, None]
    mask = torch.zeros(32, 32, dtype=torch.bool)
    mask[4:12, 20:28] = True
    box = torch.tensor([[20.0, 4, 28, 12]])
    return sample(
        mask.float().expand(count, 32, 32),
        inputs,
        patch_score,
        boxes=[box] * count,
        masks=[mask] * count,
        explain=lambda changed, targets: changed.abs().mean(1) / changed.abs().mean(1).amax((1, 2), keepdim=True),
    )


@pytest.mark.parametrize("name", BETTER)
@pytest.mark.parametrize("baseline", BASELINES)
def test_a_perfect_map_beats_the_baselines_where_the_model_looks_at_one_place(name: str, baseline: str) -> None:
    perfect = planted(4)
    guess = perfect.with_maps(baseline_maps(baseline, 4, (32, 32)))
    options = {"tolerance": 3} if name == "pointing" else {}  # within 15 of 32 pixels the centre hits as well
    best, other = METRICS[name](**options), METRICS[name](**options)
    ours, theirs = best.update(perfect), other.update(guess)
    if name == "average_drop":  # with the mean colour elsewhere nothing drops, for a map that shows everything either
        assert best.value() == pytest.approx(0, abs=1e-5)
        assert baseline == "uniform" or other.value() > 1
        return
    sign = 1 if best.direction == "higher" else -1
    assert sign * best.value() > sign * other.value()
    assert win_rate(ours, theirs, best.direction) > 50


@pytest.mark.parametrize(
    "metric",
    [*(kind() for kind in METRICS.values()), Pointing(per_class=True)],
    ids=lambda metric: type(metric).__name__,
)
def test_a_value_that_is_said_to_be_a_mean_is_the_mean(metric: Metric) -> None:
    scene = planted(4).with_maps(baseline_maps("random", 4, (32, 32)), planted(4).explain)
    values = metric.update(scene)
    if metric.is_mean:
        assert metric.value() == pytest.approx(float(values.double().nanmean()))
    else:
        assert metric.name in ("max_box_acc", "max_box_acc_v2", "pxap", "pointing")


@pytest.mark.parametrize("kind", METRICS.values())
def test_a_summary_is_one_sentence_without_markup(kind: type[Metric]) -> None:
    assert kind.summary().endswith(".")
    assert not {"`", "\\"} & set(kind.summary())


@pytest.mark.parametrize("name", METRICS)
def test_batches_change_nothing(name: str) -> None:
    """All at once, one by one, and three and one: the same values and the same summary, random parts included."""
    whole = planted(4).with_maps(baseline_maps("random", 4, (32, 32)), planted(4).explain)
    at_once, split = METRICS[name](), METRICS[name]()
    values = at_once.update(whole)
    parts = []
    for rows in ([0], [1, 2], [3]):
        part = sample(
            whole.maps[rows],
            whole.inputs[rows],
            patch_score,
            boxes=[whole.boxes[row] for row in rows],
            masks=[whole.masks[row] for row in rows],
            explain=whole.explain,
        )
        parts.append(split.update(part))
    torch.testing.assert_close(torch.cat(parts), values, rtol=1e-5, atol=1e-6)
    assert split.value() == pytest.approx(at_once.value(), rel=1e-5, abs=1e-6)
    assert split.seen == at_once.seen == 4
    if at_once.curve() is not None:
        for ours, theirs in zip(split.curve(), at_once.curve(), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "name", ["insertion", "deletion", "road", "infidelity", "coherency", "adcc", "max_sensitivity"]
)
@pytest.mark.parametrize("chunk", [1, 5, 7, 1000])
def test_chunks_change_nothing(name: str, chunk: int) -> None:
    whole = planted(3).with_maps(baseline_maps("random", 3, (32, 32)), planted(3).explain)
    values = METRICS[name]().update(whole)
    anew = planted(3).with_maps(whole.maps, whole.explain)
    fresh = sample(whole.maps, whole.inputs, patch_score, explain=anew.explain)
    torch.testing.assert_close(METRICS[name](batch_size=chunk).update(fresh), values, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["insertion", "deletion", "road", "infidelity"])
def test_pictures_laid_out_channels_last_are_scored_so_with_the_same_result(name: str) -> None:
    layouts: list[bool] = []

    def score(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        layouts.append(inputs.is_contiguous(memory_format=torch.channels_last))
        return patch_score(inputs, targets)

    plain = planted(2)
    turned = sample(plain.maps, plain.inputs.contiguous(memory_format=torch.channels_last), score)
    torch.testing.assert_close(METRICS[name]().update(turned), METRICS[name]().update(plain), rtol=1e-5, atol=1e-6)
    assert all(layouts)


@pytest.mark.parametrize("name", ["insertion", "deletion", "road", "infidelity", "max_sensitivity"])
def test_judging_draws_no_number_of_torchs(name: str) -> None:
    state = torch.get_rng_state()
    whole = planted(1)
    torch.set_rng_state(state)
    METRICS[name]().update(whole)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", [name for name in METRICS if METRICS[name].needs])
def test_what_a_metric_needs_and_does_not_get_is_named(name: str) -> None:
    bare = sample(torch.rand(1, 8, 8))
    with pytest.raises(UsageError, match=f'"{name}" needs {next(iter(METRICS[name].needs))}'):
        METRICS[name]().update(bare)


@pytest.mark.parametrize("name", METRICS)
def test_before_the_first_picture_there_is_no_value_and_no_curve(name: str) -> None:
    metric = METRICS[name]()
    assert math.isnan(metric.value())
    assert metric.curve() is None


@pytest.mark.parametrize("name", [name for name in METRICS if "boxes" in METRICS[name].needs])
def test_pictures_without_a_box_have_no_value_and_do_not_count(name: str) -> None:
    maps = torch.zeros(2, 32, 32)
    maps[:, 4:8, 4:8] = 1
    metric = METRICS[name]()
    values = metric.update(sample(maps, boxes=[torch.zeros(0, 4), torch.tensor([[4.0, 4, 8, 8]])]))
    assert values.isnan().tolist() == [True, False]
    assert metric.value() == pytest.approx(float(values[1]))
    alone = METRICS[name]()
    alone.update(sample(maps[:1], boxes=[torch.zeros(0, 4)]))
    assert math.isnan(alone.value())


def test_metrics_are_found_by_name_group_and_once() -> None:
    assert [metric.name for metric in find_metrics(["energy", "AVERAGE_DROP", "energy"])] == ["energy", "average_drop"]
    assert find_metrics("all") == list(METRICS.values())
    assert {metric.name for metric in find_metrics(["cheap"])} >= {"average_drop", "energy", "pointing"}
    assert not {"insertion", "road", "adcc"} & {metric.name for metric in find_metrics("cheap")}
    with pytest.raises(UsageError, match=r'No metric "insertoin"\. Did you mean insertion'):
        find_metrics(["insertoin"])
    with pytest.raises(UsageError, match="No metric is named"):
        find_metrics([])


def test_wins_are_counted_in_the_metrics_direction_draws_half_and_gaps_not_at_all() -> None:
    a = torch.tensor([1.0, 2, 3, 4, torch.nan])
    b = torch.tensor([2.0, 2, 1, 1, 0])
    assert win_rate(a, b, "higher") == 62.5
    assert win_rate(a, b, "lower") == 37.5
    assert math.isnan(win_rate(a[4:], b[4:], "lower"))
    with pytest.raises(UsageError, match=r"\(5,\) against \(4,\)"):
        win_rate(a, b[:4], "lower")
    with pytest.raises(UsageError, match="up"):
        win_rate(a, b, "up")  # type: ignore[arg-type]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), first=st.integers(0, 50), count=st.integers(1, 5))
def test_random_maps_depend_on_seed_and_number_only(seed: int, first: int, count: int) -> None:
    together = baseline_maps("random", count, (10, 14), seed=seed, first=first)
    for index in range(count):
        assert torch.equal(together[index], baseline_maps("random", 1, (10, 14), seed=seed, first=first + index)[0])
    assert together.min() == 0
    assert together.max() == 1
    assert not torch.equal(together[0], baseline_maps("random", 1, (10, 14), seed=seed + 1, first=first)[0])


def test_baselines_are_what_they_are_called() -> None:
    center = baseline_maps("center", 1, (21, 41))[0]
    # Standard deviations 21 / 4 and 41 / 4 pixels, stretched from the corner to the middle.
    exact = [
        [stats.norm.pdf(y - 10, scale=5.25) * stats.norm.pdf(x - 20, scale=10.25) for x in range(41)] for y in range(21)
    ]
    exact = torch.tensor(exact, dtype=torch.float64)
    exact = (exact - exact.min()) / (exact.max() - exact.min())
    torch.testing.assert_close(center.double(), exact, atol=1e-6, rtol=0)
    assert torch.equal(baseline_maps("uniform", 2, (3, 4)), torch.ones(2, 3, 4))
    with pytest.raises(UsageError, match="Did you mean center"):
        baseline_maps("centre", 1, (4, 4))
