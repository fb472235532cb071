"""GradCAM on tiny networks: numbers, targets, batches, blank maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from camapp.cam import GradCAM, TopClasses
from camapp.errors import LayerError, OutputError, TargetError, UsageError
from tests.autograd_oracle import full_autograd
from tests.networks import InPlaceAfter, PassThrough, Plain, Reused, SkipAround


def by_hand(activation: torch.Tensor, gradient: torch.Tensor) -> np.ndarray:
    """Equations 1 and 2 of the paper, in float64, one channel at a time."""
    a, g = activation.double().numpy(), gradient.double().numpy()
    return np.stack([sum(g[n, k].mean() * a[n, k] for k in range(a.shape[1])) for n in range(len(a))])


def test_raw_map_of_a_two_channel_example_computed_by_hand() -> None:
    activation = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]]])
    gradient = torch.tensor([[[[1.0, 3.0], [0.0, 0.0]], [[-2.0, -2.0], [-2.0, -2.0]]]])
    # mean gradients 1 and -2, so 1*A1 - 2*A2
    wanted = torch.tensor([[[-1.0, 2.0], [3.0, 2.0]]])
    torch.testing.assert_close(GradCAM(Plain()).combine(activation, gradient), wanted)


@pytest.mark.parametrize("network", [Plain, InPlaceAfter, PassThrough, SkipAround])
@pytest.mark.parametrize("layer", ["stem", "norm", "last"])
def test_raw_maps_follow_the_papers_equations(network: type[nn.Module], layer: str) -> None:
    model, inputs = network().eval(), torch.randn(3, 3, 20, 12)
    wanted = by_hand(*full_autograd(model, layer, inputs, [0, 4, 2]))
    result = GradCAM(model, layer)(inputs, [0, 4, 2])
    np.testing.assert_allclose(result.raw.numpy(), wanted, rtol=1e-5, atol=1e-7)


def test_maps_are_the_positive_part_resized_and_stretched() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 20, 12)
    result = GradCAM(model, "last")(inputs, 1)
    for raw, shown in zip(result.raw, result.maps, strict=True):
        wide = F.interpolate(
            raw.clamp(min=0)[None, None].double(), size=(20, 12), mode="bilinear", align_corners=False
        )[0, 0]
        wanted = (wide - wide.min()) / (wide.max() - wide.min())
        torch.testing.assert_close(shown.double(), wanted, rtol=0, atol=1e-5)


def test_no_targets_means_the_top_class_of_each_row() -> None:
    model, inputs = Plain().eval(), torch.randn(4, 3, 16, 16)
    result = GradCAM(model, "last")(inputs)
    logits = model(inputs)
    assert result.targets.tolist() == logits.argmax(1).tolist()
    torch.testing.assert_close(result.scores, logits.max(1).values.detach())
    torch.testing.assert_close(result.logits, logits.detach())


@pytest.mark.parametrize("network", [Plain, InPlaceAfter, SkipAround, Reused])
def test_several_classes_at_once_equal_one_by_one(network: type[nn.Module]) -> None:
    layer = "two" if network is Reused else "last"
    model, inputs = network().eval(), torch.randn(3, 3, 16, 16)
    classes = [[0, 2, 1], [2, 2, 0], [1, 0, 2]]
    engine = GradCAM(model, layer)
    together = engine(inputs, classes)
    assert together.maps.shape == (3, 3, 16, 16)
    for k in range(3):
        alone = engine(inputs, [row[k] for row in classes])
        torch.testing.assert_close(together.raw[:, k], alone.raw, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(together.maps[:, k], alone.maps, rtol=0, atol=1e-5)
        torch.testing.assert_close(together.scores[:, k], alone.scores)
        assert [row[k] for row in together.reasons] == alone.reasons


@pytest.mark.parametrize("rows", [1, 2])
def test_a_branch_around_the_layer_is_noticed_and_the_result_is_the_same(rows: int) -> None:
    model, inputs = SkipAround().eval(), torch.randn(rows, 3, 16, 16)
    classes = [[0, 1, 2, 3]] * rows
    together = GradCAM(model, "last")(inputs, classes)
    for k in range(4):
        wanted = by_hand(*full_autograd(model, "last", inputs, [k] * rows))
        np.testing.assert_allclose(together.raw[:, k].numpy(), wanted, rtol=1e-5, atol=1e-7)


class Folded(nn.Module):
    """Folds the batch axis into another behind the target, by a size it remembers: repeated rows get mixed silently."""

    def __init__(self) -> None:
        super().__init__()
        self.target = nn.Conv2d(3, 4, 1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = len(x)
        tokens = self.target(x).permute(0, 2, 3, 1).reshape(rows, -1, 4)
        return self.head(tokens.mean(1))


def test_a_network_that_mixes_repeated_rows_is_noticed() -> None:
    model, inputs = Folded().eval(), torch.randn(2, 3, 8, 8)
    together = GradCAM(model, "target")(inputs, [[0, 1], [2, 1]])
    for k, classes in enumerate(([0, 2], [1, 1])):
        wanted = by_hand(*full_autograd(model, "target", inputs, classes))
        np.testing.assert_allclose(together.raw[:, k].numpy(), wanted, rtol=1e-5, atol=1e-7)


def test_top_classes_are_explained_best_first() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    result = GradCAM(model, "last")(inputs, TopClasses(3))
    assert result.targets.tolist() == model(inputs).topk(3, dim=1).indices.tolist()


def test_targets_may_be_a_tensor_or_an_array() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    engine = GradCAM(model, "last")
    wanted = engine(inputs, [3, 1]).raw
    assert torch.equal(engine(inputs, torch.tensor([3, 1])).raw, wanted)
    assert torch.equal(engine(inputs, np.array([3, 1])).raw, wanted)
    assert torch.equal(engine(inputs, torch.tensor(3)).raw[0], wanted[0])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([0], r"1 target\(s\) for a batch of 2"),
        ([0, 1, 2], r"3 target\(s\) for a batch of 2"),
        ([], r"0 target\(s\) for a batch of 2"),
        ([[0, 1], [2]], "same number of classes"),
        ([[], []], "same number of classes"),
        ([[0], 1], "same number of classes"),
        (5, "Class 5 is out of range: the model has 5 classes, 0 to 4"),
        (-1, "Class -1 is out of range"),
        ("tabby", '"tabby" is not a class index'),
        (1.5, "1.5 is not a class index"),
        (True, "True is not a class index"),
        (TopClasses(6), "Cannot explain the top 6 classes: the model has only 5"),
    ],
)
def test_targets_that_do_not_fit_are_refused_with_the_reason(targets: object, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        GradCAM(Plain().eval(), "last")(torch.randn(2, 3, 16, 16), targets)


def test_several_classes_for_one_picture_given_flat_get_a_hint() -> None:
    with pytest.raises(TargetError, match=r"targets=\[\[0, 1\]\]"):
        GradCAM(Plain().eval(), "last")(torch.randn(1, 3, 16, 16), [0, 1])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((1, 3, 8, 8)), "inputs is a ndarray, not a tensor"),
        (torch.zeros(3, 8, 8), r"unsqueeze\(0\)"),
        (torch.zeros(0, 3, 8, 8), r"shape \(0, 3, 8, 8\)"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "uint8, not floats"),
    ],
)
def test_inputs_that_are_no_batch_are_refused(inputs: torch.Tensor, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        GradCAM(Plain(), "last")(inputs)


def test_layers_that_do_not_exist_or_never_run_are_refused() -> None:
    with pytest.raises(LayerError, match=r"Did you mean last\?"):
        GradCAM(Plain(), "lasst")
    with pytest.raises(LayerError, match="not part of this Plain"):
        GradCAM(Plain(), nn.Conv2d(1, 1, 1))
    with pytest.raises(LayerError, match="never called"):
        GradCAM(Reused(), "unused")(torch.randn(1, 3, 8, 8))
    with pytest.raises(LayerError, match="does not map onto a picture"):
        GradCAM(Plain(), "head")(torch.randn(1, 3, 8, 8))


def test_the_layer_may_be_the_module_itself() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 8, 8)
    assert torch.equal(GradCAM(model, model.last)(inputs, 0).raw, GradCAM(model, "last")(inputs, 0).raw)


def test_without_a_layer_the_last_map_is_explained() -> None:
    result = GradCAM(Plain())(torch.randn(1, 3, 16, 16), 0)
    assert result.layer == "last"


def test_a_reused_layer_is_explained_at_its_last_call_and_says_so_once() -> None:
    model, inputs = Reused().eval(), torch.randn(1, 3, 8, 8)
    engine = GradCAM(model, "relu")
    with pytest.warns(UserWarning, match='"relu" runs 3 times in one forward; its last call is explained'):
        result = engine(inputs, 1)
    assert result.notes
    again = engine(inputs, 1)  # an unexpected warning would fail: see filterwarnings below
    assert again.notes == result.notes
    assert torch.equal(result.raw, GradCAM(model, "relu@2")(inputs, 1).raw)
    assert not torch.equal(result.raw, GradCAM(model, "relu@0")(inputs, 1).raw)


class Wrapped(nn.Module):
    def __init__(self, wrap: object) -> None:
        super().__init__()
        self.net = Plain()
        self.wrap = wrap

    def forward(self, x: torch.Tensor) -> object:
        return self.wrap(self.net(x))  # type: ignore[operator]


class Output:
    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


@pytest.mark.parametrize(
    "wrap",
    [lambda y: (y, None), lambda y: [y], lambda y: {"logits": y}, Output],
    ids=["tuple", "list", "dict", "field"],
)
def test_scores_are_found_in_usual_containers(wrap: object) -> None:
    model, inputs = Wrapped(wrap).eval(), torch.randn(2, 3, 16, 16)
    assert torch.equal(GradCAM(model, "net.last")(inputs, 1).raw, GradCAM(model.net, "last")(inputs, 1).raw)


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda y: {"boxes": y}, "a dict with the keys boxes"),
        (lambda y: None, "a NoneType"),
        (lambda y: y.sum(), r"shape \(\)"),
        (lambda y: y[:1], r"shape \(1, 5\) for a batch of 2"),
    ],
)
def test_outputs_without_class_scores_are_described(wrap: object, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        GradCAM(Wrapped(wrap).eval(), "net.last")(torch.randn(2, 3, 16, 16), 0)


def test_a_model_that_detaches_behind_the_layer_says_so() -> None:
    class Detached(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.last(self.stem(x)).detach().mean((2, 3)))

    with pytest.raises(LayerError, match="detaches or runs under its own no_grad"):
        GradCAM(Detached(), "last")(torch.randn(1, 3, 16, 16), 0)


class FrozenInside(Plain):
    """The usual way to freeze a backbone: its forward runs under no_grad, and only the head's is recorded."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = F.relu(self.last(F.relu(self.norm(self.stem(x)))))
        return self.head(x.mean((2, 3)))


