"""FeatureExtractor: what it gives, when it stops, and how it leaves the model."""

from __future__ import annotations

import copy
import gc
import io
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.utils.checkpoint import checkpoint

import camapp
from camapp.errors import LayerError, ModelError, UsageError
from camapp.features import FeatureExtractor
from tests.hooks.test_capture import hooks_on

INPUTS = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


class Small(nn.Module):
    """Convolution, BatchNorm, an in-place ReLU used three times, a branch that never runs, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4, 5, 3, stride=2, padding=1)
        self.conv3 = nn.Conv2d(5, 6, 3, stride=2, padding=1)
        self.unused = nn.Conv2d(3, 3, 1)
        self.fc = nn.Linear(6, 7)
        self.ran: list[str] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.head_input(x))

    def head_input(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.bn(self.conv1(x)))
        self.ran.append("conv1")
        x = self.relu(self.conv2(x))
        self.ran.append("conv2")
        x = self.relu(self.conv3(x))
        self.ran.append("conv3")
        return x.mean((2, 3))


def small() -> Small:
    torch.manual_seed(0)
    model = Small()
    with torch.no_grad():
        model.bn.running_mean.uniform_(-1, 1)
        model.bn.running_var.uniform_(0.5, 2)
    return model.eval()


def by_hand(model: Small, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        conv1 = model.conv1(inputs)
        bn = model.bn(conv1)
        conv2 = model.conv2(bn.relu())
        conv3 = model.conv3(conv2.relu())
        return {
            "conv1": conv1,
            "bn": bn,
            "relu@0": bn.relu(),
            "conv2": conv2,
            "relu@1": conv2.relu(),
            "conv3": conv3,
            "relu@2": conv3.relu(),
            "fc:input": conv3.relu().mean((2, 3)),
        }


def test_each_place_gives_what_the_formula_says_whatever_overwrites_it_later() -> None:
    model = small()
    wanted = by_hand(model, INPUTS)
    features = FeatureExtractor(model, list(wanted), "none")(INPUTS)
    assert list(features) == list(wanted)
    for name, expected in wanted.items():
        assert torch.equal(features[name], expected), name
    assert (features["bn"] < 0).any()  # the in-place ReLU behind it did not reach the copy


def test_a_module_used_three_times_gives_three_captures_and_by_its_name_the_last() -> None:
    features = FeatureExtractor(small(), ["relu@0", "relu@1", "relu@2", "relu"], "none")(INPUTS)
    assert [features[name].shape[1] for name in features] == [4, 5, 6, 6]
    assert torch.equal(features["relu"], features["relu@2"])
    assert features.info["relu"].layer == "relu@2"


def test_the_order_is_that_of_the_request_and_not_of_the_network() -> None:
    assert list(FeatureExtractor(small(), ["conv3", "conv1", "penultimate"])(INPUTS)) == [
        "conv3",
        "conv1",
        "penultimate",
    ]


@pytest.mark.parametrize(
    ("layers", "ran"),
    [
        (["conv1"], []),
        (["relu@0"], []),
        (["conv2:input"], ["conv1"]),
        (["relu@1", "conv1"], ["conv1"]),
        (["relu@2"], ["conv1", "conv2"]),
        (["relu"], ["conv1", "conv2", "conv3"]),  # its last call, of which another picture may have more
        (["relu", "fc:input"], ["conv1", "conv2", "conv3"]),
        (["fc:input"], ["conv1", "conv2", "conv3"]),
    ],
)
def test_nothing_runs_after_the_last_place_in_the_order_of_execution(layers: list[str], ran: list[str]) -> None:
    model = small()
    extractor = FeatureExtractor(model, layers)
    extractor(INPUTS)  # finds the places by a dry run
    model.ran.clear()
    extractor(INPUTS)
    assert model.ran == ran


def test_without_early_exit_the_whole_network_runs_and_the_features_are_the_same() -> None:
    model = small()
    full = FeatureExtractor(model, "conv1", early_exit=False)
    full(INPUTS)
    model.ran.clear()
    whole = full(INPUTS)
    assert model.ran == ["conv1", "conv2", "conv3"]
    assert torch.equal(whole["conv1"], FeatureExtractor(model, "conv1")(INPUTS)["conv1"])


class Catching(Small):
    """Catches what its layers raise, as models with fallbacks do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            x = self.relu(self.conv1(x))
        except Exception:
            x = torch.zeros(len(x), 4, *x.shape[2:])
        try:
            x = self.conv2(x)
        except Exception as error:
            raise ValueError("a fault of the model's own") from error
        return self.fc(self.conv3(x).mean((2, 3)))


