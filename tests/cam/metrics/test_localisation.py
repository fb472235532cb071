"""Pointing, energy, IoU, MaxBoxAcc and PxAP on maps that were planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from camapp.cam.metrics import Energy, IoU, MaxBoxAcc, MaxBoxAccV2, Pointing, PxAP, baseline_maps
from camapp.cam.metrics.boxes import boxes_at_levels, overlaps
from camapp.errors import UsageError
from tests.cam.metrics.scenes import sample


def point(y: int, x: int, size: int = 64) -> torch.Tensor:
    heat = torch.zeros(1, size, size)
    heat[0, y, x] = 1
    return heat


# The box covers the pixels 20 to 29 across and 30 to 39 down.
BOX = torch.tensor([[20.0, 30, 30, 40]])


@pytest.mark.parametrize(
    ("y", "x", "hit"),
    [
        (35, 25, True),  # inside
        (35, 43, True),  # 14 to the right of pixel 29
        (35, 44, False),  # 15 pixels exactly: not less
        (35, 6, True),
        (35, 5, False),
        (16, 25, True),
        (15, 25, False),
        (53, 25, True),
        (54, 25, False),
        (48, 41, False),  # 9 down and 12 across: 15 exactly
        (48, 40, True),
        (30 - 9, 20 - 12, False),
    ],
)
def test_pointing_hits_nearer_than_15_pixels(y: int, x: int, hit: bool) -> None:
    assert Pointing().update(sample(point(y, x), boxes=[BOX])).tolist() == [100.0 * hit]


def test_pointing_hits_any_of_several_boxes_and_shares_a_tie() -> None:
    far = torch.tensor([[0.0, 0, 2, 2], [60, 60, 64, 64]])
    assert float(Pointing(3).update(sample(point(62, 62), boxes=[far]))) == 100
    tie = (point(62, 62) + point(30, 30) + point(30, 31) + point(0, 0)).clamp(max=1)
    assert float(Pointing(3).update(sample(tie, boxes=[far]))) == 50


def test_pointing_may_average_over_classes() -> None:
    maps = torch.cat([point(35, 25), point(35, 25), point(0, 63), point(0, 63)])
    given = sample(maps, boxes=[BOX, BOX, BOX, torch.zeros(0, 4)], targets=torch.tensor([4, 4, 9, 5]))
    plain, by_class = Pointing(), Pointing(per_class=True)
    plain.update(given)
    by_class.update(given)
    assert plain.value() == pytest.approx(200 / 3)
    assert by_class.value() == 50.0  # class 4: 100, class 9: 0, class 5: without a box


def test_energy_is_the_share_inside_and_of_a_uniform_map_the_boxes_area() -> None:
    heat = torch.zeros(1, 64, 64)
    heat[0, 32, 22], heat[0, 5, 5] = 0.75, 0.25
    assert float(Energy().update(sample(heat, boxes=[BOX]))) == 75
    assert float(Energy().update(sample(torch.zeros(1, 64, 64), boxes=[BOX]))) == 0
    overlapping = torch.tensor([[20.0, 30, 30, 40], [25, 30, 35, 40]])
    uniform = baseline_maps("uniform", 2, (64, 64))
    shares = Energy().update(sample(uniform, boxes=[BOX, overlapping]))
    assert shares.tolist() == pytest.approx([100 * 100 / 64**2, 100 * 150 / 64**2])


@settings(max_examples=40, deadline=None)
@given(corner=st.tuples(st.integers(0, 9), st.integers(0, 9)), sides=st.tuples(st.integers(1, 6), st.integers(1, 6)))
def test_a_box_of_whole_pixels_covers_exactly_these(corner: tuple[int, int], sides: tuple[int, int]) -> None:
    (x, y), (width, height) = corner, sides
    heat = torch.zeros(1, 16, 17)
    heat[0, y : y + height, x : x + width] = 1
    box = torch.tensor([[x, y, x + width, y + height]])
    assert float(Energy().update(sample(heat, boxes=[box]))) == pytest.approx(100)
    assert float(Pointing(1e-3).update(sample(heat, boxes=[box]))) == 100


def blob(*boxes: tuple[int, int, int, int], size: int = 64, value: float = 1.0) -> torch.Tensor:
    heat = torch.zeros(size, size)
    for x0, y0, x1, y1 in boxes:
        heat[y0:y1, x0:x1] = value
    return heat


def test_iou_by_hand_with_plain_areas() -> None:
    # 10..20 against 15..25, both ways: 5^2 shared of 2 * 10^2 - 5^2.
    box = torch.tensor([[15.0, 15, 25, 25]])
    values = IoU().update(sample(blob((10, 10, 20, 20))[None], boxes=[box]))
    assert float(values) == pytest.approx(25 / (2 * 100 - 25))
    exact = torch.tensor([[0.0, 0, 3, 3], [10, 10, 20, 20]])
    assert float(IoU().update(sample(blob((10, 10, 20, 20))[None], boxes=[exact]))) == 1  # the better of two
    assert overlaps(np.array([[0, 0, 4, 4]]), np.array([[5, 5, 9, 9]])).tolist() == [[0]]


def test_iou_takes_the_largest_part_above_15_percent_of_the_maximum() -> None:
    heat = 0.5 * torch.maximum(
        blob((10, 10, 20, 20)), torch.maximum(blob((40, 40, 44, 44)), 0.14 * blob((0, 0, 64, 64)))
    )
    heat[42, 42] = 0.5
    assert float(IoU().update(sample(heat[None], boxes=[torch.tensor([[10.0, 10, 20, 20]])]))) == 1
    # The ground rises to 15 % of the maximum and joins all.
    heat = heat.clamp(min=0.075)
    whole = torch.tensor([[0.0, 0, 64, 64]])
    assert float(IoU().update(sample(heat[None], boxes=[whole]))) == 1
    assert float(IoU().update(sample(torch.zeros(1, 64, 64), boxes=[whole]))) == 0


@pytest.mark.parametrize("box", [(0, 0, 64, 64), (40, 50, 64, 64), (0, 0, 1, 1), (63, 63, 64, 64)])
def test_iou_of_a_box_that_the_map_fills_is_exactly_1_also_at_the_edge(box: tuple[int, int, int, int]) -> None:
    assert float(IoU().update(sample(blob(box)[None], boxes=[torch.tensor([box]).float()]))) == 1


def test_lengths_of_the_wsol_evaluation_are_one_more() -> None:
    shared = overlaps(np.array([[10, 10, 20, 20]]), np.array([[15, 15, 25, 25]]))
    assert shared.tolist() == [[pytest.approx(36 / (2 * 121 - 36))]]


def test_iou_can_count_instead() -> None:
    maps = torch.stack([blob((10, 10, 20, 20))] * 3)
    boxes = [torch.tensor([[10.0, 10, 20, 20]]), torch.tensor([[15.0, 15, 25, 25]]), torch.zeros(0, 4)]
    metric = IoU(at_least=0.5)
    assert metric.update(sample(maps, boxes=boxes)).tolist()[:2] == [1, 0]
    assert metric.value() == 0.5
    with pytest.raises(UsageError, match=r"1\.5"):
        IoU(1.5)


def test_max_box_acc_finds_a_planted_blob() -> None:
    metric = MaxBoxAcc()
    values = metric.update(sample(blob((10, 12, 30, 26))[None], boxes=[torch.tensor([[10.0, 12, 30, 26]])]))
    assert values.tolist() == [100]
    assert metric.value() == 100
    thresholds, accuracy = metric.curve()
    assert (len(thresholds), thresholds[150]) == (1000, pytest.approx(0.15))
    assert set(accuracy) == {100.0}


def steps(inner: float) -> torch.Tensor:
    """A maximum of 1 on 4 x 4 pixels inside of ``inner`` on 20 x 20 inside of 0.1 everywhere."""
    heat = torch.full((64, 64), 0.1)
    heat[20:40, 20:40] = inner
    heat[28:32, 28:32] = 1
    return heat


def test_max_box_acc_takes_one_threshold_for_the_whole_data_set() -> None:
    """Each picture is found at some threshold, but the ranges (0.1, 0.3) and (0.5, 0.9) have none in common."""
    narrow = torch.full((64, 64), 0.5)
    narrow[20:40, 20:40] = 0.9
    narrow[0, 0] = 1
    maps = torch.stack([steps(0.3), steps(0.3), narrow])
    box = torch.tensor([[20.0, 20, 40, 40]])
    metric = MaxBoxAcc()
    assert metric.update(sample(maps, boxes=[box] * 3)).tolist() == [100] * 3
    assert metric.value() == pytest.approx(200 / 3)
    thresholds, accuracy = metric.curve()
    at = dict(zip([round(t, 3) for t in thresholds], accuracy, strict=True))
    assert at[0.05] == 0  # the whole picture
    assert at[0.2] == pytest.approx(200 / 3)
    assert at[0.4] == 0
    assert at[0.7] == pytest.approx(100 / 3)


def test_version_two_takes_any_contour_and_three_overlaps() -> None:
    small = torch.tensor([[2.0, 2, 12, 12]])
    two_blobs = blob((2, 2, 12, 12), (30, 30, 60, 60))
    first, second = MaxBoxAcc(), MaxBoxAccV2()
    assert first.update(sample(two_blobs[None], boxes=[small])).tolist() == [0]  # only the larger blob counts
    assert second.update(sample(two_blobs[None], boxes=[small])).tolist() == [100]
    # The blob's box (2, 2, 12, 12) against (2, 2, 12, 22): 121 / 231 = 0.52, enough for 0.3 and 0.5.
    metric = MaxBoxAccV2()
    metric.update(sample(blob((2, 2, 12, 12))[None], boxes=[torch.tensor([[2.0, 2, 12, 22]])]))
    assert metric.value() == pytest.approx(200 / 3)


def test_levels_that_do_not_occur_share_the_boxes_of_those_below() -> None:
    heat = np.random.default_rng(0).integers(0, 12, (9, 11)).astype(np.uint8) * 20
    for largest in (True, False):
        skipping = boxes_at_levels(heat, largest=largest)
        every = [
            boxes_at_levels(np.where(heat > level, 255, 0).astype(np.uint8), largest=largest)[0] for level in range(256)
        ]
        for ours, theirs in zip(skipping, every, strict=True):
            assert np.array_equal(ours, theirs)


def test_pxap_of_a_curve_worked_out_by_hand() -> None:
    # Values 0.9 true, 0.8 false, 0.6 true, 0.2 false: precision 1 at recall 1/2, 2/3 at recall 1.
    maps = torch.tensor([[[0.9, 0.8], [0.6, 0.2]]])
    mask = torch.tensor([[True, False], [True, False]])
    metric = PxAP()
    assert metric.update(sample(maps, masks=[mask])).tolist() == pytest.approx([100 * (0.5 + 0.5 * 2 / 3)])
    assert metric.curve() == (pytest.approx([0.5, 0.5, 1, 1]), pytest.approx([1, 0.5, 2 / 3, 0.5]))
    # Without the ignored pixel of 0.8 it is perfect.
    ignoring = torch.tensor([[1, 255], [1, 0]], dtype=torch.uint8)
    assert PxAP().update(sample(maps, masks=[ignoring])).tolist() == [100]


def test_pxap_pools_the_pixels_of_all_pictures() -> None:
    maps = torch.tensor([[[1.0, 0.5]], [[0.8, 0.1]], [[0.9, 0.0]]])
    masks = [torch.tensor([[True, False]]), torch.tensor([[False, True]]), torch.tensor([[False, False]])]
    metric = PxAP()
    values = metric.update(sample(maps, masks=masks))
    assert values.tolist()[:2] == [100, 50]
    assert values.isnan().tolist() == [False, False, True]
    # 1.0 true, 0.9 and 0.8 and 0.5 false, 0.1 true: precision 1 at recall 1/2, 2/5 at recall 1.
    assert metric.value() == pytest.approx(100 * (0.5 + 0.5 * 2 / 5))