def test_a_backbone_under_its_own_no_grad_is_explained_all_the_same() -> None:
    frozen, inputs = FrozenInside().eval(), torch.randn(2, 3, 16, 16)
    plain = Plain().eval()
    plain.load_state_dict(frozen.state_dict())
    for targets in (1, [[0, 1], [2, 3]]):
        torch.testing.assert_close(
            GradCAM(frozen, "last")(inputs, targets).raw, GradCAM(plain, "last")(inputs, targets).raw
        )


class Constant(nn.Module):
    """A map that is told what to be: the input's first channel times a weight."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.map = nn.Conv2d(3, 1, 1, bias=False)
        with torch.no_grad():
            self.map.weight.copy_(torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1))
        self.weight = weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.map(x).mean((2, 3)) * self.weight


def test_every_blank_map_has_a_reason_and_is_all_zero() -> None:
    ramp = torch.linspace(0, 1, 16).view(1, 1, 4, 4).expand(1, 3, 4, 4)
    flat = torch.ones(1, 3, 4, 4)
    cases = [
        (Constant(1.0), ramp, None),
        (Constant(-1.0), ramp, "no positive evidence"),
        (Constant(1.0), flat, "flat"),
        (Constant(0.0), ramp, "no gradient"),
        (Constant(1.0), torch.zeros(1, 3, 4, 4), "no activation"),
        (Constant(1.0), ramp * float("nan"), "not finite"),
    ]
    for model, inputs, reason in cases:
        result = GradCAM(model, "map")(inputs, 0)
        if reason is None:
            assert result.reasons == [None]
            assert result.maps.max() == 1
            assert result.maps.min() == 0
        else:
            assert result.reasons[0] is not None
            assert result.reasons[0].startswith(reason)
            assert torch.equal(result.maps, torch.zeros(1, 4, 4))


def test_one_picture_that_is_not_finite_spoils_no_other() -> None:
    model, good = Plain().eval(), torch.randn(1, 3, 16, 16)
    both = torch.cat([torch.full_like(good, float("inf")), good])
    result = GradCAM(model, "last")(both, 1)
    alone = GradCAM(model, "last")(good, 1)
    assert str(result.reasons[0]).startswith("not finite")
    torch.testing.assert_close(result.maps[1], alone.maps[0], rtol=0, atol=1e-5)


def test_the_result_says_what_it_is() -> None:
    result = GradCAM(Plain().eval(), "last")(torch.randn(2, 3, 16, 16), [1, 2])
    assert repr(result) == 'CamResult(2x16x16 gradcam maps at "last", targets=[1, 2])'
    assert len(result) == 2


def test_a_compiled_model_is_explained_through_its_original() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    compiled = torch.compile(model, backend="eager")
    compiled(inputs)  # hooks registered after the first compiled call would be skipped silently
    assert torch.equal(GradCAM(compiled, "last")(inputs, 0).raw, GradCAM(model, "last")(inputs, 0).raw)


@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_a_scripted_model_is_refused_with_the_remedy() -> None:
    from camapp.errors import ModelError

    scripted = torch.jit.trace(Plain().eval(), torch.randn(1, 3, 16, 16))
    with pytest.raises(ModelError, match=r"Give the nn\.Module that it was made from"):
        GradCAM(scripted, "last")


def test_a_layer_that_never_ran_names_layers_that_did() -> None:
    with pytest.raises(LayerError, match=r'"unused" was never called .* Layers that ran: .*(one|two|relu|head)'):
        GradCAM(Reused(), "unused")(torch.randn(1, 3, 8, 8), 0)


def test_more_classes_than_memory_allows_at_once_give_the_same_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    classes = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]]
    wanted = GradCAM(model, "last")(inputs, classes)
    monkeypatch.setattr("camapp.cam.passes.MOST_REPEATED_BYTES", 1000)
    result = GradCAM(model, "last")(inputs, classes)
    torch.testing.assert_close(result.raw, wanted.raw, rtol=1e-5, atol=1e-7)


def test_the_network_behind_the_layer_runs_once_for_all_classes() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    rows: list[int] = []
    model.head.register_forward_hook(lambda module, args, output: rows.append(len(output)))
    trunk: list[int] = []
    model.stem.register_forward_hook(lambda module, args, output: trunk.append(len(output)))
    GradCAM(model, "last")(inputs, [[0, 1, 2], [2, 3, 4]])
    assert (trunk, rows) == ([2], [6])


class SequenceFirst(nn.Module):
    """Tokens lie first and the batch second, as in CLIP: no row of the target belongs to a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, stride=4)
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x).flatten(2).permute(2, 0, 1)
        return self.head(self.body(tokens).mean(0))


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("targets", [1, TopClasses(2)])
def test_a_layer_whose_first_axis_is_not_the_batch_is_refused_and_never_recommended(rows: int, targets: object) -> None:
    model, inputs = SequenceFirst().eval(), torch.randn(rows, 3, 16, 16)
    with pytest.raises(LayerError, match=r'"body" .* first axis is not the batch'):
        GradCAM(model, "body")(inputs, targets)
    assert GradCAM(model)(inputs, targets).layer == "embed"