def test_a_model_that_catches_exceptions_gives_the_same_features() -> None:
    torch.manual_seed(0)
    model = Catching().eval()
    with torch.no_grad():
        expected = model.conv1(INPUTS)
        deeper = model.conv2(expected.relu())
    for _ in range(2):
        features = FeatureExtractor(model, "conv1", "none")(INPUTS)
        assert torch.equal(features["conv1"], expected)
        again = FeatureExtractor(model, ["conv2"], "none")(INPUTS)
        assert torch.equal(again["conv2"], deeper)
    assert not hooks_on(model)


def test_the_models_own_errors_pass_and_no_hook_is_left() -> None:
    model = small()
    extractor = FeatureExtractor(model, "conv3")
    extractor(INPUTS)
    model.conv2 = nn.Conv2d(9, 5, 1)
    with pytest.raises(RuntimeError, match="channels"):
        extractor(INPUTS)
    assert not hooks_on(model)


def test_features_are_normal_tensors_that_a_head_can_be_trained_on() -> None:
    extractor = FeatureExtractor(small(), "conv3", "flatten")
    with torch.inference_mode():
        inside = extractor(INPUTS.clone())["conv3"]
    features = extractor(INPUTS)["conv3"]
    for one in (inside, features):
        assert not one.is_inference()
        assert not one.requires_grad
    head = nn.Linear(6 * 8 * 8, 3)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.3)
    losses = []
    for _ in range(40):
        loss = nn.functional.cross_entropy(head(features), torch.tensor([0, 2]))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert all(parameter.grad is None for parameter in extractor.backbone.parameters())


