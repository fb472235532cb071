"""What a sample takes, and the score that a model gives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from camapp.cam.metrics import Sample, class_probability
from camapp.errors import TargetError, UsageError
from tests.cam.metrics.scenes import Tiny, mean_score, sample


def test_the_score_is_the_softmax_probability_of_each_rows_class_whatever_the_chunks() -> None:
    model, inputs, targets = Tiny(), torch.randn(5, 3, 8, 9), torch.tensor([0, 3, 1, 2, 3])
    model.train()
    buffers = [buffer.clone() for buffer in model.buffers()]
    model.eval()
    exact = torch.stack([model(x[None]).double().softmax(1)[0, t] for x, t in zip(inputs, targets, strict=True)])
    model.train()
    for size in (None, 1, 2, 5):
        score = class_probability(model, size)(inputs, targets)
        assert score.dtype == torch.float32
        assert not score.requires_grad
        torch.testing.assert_close(score.double(), exact, atol=1e-6, rtol=0)
    assert model.training
    assert model.head.weight.grad is None
    for now, before in zip(model.buffers(), buffers, strict=True):
        assert torch.equal(now, before)  # batch norm did not learn from the pictures judged


def test_a_double_model_gets_doubles_and_gives_floats() -> None:
    score = class_probability(Tiny().double())(torch.randn(2, 3, 8, 8), torch.tensor([0, 1]))
    assert score.dtype == torch.float32


class Views(nn.Module):
    """As networks once were written: view() after a convolution, which takes contiguous tensors only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4 * 36, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        return self.head(x.view(len(x), -1))


def test_a_model_that_cannot_take_channels_last_is_scored_all_the_same() -> None:
    model, inputs, targets = Views(), torch.randn(3, 3, 8, 8), torch.tensor([0, 1, 2])
    with pytest.raises(RuntimeError, match="view"):
        class_probability(model, channels_last=True)(inputs, targets)
    exact = model(inputs).softmax(1).diagonal()
    torch.testing.assert_close(class_probability(model)(inputs, targets), exact.detach())


def test_a_class_that_the_model_does_not_have_is_named() -> None:
    with pytest.raises(TargetError, match=r"Class 4 .* 4 classes"):
        class_probability(Tiny())(torch.randn(2, 3, 8, 8), torch.tensor([0, 4]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": torch.randn(2, 5, 5)}, r"\(2, 5, 5\).*unsqueeze"),
        ({"inputs": torch.zeros(0, 1, 5, 5)}, r"inputs: \(0, 1, 5, 5\)"),
        ({"targets": torch.tensor([1.0, 2.0])}, "targets: .*float32"),
        ({"targets": torch.tensor([1])}, r"targets: \(1,\)"),
        ({"maps": torch.zeros(2, 4, 5)}, r"maps: \(2, 4, 5\).*\(2, 5, 5\)"),
        ({"maps": torch.full((2, 5, 5), 1.5)}, "maps reach from 1.5 to 1.5"),
        ({"maps": torch.full((2, 5, 5), torch.nan)}, "maps reach from nan"),
        ({"boxes": [torch.zeros(0, 4)]}, "boxes: 1 entries for 2"),
        ({"boxes": [torch.zeros(0, 4), torch.zeros(4)]}, r"boxes\[1\]: \(4,\)"),
        ({"boxes": [torch.zeros(0, 4), torch.tensor([[3.0, 0, 3, 2]])]}, "without area"),
        ({"masks": [torch.zeros(5, 5), torch.zeros(5, 5)]}, r"masks\[0\]: .*float32"),
    ],
)
def test_what_does_not_fit_is_refused_and_quoted(change: dict, message: str) -> None:
    given = {"inputs": torch.randn(2, 1, 5, 5), "targets": torch.tensor([0, 1]), "maps": torch.zeros(2, 5, 5)}
    with pytest.raises(UsageError, match=message):
        Sample(score=mean_score, **{**given, **change})


def test_score_and_maps_that_several_metrics_need_are_computed_once() -> None:
    scored: list[int] = []
    explained: list[int] = []

    def score(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        scored.append(len(inputs))
        return mean_score(inputs, targets)

    def explain(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        explained.append(len(inputs))
        return inputs[:, 0]

    from camapp.cam.metrics import ADCC, AverageDrop, Coherency, Increase

    one = sample(torch.rand(3, 4, 4), score=score, explain=explain)
    for metric in (AverageDrop(), Increase(), Coherency(), ADCC()):
        metric.update(one)
    assert scored == [3, 3]
    assert explained == [3]
    other = one.with_maps(torch.zeros(3, 4, 4))
    assert AverageDrop().update(other).tolist() == [100.0] * 3
    assert scored == [3, 3, 3]  # the pictures themselves were known


def test_rows_of_a_sample_keep_what_belongs_to_them_and_are_not_scored_again() -> None:
    scored: list[int] = []

    def score(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        scored.append(len(inputs))
        return mean_score(inputs, targets)

    boxes = [torch.tensor([[row, 0.0, 4, 4]]) for row in range(3)]
    masks = [torch.full((4, 4), row, dtype=torch.uint8) for row in range(3)]
    whole = sample(
        torch.rand(3, 4, 4), torch.rand(3, 1, 4, 4), score, targets=torch.tensor([5, 6, 7]), boxes=boxes, masks=masks
    )
    confidence = whole.confidence
    some = whole.rows([2, 0])
    assert some.confidence.tolist() == [confidence[2].item(), confidence[0].item()]
    assert scored == [3]
    assert torch.equal(some.inputs, whole.inputs[[2, 0]])
    assert torch.equal(some.maps, whole.maps[[2, 0]])
    assert some.targets.tolist() == [7, 5]
    assert [one[0, 0].item() for one in some.boxes or []] == [2, 0]
    assert [one[0, 0].item() for one in some.masks or []] == [2, 0]


@pytest.mark.parametrize(
    ("boxes", "message"),
    [
        ([[[float("nan"), 1, 2, 3]]], "is not finite"),
        ([[[0, 0, float("inf"), 3]]], "is not finite"),
        ([[[2, 1, 2, 3]]], "without area"),
        ([[1, 2, 3, 4]], r"\(4,\); needed is \(n, 4\)"),
    ],
)
def test_boxes_that_are_none_are_refused_and_lists_are_taken(boxes: list, message: str) -> None:
    given = {
        "inputs": torch.rand(1, 3, 4, 4),
        "targets": torch.zeros(1, dtype=torch.int64),
        "maps": torch.rand(1, 4, 4),
    }
    with pytest.raises(UsageError, match=message):
        Sample(score=lambda inputs, targets: inputs.mean((1, 2, 3)), boxes=boxes, **given)
    taken = Sample(score=lambda inputs, targets: inputs.mean((1, 2, 3)), boxes=[[[0, 1, 2, 3]]], **given)
    assert taken.boxes is not None
    assert taken.boxes[0].tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("score", [lambda inputs, targets: inputs.mean((2, 3)), lambda inputs, targets: [0.5]])
def test_a_score_that_gives_something_else_is_refused_by_every_metric_that_asks_it(score: object) -> None:
    from camapp.cam.metrics import METRICS

    sample = Sample(
        score=score,  # type: ignore[arg-type]
        inputs=torch.rand(1, 3, 8, 8),
        targets=torch.zeros(1, dtype=torch.int64),
        maps=torch.rand(1, 8, 8),
    )
    for name in ("average_drop", "increase", "insertion", "deletion", "infidelity"):
        with pytest.raises(UsageError, match="needed is one probability each"):
            METRICS[name]().update(sample)