class BatchStatistics(nn.Module):
    """A BatchNorm that uses the batch's own statistics also in eval mode: the rows depend on each other."""

    def __init__(self) -> None:
        super().__init__()
        self.target = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8, track_running_stats=False)
        self.last = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.norm(F.relu(self.target(x))))
        return self.head(F.relu(self.last(x)).mean((2, 3)))


def test_several_classes_are_right_also_where_the_rows_of_a_batch_depend_on_each_other() -> None:
    model, inputs = BatchStatistics().eval(), torch.randn(1, 3, 16, 16)
    together = GradCAM(model, "target")(inputs, [[1, 2, 4]])
    for k, target in enumerate((1, 2, 4)):
        wanted = by_hand(*full_autograd(model, "target", inputs, [target]))
        np.testing.assert_allclose(together.raw[:, k].numpy(), wanted, rtol=1e-4, atol=1e-6)
    assert together.notes == ()
    assert (
        "depends on the other pictures of the batch" in GradCAM(model, "target")(inputs.repeat(2, 1, 1, 1), 1).notes[0]
    )


class WritesOnInput(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.sub_(0.5).div_(0.25)
        return super().forward(x)


@pytest.mark.parametrize("layer", ["last", None])
@pytest.mark.parametrize("targets", [1, [[1, 2], [3, 4]]])
def test_a_model_that_writes_on_its_input_gets_a_copy_each_time(layer: str | None, targets: object) -> None:
    model, inputs = WritesOnInput().eval(), torch.rand(2, 3, 16, 16)
    kept = inputs.clone()
    wanted = model(inputs.clone())
    result = GradCAM(model, layer)(inputs, targets)
    torch.testing.assert_close(result.logits, wanted.detach())
    assert torch.equal(inputs, kept)


def test_at_another_input_size_another_layer_may_be_recommended() -> None:
    model = Plain().eval()
    engine = GradCAM(model)
    assert engine(torch.randn(1, 3, 4, 4), 0).layer == "norm"  # the last layer's map is 1x1
    assert engine(torch.randn(1, 3, 16, 16), 0).layer == "last"


def test_points_of_evidence_in_a_map_larger_than_the_input_are_not_lost() -> None:
    from camapp.cam.result import normalised_maps

    raw = torch.zeros(1, 64, 64)
    raw[0, 12, 20] = 1.0
    maps, shows = normalised_maps(raw, (8, 8))
    shown = maps[0]
    assert shows.tolist() == [True]
    assert shown.max() == 1
    assert divmod(int(shown.argmax()), 8) == (1, 2)


class Nested(Plain):
    """Explains itself, on other inputs, in the middle of its own forward."""

    inner: GradCAM | None = None
    seen: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.stem(x)))
        if self.inner is not None:
            engine, self.inner = self.inner, None
            self.seen = engine(x[:1] * 0.5, [[0, 1]]).raw
            self.inner = engine
        return self.head(F.relu(self.last(y)).mean((2, 3)))