def test_not_detached_gradients_flow_as_in_full_autograd() -> None:
    model, reference = small(), small()
    inputs, same = INPUTS.clone().requires_grad_(), INPUTS.clone().requires_grad_()
    features = FeatureExtractor(model, ["bn", "conv3"], "none", detach=False)(inputs)
    (features["bn"].square().sum() + features["conv3"].cos().sum()).backward()
    bn = reference.bn(reference.conv1(same))
    conv3 = reference.conv3(reference.conv2(bn.relu()).relu())
    (bn.square().sum() + conv3.cos().sum()).backward()
    assert torch.equal(inputs.grad, same.grad)
    for (name, one), (_, other) in zip(model.named_parameters(), reference.named_parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.equal(one.grad, other.grad), name


def test_not_detached_the_backbone_is_in_its_own_mode_and_detached_it_predicts_and_stays_as_it_was() -> None:
    model = small().train()
    before = copy.deepcopy(model.state_dict())
    observed = FeatureExtractor(model, "bn", "none")(INPUTS)["bn"]
    assert torch.equal(observed, by_hand(copy.deepcopy(model).eval(), INPUTS)["bn"])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert model.bn.training
    taking_part = FeatureExtractor(model, "bn", "none", detach=False)(INPUTS)["bn"]
    assert taking_part.mean().abs() < 1e-5  # normalised by the batch's own statistics
    assert not torch.equal(model.bn.running_mean, before["bn.running_mean"])


def test_a_part_of_an_output_is_named_by_its_number_its_field_or_its_key() -> None:
    class Pair(NamedTuple):
        hidden: torch.Tensor
        gate: torch.Tensor

    class Giving(nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.kind = kind

        def forward(self, x: torch.Tensor) -> Any:
            one, two = x.flatten(1)[:, :3], x.flatten(1)[:, 3:5]
            made = {"tuple": (one, two), "list": [one, two], "named": Pair(one, two)}
            return made.get(self.kind) or OrderedDict(text="none", hidden=one, gate=two)

    class Holder(nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.inner = Giving(kind)
            self.fc = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            given = self.inner(x)
            return self.fc(given["hidden"] if isinstance(given, dict) else given[0])

    flat = INPUTS.flatten(1)
    for kind, second in (("tuple", "inner#1"), ("list", "inner#1"), ("named", "inner#gate"), ("dict", "inner#gate")):
        features = FeatureExtractor(Holder(kind), ["inner", second])(INPUTS)
        assert torch.equal(features["inner"], flat[:, :3]), kind
        assert torch.equal(features[second], flat[:, 3:5]), kind
    with pytest.raises(LayerError, match="2 parts"):
        FeatureExtractor(Holder("tuple"), "inner#2")(INPUTS)
    with pytest.raises(LayerError, match="text, hidden, gate"):
        FeatureExtractor(Holder("dict"), "inner#nothing")(INPUTS)
    with pytest.raises(LayerError, match="gives str"):
        FeatureExtractor(Holder("dict"), "inner#text")(INPUTS)
    with pytest.raises(LayerError, match="no parts"):
        FeatureExtractor(Holder("tuple"), "fc#1")(INPUTS)


def test_the_info_says_where_features_come_from() -> None:
    vit = timm.create_model("vit_tiny_patch16_224", img_size=(32, 64)).eval()
    features = FeatureExtractor(vit, ["blocks[-2:]", "patch_embed.proj", "penultimate"], "auto")(
        torch.randn(1, 3, 32, 64)
    )
    block, stem = features.info["blocks.11"], features.info["patch_embed.proj"]
    assert (block.layout, block.shape, block.grid, block.stride) == ("NLC", (9, 192), (2, 4), (16.0, 16.0))
    assert (block.prefix, block.pool, block.size, block.kind, block.dtype) == (1, "cls", (192,), "Block", "float32")
    assert (stem.layout, stem.grid, stem.pool, stem.prefix) == ("NCHW", (2, 4), "avg", 0)
    head = features.info["penultimate"]
    assert (head.layer, head.layout, head.pool, head.grid) == ("head:input", "NC", "none", None)


def test_penultimate_is_what_the_classifier_is_given() -> None:
    torch.manual_seed(0)
    for model, classifier in (
        (torchvision.models.resnet18(num_classes=5), "fc"),
        (torchvision.models.vgg11(num_classes=5), "classifier.6"),
        (torchvision.models.squeezenet1_1(num_classes=5), "classifier.1"),
        (timm.create_model("convnext_atto", num_classes=5), "head.fc"),
        (timm.create_model("deit_tiny_distilled_patch16_224", num_classes=5, img_size=64), "head"),
    ):
        model.eval()
        given: list[torch.Tensor] = []
        hook = model.get_submodule(classifier).register_forward_pre_hook(lambda _, args: given.append(args[0]))  # noqa: B023
        inputs = torch.randn(1, 3, 64, 64)
        with torch.no_grad():
            model(inputs)
        hook.remove()
        features = FeatureExtractor(model, "penultimate", "none")(inputs)
        torch.testing.assert_close(features["penultimate"], given[0], rtol=1e-5, atol=1e-6)
        assert features.info["penultimate"].layer == f"{classifier}:input"


@pytest.mark.parametrize(
    "name",
    ["resnet10t", "efficientnet_lite0", "mobilenetv3_small_050", "ghostnet_100", "regnety_002", "densenet121", "vgg11"],
)
def test_a_headless_network_of_timm_has_no_penultimate_layer(name: str) -> None:
    model = timm.create_model(name, num_classes=0).eval()
    with pytest.raises(LayerError, match="ends in no classifier"):
        FeatureExtractor(model)(torch.randn(1, 3, 64, 64))


def test_nor_has_one_of_torchvision_or_of_ones_own_but_a_last_layer() -> None:
    squeezenet, vgg = torchvision.models.squeezenet1_1().eval(), torchvision.models.vgg11().eval()
    squeezenet.classifier, vgg.classifier = nn.Identity(), nn.Identity()
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    for model in (squeezenet, vgg, plain):
        with pytest.raises(LayerError, match="last"):
            FeatureExtractor(model)(torch.randn(1, 3, 64, 64))
    assert FeatureExtractor(plain, "last")(INPUTS).info["last"].layer == "1"


def test_of_several_heads_the_first_is_meant_unless_their_inputs_are_parts() -> None:
    levit = timm.create_model("levit_128s", num_classes=5).eval()
    assert FeatureExtractor(levit)(torch.randn(1, 3, 224, 224)).info["penultimate"].layer == "head:input"
    crossvit = timm.create_model("crossvit_tiny_240", num_classes=5).eval()
    with pytest.raises(LayerError, match=r'"head.0:input", "head.1:input"'):
        FeatureExtractor(crossvit)(torch.randn(1, 3, 240, 240))


@pytest.mark.parametrize(
    ("layer", "says"),
    [("unused", "never ran.*Layers that ran"), ("relu@3", "called 3 time"), ("conv9", "Did you mean conv")],
)
def test_a_layer_that_cannot_be_had_is_an_error_with_a_way_out(layer: str, says: str) -> None:
    with pytest.raises(LayerError, match=says):
        FeatureExtractor(small(), layer)(INPUTS)


def test_fused_attention_hides_its_parts_and_the_error_says_so() -> None:
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32).eval()
    with pytest.raises(LayerError, match=r"fused operation takes its place.*Layers that ran"):
        FeatureExtractor(vit, "blocks.0.attn.attn_drop")(INPUTS)


def test_compiled_and_parallel_models_are_unwrapped_and_scripted_ones_refused() -> None:
    model = small()
    expected = FeatureExtractor(model, "conv2")(INPUTS)["conv2"]
    for wrapped in (torch.compile(model, backend="eager"), nn.DataParallel(model)):
        assert torch.equal(FeatureExtractor(wrapped, "conv2")(INPUTS)["conv2"], expected)
    with pytest.raises(ModelError, match="scripted"):
        FeatureExtractor(torch.jit.trace(nn.Sequential(nn.Conv2d(3, 3, 1)), INPUTS), "0")


def test_rows_that_are_not_pictures_are_refused() -> None:
    swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=56).eval()
    with pytest.raises(LayerError, match="first axis is not the batch"):
        FeatureExtractor(swin, "layers.0.blocks.0.attn", "flatten")(torch.randn(1, 3, 56, 56))


def test_normalised_features_have_length_one_and_half_precision_is_refused_where_it_overflows() -> None:
    model = small()
    plain = FeatureExtractor(model, "conv3")(INPUTS)["conv3"]
    unit = FeatureExtractor(model, "conv3", normalize=True)(INPUTS)["conv3"]
    torch.testing.assert_close(unit, plain / plain.norm(dim=1, keepdim=True))
    half = FeatureExtractor(model, "conv3", dtype="float16")(INPUTS)["conv3"]
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), plain, rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        model.conv3.weight.mul_(1e7)
    with pytest.raises(UsageError, match="65504"):
        FeatureExtractor(model, "conv3", dtype="float16")(INPUTS)


