"""Targets: each the number it says, with the gradient that full autograd gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from camapp.cam import GradCAM, TopClasses
from camapp.cam.targets import (
    BinaryScore,
    ClassDifference,
    ClassProbability,
    ClassScore,
    DetectedBox,
    EmbeddingSimilarity,
    OutputValue,
    ResidualScore,
    SegmentationRegion,
    SeveralClasses,
)
from camapp.errors import OutputError, TargetError
from tests.networks import Plain, SkipAround


def plain_map(model: nn.Module, layer: str, inputs: torch.Tensor, score: Callable[[Any], torch.Tensor]) -> np.ndarray:
    """Grad-CAM's equations in float64 on what full autograd gives for any score of the whole output, picture 0."""
    kept: dict[str, torch.Tensor] = {}

    def keep(module: nn.Module, args: object, output: torch.Tensor) -> None:
        output.retain_grad()
        kept["map"] = output

    handle = model.get_submodule(layer).register_forward_hook(keep)
    score(model(inputs)).backward()
    handle.remove()
    model.zero_grad()
    activation, gradient = kept["map"][0].detach().double(), kept["map"].grad[0].double()  # type: ignore[index]
    return (gradient.mean((1, 2), keepdim=True) * activation).sum(0).numpy()


SCORES: list[tuple[Any, Callable[[torch.Tensor], torch.Tensor]]] = [
    (ClassScore(2), lambda y: y[0, 2]),
    (ClassProbability(2), lambda y: y[0].softmax(0)[2]),
    (ResidualScore(2), lambda y: y[0, 2] + y[0].log_softmax(0)[2]),
    (ClassDifference(2, others=[0, 4], gamma=0.5), lambda y: y[0, 2] - 0.5 * (y[0, 0] + y[0, 4]) / 2),
    (ClassDifference(2, others=1, gamma=1.0), lambda y: y[0, 2] - y[0, 1]),
    (SeveralClasses([1, 3]), lambda y: y[0, 1] + y[0, 3]),
    (OutputValue(3), lambda y: y[0, 3]),
    (OutputValue(3, sign=-1), lambda y: -y[0, 3]),
    (OutputValue(), lambda y: y[0].mean()),
    (lambda row: row[1] * row[2], lambda y: y[0, 1] * y[0, 2]),
    (lambda row: (row**2).sum().view(1, 1), lambda y: (y[0] ** 2).sum()),
]
# Without the addresses of functions, which are others in each process.
NAMES = [repr(target).partition(" at 0x")[0][:40] for target, _ in SCORES]