@pytest.mark.parametrize("targets", [1, [[1, 2], [3, 4]]])
def test_an_explanation_within_a_forward_does_not_disturb_the_one_around_it(targets: object) -> None:
    model, inputs = Nested().eval(), torch.randn(2, 3, 16, 16)
    outer = GradCAM(model, "last")(inputs, targets)
    inner = GradCAM(model, "last")(inputs[:1] * 0.5, [[0, 1]])
    model.inner = GradCAM(model, "last")
    nested = GradCAM(model, "last")(inputs, targets)
    torch.testing.assert_close(nested.raw, outer.raw, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(model.seen, inner.raw, rtol=1e-5, atol=1e-7)
    assert nested.notes == ()


def test_whole_numbers_of_any_library_are_classes() -> None:
    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    wanted = GradCAM(model, "last")(inputs, [1, 2]).raw
    for targets in ([np.int64(1), np.uint8(2)], [torch.tensor(1), torch.tensor(2)], (1, 2)):
        assert torch.equal(GradCAM(model, "last")(inputs, targets).raw, wanted)
    assert GradCAM(model, "last")(inputs, TopClasses(np.int64(2))).maps.shape[1] == 2  # type: ignore[arg-type]


def test_a_model_compiled_in_place_is_explained_eagerly_and_stays_compiled() -> None:
    model, inputs = Plain().eval(), torch.randn(1, 3, 16, 16)
    wanted = GradCAM(model, "last")(inputs, 0).raw
    model.compile(backend="eager")
    with torch.no_grad():
        model(inputs)
    implementation = model._compiled_call_impl
    assert torch.equal(GradCAM(model, "last")(inputs, 0).raw, wanted)
    assert model._compiled_call_impl is implementation


def test_a_model_built_in_inference_mode_is_refused_with_the_remedy() -> None:
    from camapp.errors import ModelError

    with torch.inference_mode():
        model = Plain()
    with pytest.raises(ModelError, match=r"Build or load it outside"):
        GradCAM(model, "last")


class Mixing(nn.Module):
    """Returns a row for every repeated row, but each depends on the others."""

    def __init__(self, mix: str) -> None:
        super().__init__()
        self.target = nn.Conv2d(3, 4, 3, padding=1)
        self.last = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)
        self.mix = mix
        self.forwards = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.forwards += 1
        y = self.target(x)
        if self.mix == "roll":  # changes the scores of the copies when there are several pictures
            y = y + y.roll(1, 0)
        elif self.mix == "centre":  # leaves the scores of the copies alike: only the gradients mix
            y = y - 0.5 * y.mean(0)
        elif self.mix == "statistics":
            y = F.batch_norm(y, None, None, training=True)
        return self.head(F.relu(self.last(y)).mean((2, 3)))