def test_joined_features_lie_one_behind_the_other() -> None:
    features = FeatureExtractor(small(), ["conv1", "conv2"])(INPUTS)
    assert torch.equal(features.joined(), torch.cat([features["conv1"], features["conv2"]], 1))
    assert features.numpy()["conv1"].shape == (2, 4)
    with pytest.raises(LayerError, match="Did you mean conv"):
        features["conv"]


def test_channels_last_moves_features_by_rounding_only_and_a_model_that_views_falls_back() -> None:
    model = torchvision.models.resnet18().eval()
    inputs = torch.randn(2, 3, 64, 64)
    plain = FeatureExtractor(model, ["layer2", "penultimate"])(inputs)
    last = FeatureExtractor(model, ["layer2", "penultimate"], channels_last=True)(inputs)
    for name in plain:
        torch.testing.assert_close(last[name], plain[name], rtol=1e-4, atol=1e-5)
        assert last[name].is_contiguous()

    class Viewing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.fc = nn.Linear(4 * 30 * 30, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.conv(x).view(len(x), -1))

    viewing = Viewing().eval()
    for _ in range(2):
        one = FeatureExtractor(viewing, "fc", channels_last=True)(INPUTS)["fc"]
        assert torch.equal(one, FeatureExtractor(viewing, "fc")(INPUTS)["fc"])