@pytest.mark.parametrize(("target", "score"), SCORES, ids=NAMES)
@pytest.mark.parametrize("network", [Plain, SkipAround])
def test_the_map_of_each_target_is_that_of_its_own_score(
    network: type[nn.Module], target: Any, score: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    model, inputs = network().eval(), torch.randn(1, 3, 16, 16)
    result = GradCAM(model, "last")(inputs, target)
    wanted = plain_map(model, "last", inputs, score)
    assert np.abs(wanted).max() > 0
    np.testing.assert_allclose(result.raw[0].numpy(), wanted, rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(result.scores[0], score(model(inputs)).detach(), rtol=1e-5, atol=1e-6)


def test_targets_of_all_kinds_share_one_call_and_keep_their_places() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    kinds = [1, ClassProbability(3), lambda row: row[0] - row[4], SeveralClasses([0, 2])]
    rows: list[int] = []
    model.head.register_forward_hook(lambda module, args, output: rows.append(len(output)))
    together = GradCAM(model, "last")(inputs, [kinds, kinds[::-1]])
    assert rows == [8]  # one pass on four copies of each picture
    for k, target in enumerate(kinds):
        alone = GradCAM(model, "last")(inputs, target)
        torch.testing.assert_close(together.raw[0, k], alone.raw[0], rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(together.raw[1, 3 - k], alone.raw[1], rtol=1e-5, atol=1e-7)
    assert together.targets.tolist() == [[1, 3, -1, -1], [-1, -1, 3, 1]]
    assert together.target_names[0][:2] == ["class 1", "probability of class 3"]


def test_a_difference_without_others_takes_the_nearest_in_score() -> None:
    row = torch.tensor([0.0, 5.0, 4.5, 9.0, 5.2])
    settled = ClassDifference(1, nearest=2).settled(row)
    assert isinstance(settled, ClassDifference)
    assert settled.others == (4, 2)
    assert float(settled.score(row)) == pytest.approx(5 - 0.6 * (5.2 + 4.5) / 2)


def test_multi_hot_targets_are_one_map_for_each_class_set() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    hot = torch.zeros(2, 5, dtype=torch.bool)
    hot[0, [1, 4]] = hot[1, [0, 2]] = True
    wanted = GradCAM(model, "last")(inputs, [[1, 4], [0, 2]])
    for given in (hot, hot.numpy()):
        result = GradCAM(model, "last")(inputs, given)
        assert result.targets.tolist() == [[1, 4], [0, 2]]
        assert torch.equal(result.raw, wanted.raw)
    hot[1, 3] = True
    with pytest.raises(TargetError, match=r"set 2, 3 classes; .* SeveralClasses"):
        GradCAM(model, "last")(inputs, hot)


class OneLogit(Plain):
    def __init__(self, flat: bool) -> None:
        super().__init__(classes=1)
        self.flat = flat

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y[:, 0] if self.flat else y


@pytest.mark.parametrize("flat", [True, False])
def test_a_model_of_one_score_is_explained_by_it_and_its_negative(flat: bool) -> None:
    model, inputs = OneLogit(flat).eval(), torch.randn(2, 3, 16, 16)
    default = GradCAM(model, "last")(inputs)
    assert torch.equal(default.raw, GradCAM(model, "last")(inputs, BinaryScore()).raw)
    assert torch.equal(-default.raw, GradCAM(model, "last")(inputs, BinaryScore(positive=False)).raw)
    with pytest.raises(TargetError, match=r"Class 1 is out of range.*BinaryScore\(False\)"):
        GradCAM(model, "last")(inputs, 1)
    with pytest.raises(TargetError, match="5: name a class"):
        GradCAM(Plain().eval(), "last")(inputs, BinaryScore())


class Segmenter(nn.Module):
    """Scores of 3 classes at each place; the classes are the colours."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 3, 1, bias=False)
        with torch.no_grad():
            self.body.weight.copy_(torch.eye(3).view(3, 3, 1, 1))
        self.head = nn.Conv2d(3, 3, 1, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(torch.eye(3).view(3, 3, 1, 1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": self.head(self.body(x)), "aux": x}


def picture_of_colours() -> torch.Tensor:
    """Red but for a green block of 2x3 and one blue place."""
    x = torch.zeros(1, 3, 6, 8)
    x[0, 0] = 1.0
    x[0, :, 1:3, 2:5] = torch.tensor([0.0, 2.0, 0.0])[:, None, None]
    x[0, :, 5, 7] = torch.tensor([0.0, 0.0, 3.0])
    return x


def test_a_segmentation_is_explained_by_its_largest_regions() -> None:
    result = GradCAM(Segmenter(), "body")(picture_of_colours(), TopClasses(3))
    assert result.targets.tolist() == [[0, 1, 2]]
    torch.testing.assert_close(result.scores, torch.tensor([[1.0, 2.0, 3.0]]))  # each class's mean score on its region
    green = result.maps[0, 1] > 0.5
    assert green.nonzero().tolist() == [[y, x] for y in (1, 2) for x in (2, 3, 4)]


def test_a_region_may_be_given_and_a_class_index_means_its_region() -> None:
    model, inputs = Segmenter(), picture_of_colours()
    mask = torch.zeros(6, 8, dtype=torch.bool)
    mask[1, 2] = True
    by_mask = GradCAM(model, "body")(inputs, SegmentationRegion(1, mask))
    assert float(by_mask.scores) == 2.0
    assert torch.equal(GradCAM(model, "body")(inputs, 1).raw, GradCAM(model, "body")(inputs, SegmentationRegion(1)).raw)
    with pytest.raises(TargetError, match=r"The mask is \(2, 2\) .* output's size \(6, 8\)"):
        GradCAM(model, "body")(inputs, SegmentationRegion(1, torch.ones(2, 2)))
    with pytest.raises(TargetError, match="Class 3 is out of range: the model has 3 classes"):
        GradCAM(model, "body")(inputs, 3)


class Detector(nn.Module):
    """Two boxes a picture, scored by the mean brightness inside them, of labels 1 and 2."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 1, 1, bias=False)
        nn.init.ones_(self.body.weight)

    def forward(self, x: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        found = self.body(x)[:, 0]
        boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [4.0, 4.0, 8.0, 8.0]])
        return [
            {
                "boxes": boxes,
                "scores": torch.stack([one[:4, :4].mean(), one[4:, 4:].mean()]),
                "labels": torch.tensor([1, 2]),
            }
            for one in found
        ]


def bright_corners() -> torch.Tensor:
    x = torch.zeros(2, 1, 8, 8)
    x[0, 0, 1, 1], x[0, 0, 6, 6] = 8.0, 4.0
    x[1, 0, 1, 1], x[1, 0, 6, 6] = 4.0, 8.0
    return x


def test_detections_are_explained_best_first_each_with_its_own_map() -> None:
    result = GradCAM(Detector(), "body")(bright_corners(), TopClasses(2))
    torch.testing.assert_close(result.scores, torch.tensor([[0.5, 0.25], [0.5, 0.25]]))
    assert result.targets.tolist() == [[1, 2], [2, 1]]
    assert result.logits.shape == (2, 0)


def test_a_box_is_followed_by_its_overlap_and_label() -> None:
    with torch.no_grad():
        row = Detector()(bright_corners())[0]
    by_rank = DetectedBox(rank=1).settled(row)
    assert isinstance(by_rank, DetectedBox)
    assert by_rank.box == (4.0, 4.0, 8.0, 8.0)
    assert by_rank.label == 2
    assert float(by_rank.score(row)) == 0.25
    shifted = DetectedBox(box=(0, 0, 4, 5))  # 16 of 20 common with the first box
    assert float(shifted.score(row)) == 0.5
    assert float(DetectedBox(box=(0, 0, 9, 9), label=1).score(row)) == 0.0  # 16 of 81: another thing
    assert float(DetectedBox(box=(0, 0, 4, 4), label=7).score(row)) == 0.0
    with pytest.raises(TargetError, match="found 2 objects; there is no number 2"):
        DetectedBox(rank=2).settled(row)
    with pytest.raises(TargetError, match="found 0 objects of label 9"):
        DetectedBox(label=9).settled(row)


def test_torchvisions_detector_is_explained_through_its_backbone() -> None:
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

    torch.manual_seed(0)
    model = fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=5, min_size=96, max_size=96, box_score_thresh=0.0
    ).eval()
    inputs = torch.rand(1, 3, 96, 96)
    found = model(inputs)[0]
    result = GradCAM(model, "backbone.body.16")(inputs)
    torch.testing.assert_close(result.scores[0], found["scores"].max().detach())
    assert int(result.targets[0]) == int(found["labels"][found["scores"].argmax()])
    wanted = plain_map(model, "backbone.body.16", inputs, lambda output: output[0]["scores"].max())
    np.testing.assert_allclose(result.raw[0].numpy(), wanted, rtol=1e-4, atol=1e-9)


class Encoder(Plain):
    def __init__(self) -> None:
        super().__init__(classes=7)


def test_similarity_to_another_picture_is_the_cosine_of_their_embeddings() -> None:
    model, inputs, other = Encoder().eval(), torch.randn(1, 3, 16, 16), torch.randn(1, 3, 16, 16)
    target = EmbeddingSimilarity.to_picture(model, other)
    vector = model(other)[0].detach()
    torch.testing.assert_close(target.vector, vector)
    wanted = plain_map(model, "last", inputs, lambda y: F.cosine_similarity(y[0], vector, dim=0))
    np.testing.assert_allclose(GradCAM(model, "last")(inputs, target).raw[0].numpy(), wanted, rtol=1e-4, atol=1e-7)
    with pytest.raises(TargetError, match="vector to compare with has 3 values"):
        GradCAM(model, "last")(inputs, EmbeddingSimilarity(torch.ones(3)))
    with pytest.raises(TargetError, match="given are 2"):
        EmbeddingSimilarity.to_picture(model, torch.cat([inputs, other]))


class Wrapped(nn.Module):
    def __init__(self, wrap: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.net = Plain()
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> Any:
        return self.wrap(self.net(x))


class Fields:
    def __init__(self, **fields: torch.Tensor) -> None:
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("wrap", "output"),
    [
        (lambda y: {"aux": y * 0, "scores": y}, "scores"),
        (lambda y: Fields(loss=y.sum(), image_embeds=y), None),
        (lambda y: Fields(last=y), "last"),
        (lambda y: (y * 0, y), 1),
        (lambda y: {"deep": {"er": y}}, lambda out: out["deep"]["er"]),
    ],
)
def test_the_part_explained_is_found_or_named(wrap: Callable[[torch.Tensor], Any], output: Any) -> None:
    model, inputs = Wrapped(wrap).eval(), torch.randn(2, 3, 16, 16)
    wanted = GradCAM(model.net, "last")(inputs, [[1, 2], [0, 3]])
    assert torch.equal(GradCAM(model, "net.last", output=output)(inputs, [[1, 2], [0, 3]]).raw, wanted.raw)


def test_a_function_may_see_a_whole_row_of_a_dict() -> None:
    model, inputs = Wrapped(lambda y: {"a": y, "b": 2 * y}).eval(), torch.randn(2, 3, 16, 16)
    result = GradCAM(model, "net.last", output=lambda out: out)(inputs, lambda row: row["a"][1] + row["b"][2])
    wanted = GradCAM(model.net, "last")(inputs, lambda row: row[1] + 2 * row[2])
    torch.testing.assert_close(result.raw, wanted.raw)


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        ("logit", OutputError, r"output=.logit.: .* a dict with the keys a, b"),
        (None, OutputError, "a dict with the keys a, b, which contains no class scores. Say by output="),
        (lambda out: out["a"][:1], OutputError, r"shape \(1, 5\) for a batch of 2"),
    ],
)
def test_a_part_that_is_not_there_is_described(output: Any, error: type[Exception], message: str) -> None:
    model = Wrapped(lambda y: {"a": y, "b": y}).eval()
    with pytest.raises(error, match=message):
        GradCAM(model, "net.last", output=output)(torch.randn(2, 3, 16, 16), 0)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lambda row: row, r"gave a tensor \(5,\) for one picture; needed is one number"),
        (lambda row: 3.0, "gave float for one picture"),
        (OutputValue((0, 1)), r"has no place \(0, 1\)"),
        (ClassProbability(5), "Class 5 is out of range"),
        (DetectedBox(), "reads a dict of boxes"),
        (SegmentationRegion(0), "reads scores"),
    ],
)
def test_targets_that_do_not_fit_the_output_say_why(target: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        GradCAM(Plain().eval(), "last")(torch.randn(1, 3, 16, 16), target)


def test_tokens_without_a_target_ask_for_one() -> None:
    class Tokens(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(F.relu(self.stem(x))).flatten(2).transpose(1, 2)

    model, inputs = Tokens().eval(), torch.randn(1, 3, 16, 16)
    with pytest.raises(OutputError, match=r"a tensor \(16, 8\) for each picture; which number of it"):
        GradCAM(model, "last")(inputs)
    with pytest.raises(TargetError, match="no vector of class scores"):
        GradCAM(model, "last")(inputs, 3)
    assert GradCAM(model, "last")(inputs, lambda row: row[:, 3].sum()).reasons == [None]


def test_names_are_read_by_targets_too() -> None:
    import camapp

    model = camapp.wrap_model(Plain(), size=16, labels=["ant", "bee", "cat", "dog", "eel"])
    inputs = torch.randn(1, 3, 16, 16)
    result = camapp.GradCAM(model, "last")(inputs, [[ClassProbability("dog"), ClassDifference("cat", "dog"), "eel"]])
    assert result.targets.tolist() == [[3, 2, 4]]
    assert result.target_names == [["probability of class 3", "class 2 against 3", "class 4"]]


def test_a_class_is_not_compared_with_itself() -> None:
    with pytest.raises(TargetError, match="Class 2 is compared with itself"):
        GradCAM(Plain().eval(), "last")(torch.randn(1, 3, 16, 16), ClassDifference(2, others=[0, 2]))