@pytest.mark.parametrize("mix", ["roll", "centre", "statistics"])
@pytest.mark.parametrize("rows", [1, 2])
def test_networks_that_mix_repeated_rows_are_found_out_once_and_explained_class_by_class(mix: str, rows: int) -> None:
    model, inputs = Mixing(mix).eval(), torch.randn(rows, 3, 8, 8)
    classes = [[0, 1, 2]] * rows
    engine = GradCAM(model, "target")
    together = engine(inputs, classes)
    for k in range(3):
        wanted = by_hand(*full_autograd(model, "target", inputs, [k] * rows))
        np.testing.assert_allclose(together.raw[:, k].numpy(), wanted, rtol=1e-4, atol=1e-6)
    counts = []
    for again in (engine, GradCAM(model, "target")):  # remembered for the model, not only by the engine
        model.forwards = 0
        again(inputs, classes)
        counts.append(model.forwards)
    assert counts == ([1, 1])


def test_networks_that_keep_rows_apart_run_once_for_all_classes_from_the_first_call() -> None:
    model, inputs = Mixing("not at all").eval(), torch.randn(2, 3, 8, 8)
    rows: list[int] = []
    model.head.register_forward_hook(lambda module, args, output: rows.append(len(output)))
    for _ in range(2):
        GradCAM(model, "target")(inputs, [[0, 1, 2]] * 2)
    assert rows == [6, 6]