def test_two_extractors_and_foreign_hooks_on_one_model_do_not_disturb_each_other() -> None:
    model = small()
    seen: list[int] = []
    handle = model.conv2.register_forward_hook(lambda *_: seen.append(1))
    one, two = FeatureExtractor(model, "conv1"), FeatureExtractor(model, ["conv1", "conv3"])
    one(INPUTS), two(INPUTS)
    seen.clear()
    assert torch.equal(one(INPUTS)["conv1"], two(INPUTS)["conv1"])
    assert seen == [1]  # of the second, whose forward goes past it
    assert hooks_on(model) == 1
    handle.remove()


def test_threads_take_turns_on_one_model() -> None:
    model = small()
    inputs = [torch.randn(2, 3, 32, 32) for _ in range(6)]
    expected = [FeatureExtractor(model, "conv3")(one)["conv3"] for one in inputs]
    got: dict[int, torch.Tensor] = {}
    extractor = FeatureExtractor(model, "conv3")

    def work(index: int) -> None:
        got[index] = extractor(inputs[index])["conv3"]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(got[index], expected[index]) for index in range(6))


def test_it_is_a_module_that_copies_and_saves() -> None:
    model = small()
    extractor = FeatureExtractor(model, [model.conv2, "penultimate"])
    expected = extractor(INPUTS)
    assert set(extractor.state_dict()) == {f"backbone.{name}" for name in model.state_dict()}
    copied = copy.deepcopy(extractor)
    with torch.no_grad():
        model.conv1.weight.zero_()
    assert torch.equal(copied(INPUTS)["conv2"], expected["conv2"])
    buffer = io.BytesIO()
    torch.save(copied, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    assert torch.equal(loaded(INPUTS)["penultimate"], expected["penultimate"])


def test_it_learns_inside_a_training_loop() -> None:
    torch.manual_seed(0)
    student = nn.Sequential(OrderedDict(features=FeatureExtractor(small(), "penultimate", detach=False)))
    optimiser = torch.optim.SGD(student.parameters(), lr=0.1)
    losses = []
    for _ in range(15):
        loss = student(INPUTS)["penultimate"].square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_two_hundred_calls_leave_no_tensor_behind() -> None:
    extractor = FeatureExtractor(small(), ["conv1", "penultimate"])
    extractor(INPUTS)
    gc.collect()
    gc.disable()
    try:
        before = sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
        for _ in range(200):
            extractor(INPUTS)
        after = sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())
    finally:
        gc.enable()
    assert after <= before


def test_describe_lists_every_layer_and_whether_it_ran() -> None:
    table = FeatureExtractor(small()).describe(INPUTS)
    facts = {one.name: (one.kind, one.shape, one.calls, one.parameters) for one in table}
    assert facts["relu"] == ("ReLU", (6, 8, 8), 3, 0)
    assert facts["unused"] == ("Conv2d", None, 0, 12)
    assert facts["fc"] == ("Linear", (7,), 1, 49)
    lines = str(table).splitlines()
    assert lines[0].split() == ["layer", "class", "shape", "calls", "parameters"]
    assert any(line.split() == ["unused", "Conv2d", "never", "runs", "0", "12"] for line in lines)
    with pytest.raises(UsageError, match="give inputs"):
        FeatureExtractor(small()).describe()


def test_the_last_call_is_meant_also_where_other_pictures_have_more_of_them() -> None:
    class Looping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)
            self.fc = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(int(x[0, 0, 0, 0])):
                x = self.conv(x)
            return self.fc(x.mean((2, 3)))

    model = Looping().eval()
    extractor = FeatureExtractor(model, "conv", "none")
    for times in (2, 4, 1, 3):
        inputs = torch.rand(2, 3, 8, 8)
        inputs[0, 0, 0, 0] = times
        expected = inputs
        with torch.no_grad():
            for _ in range(times):
                expected = model.conv(expected)
        features = extractor(inputs)
        assert torch.equal(features["conv"], expected)
        assert features.info["conv"].layer == ("conv" if times == 1 else f"conv@{times - 1}")


def test_a_part_that_is_recomputed_in_the_backward_gives_exact_gradients() -> None:
    class Checkpointed(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(checkpoint(super().head_input, x, use_reentrant=False))

    def gradients(model: Small, pool: str) -> list[torch.Tensor]:
        features = FeatureExtractor(model, ["conv2", "conv3"], pool, detach=False)(INPUTS)
        features.joined().square().sum().backward()
        return [model.conv1.weight.grad, model.conv3.weight.grad]

    for pool in ("max", "gem", "avg", "none"):
        torch.manual_seed(0)
        ours = Checkpointed().eval()
        plain = Small().eval()
        plain.load_state_dict(ours.state_dict())
        for one, other in zip(gradients(ours, pool), gradients(plain, pool), strict=True):
            torch.testing.assert_close(one, other)


def test_inference_mode_in_the_model_or_around_it_leaves_no_inference_tensor() -> None:
    class Decorated(Small):
        @torch.inference_mode()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    torch.manual_seed(0)
    model = Decorated().eval()
    for pool in ("none", "avg"):
        assert not FeatureExtractor(model, "conv1", pool)(INPUTS)["conv1"].is_inference()
    extractor = FeatureExtractor(small(), "conv1", detach=False)
    with torch.inference_mode():
        taking_part = extractor(INPUTS.clone())["conv1"]
    taking_part.sum().backward()


def test_a_model_compiled_in_place_runs_eagerly_and_stays_compiled() -> None:
    model = small()
    expected = FeatureExtractor(model, "conv2")(INPUTS)["conv2"]
    model.compile(backend="eager")
    model(INPUTS)
    for detach in (True, False):
        assert torch.equal(FeatureExtractor(model, "conv2", detach=detach)(INPUTS)["conv2"].detach(), expected)
    assert model._compiled_call_impl is not None


def test_one_number_a_picture_is_a_feature_of_size_one() -> None:
    class Regressing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.squeeze = nn.Flatten(0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.squeeze(x.mean((1, 2, 3), keepdim=True))

    for pool in ("auto", "none", "flatten", "avg"):
        features = FeatureExtractor(Regressing(), "squeeze", pool)(INPUTS)
        torch.testing.assert_close(features["squeeze"], INPUTS.mean((1, 2, 3))[:, None])
        assert features.joined().shape == (2, 1)


def test_a_mapping_of_tensors_answers_as_a_mapping_does() -> None:
    features = FeatureExtractor(small(), "conv1")(INPUTS)
    assert features.get("nothing", 7) == 7
    assert features == features
    assert features != FeatureExtractor(small(), "conv1")(INPUTS)
    half = FeatureExtractor(small().bfloat16(), "conv1")(INPUTS)
    assert half.numpy()["conv1"].dtype == np.float32


def test_another_input_size_and_another_way_through_the_network_are_found_anew() -> None:
    class Forking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            self.act = nn.ReLU()
            self.fc = nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            maps = self.conv(x)
            if x.mean() > 0:
                maps = self.act(maps)
            return self.fc(self.act(maps).mean((2, 3)))

    model = Forking().eval()
    extractor = FeatureExtractor(model, "act", "none")
    assert extractor(INPUTS.abs()).info["act"].layer == "act@1"
    assert extractor(-INPUTS.abs()).info["act"].layer == "act"
    assert extractor(torch.randn(1, 3, 40, 24))["act"].shape[2:] == (38, 22)


def test_a_loaded_model_needs_no_inputs_to_be_described_and_names_itself_in_faults() -> None:
    model = camapp.load_model("efficientnet_lite0", random_weights=True, device="cpu")
    extractor = FeatureExtractor(model, "last")
    assert len(extractor.describe()) > 100
    assert extractor(torch.zeros(1, 3, 64, 64)).info["last"].shape == (1280, 2, 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [({"pool": "median"}, "median"), ({"dtype": "int8"}, "int8"), ({"layers": []}, "No layer is named")],
)
def test_options_that_there_are_not_are_refused_when_it_is_made(options: dict[str, Any], says: str) -> None:
    with pytest.raises((UsageError, LayerError), match=says):
        FeatureExtractor(small(), **{"layers": "conv1", **options})


def test_inputs_that_are_no_batch_are_refused() -> None:
    with pytest.raises(UsageError, match="unsqueeze"):
        FeatureExtractor(small())(INPUTS[0])
    with pytest.raises(UsageError, match="extract_features"):
        FeatureExtractor(small())("cat.jpg")