def test_gradients_of_float16_do_not_vanish_in_the_mean_over_a_large_map() -> None:
    model = Plain().eval()
    with torch.no_grad():
        model.head.weight.mul_(1e-3)
    inputs = torch.randn(1, 3, 256, 256)
    wanted = GradCAM(model, "stem")(inputs, 1)
    result = GradCAM(model.half(), "stem")(inputs, 1)
    assert result.reasons == [None]
    assert (result.raw - wanted.raw).abs().max() <= 0.05 * wanted.raw.abs().max()


def test_equal_scores_put_the_lower_class_first() -> None:
    model = Plain(classes=40).eval()
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.zero_()
    assert GradCAM(model, "last")(torch.randn(1, 3, 16, 16), TopClasses(40)).targets.tolist() == [list(range(40))]


def test_what_is_flat_and_what_is_shown_never_disagree() -> None:
    from camapp.cam.result import blank_reasons, normalised_maps

    raw = torch.full((4, 3, 3), 1e6)
    raw[1, 1, 1] += 0.5  # below the rounding that a map of 1e6 in float32 can be told from
    raw[2, 1, 1] += 2.2
    raw[3, 1, 1] += 1e3
    for size in ((3, 3), (4, 4), (9, 7)):
        maps, shows = normalised_maps(raw, size)
        reasons = blank_reasons(raw, shows, torch.ones(4, dtype=torch.bool), "x")
        for shown, reason in zip(maps, reasons, strict=True):
            assert (reason is None) == bool(shown.any())
        assert str(reasons[0]).startswith("flat")
        assert reasons[3] is None


@pytest.mark.parametrize(
    ("give", "message"),
    [
        (lambda y: y.to(torch.complex64), "complex64"),
        (lambda y: (y.long(), y), "int64"),
        (lambda y: {"a": y.long()}, "mapping with the parts a"),
    ],
)
def test_a_layer_without_a_real_tensor_is_refused(give: object, message: str) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Wrapped(give)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.inner(x)
            return self.inner.net(x)

    with pytest.raises(LayerError, match=rf'"inner" gives a? ?.*{message}.*real numbers'):
        GradCAM(Outer().eval(), "inner")(torch.randn(1, 3, 16, 16), 0)


def test_a_layer_that_gives_a_mapping_is_explained_at_its_first_tensor_or_at_the_part_named() -> None:
    class Outer(nn.Module):
        def __init__(self, give: Callable[[torch.Tensor], Any]) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.inner = nn.Sequential(nn.Conv2d(3, 4, 3), Giving(give))
            self.head = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given = self.inner(x)
            return self.head((given["maps"] if isinstance(given, dict) else given).mean((2, 3)))

    class Giving(nn.Module):
        def __init__(self, give: Callable[[torch.Tensor], Any]) -> None:
            super().__init__()
            self.give = give

        def forward(self, y: torch.Tensor) -> Any:
            return self.give(y)

    inputs = torch.randn(1, 3, 16, 16)
    expected = GradCAM(Outer(lambda y: y).eval(), "inner")(inputs, 0).raw
    given = Outer(lambda y: {"name": "stem", "maps": y, "double": 2 * y}).eval()
    for layer in ("inner", "inner#maps"):
        assert torch.equal(GradCAM(given, layer)(inputs, 0).raw, expected)
    with pytest.raises(LayerError, match="does not depend"):
        GradCAM(given, "inner#double")(inputs, 0)


def test_a_lack_of_memory_for_all_classes_at_once_is_not_remembered() -> None:
    class Short(Plain):
        """Has no room for more than two rows, while ``short`` is set."""

        short = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.last(F.relu(self.norm(self.stem(x))))
            if self.short and len(y) > 2:
                raise torch.OutOfMemoryError("no room")
            return self.head(F.relu(y).mean((2, 3)))

    model, inputs = Short().eval(), torch.randn(1, 3, 16, 16)
    rows: list[int] = []
    model.head.register_forward_hook(lambda module, args, output: rows.append(len(output)))
    first = GradCAM(model, "last")(inputs, [[0, 1, 2]])
    model.short = False
    second = GradCAM(model, "last")(inputs, [[0, 1, 2]])
    assert rows == [1, 3]  # one row at first, since three did not fit; then all three
    torch.testing.assert_close(first.raw, second.raw)


class TwoOutputs(Plain):
    """One output keeps its rows apart, the other is centred over the batch."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = super().forward(x)
        return {"logits": y, "mix": y - 0.5 * y.mean(0, keepdim=True)}


def test_what_is_known_of_one_output_is_not_taken_for_true_of_another() -> None:
    model, inputs = TwoOutputs().eval(), torch.randn(2, 3, 16, 16)
    GradCAM(model, "last", output="logits")(inputs, [[0, 1], [1, 2]])
    for output in ("mix", lambda found: found["mix"]):
        together = GradCAM(model, "last", output=output)(inputs, [[0, 1], [1, 2]]).raw
        for k, classes in enumerate(([0, 1], [1, 2])):
            alone = GradCAM(model, "last", output="mix")(inputs, classes).raw
            torch.testing.assert_close(together[:, k], alone, rtol=1e-5, atol=1e-7)


def test_a_head_that_was_replaced_is_looked_at_anew() -> None:
    class Centred(nn.Module):
        def __init__(self, head: nn.Module) -> None:
            super().__init__()
            self.head = head

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.head(x)
            return y - 0.5 * y.mean(0)

    model, inputs = Plain().eval(), torch.randn(2, 3, 16, 16)
    GradCAM(model, "last")(inputs, [[0, 1], [1, 2]])
    model.head = Centred(model.head)
    together = GradCAM(model, "last")(inputs, [[0, 1], [1, 2]]).raw
    for k, classes in enumerate(([0, 1], [1, 2])):
        torch.testing.assert_close(together[:, k], GradCAM(model, "last")(inputs, classes).raw, rtol=1e-5, atol=1e-7)
