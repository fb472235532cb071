"""Model cards: what ships, what users add, and what a wrong card is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from torch import nn
from torchvision import models

from camapp.backbones.cards import ModelCard, find_card, list_cards, read_card
from camapp.errors import ModelError
from camapp.resources import resource_folder

SHIPPED = list_cards()

MINE = """
name = "mine"
title = "My classifier"
architecture = "torchvision:resnet18"
layer = "layer4"

[weights]
kind = "file"
file = "weights/mine.safetensors"

[input]
size = [96, 128]
interpolation = "bilinear"
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]

[labels]
file = "names.txt"
count = 3
"""


@pytest.fixture(autouse=True)
def _no_folder_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAMAPP_MODELS", raising=False)


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def on_no_device(card: ModelCard) -> nn.Module:
    """The architecture without memory for its weights: names and shapes only."""
    library, _, name = card.architecture.partition(":")
    with torch.device("meta"):
        return timm.create_model(name) if library == "timm" else models.get_model(name, weights=None)


def test_the_embedded_models_come_first() -> None:
    names = [card.name for card in SHIPPED]
    assert names[:3] == ["efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"]
    assert sorted(names[3:]) == [
        "convnext_tiny",
        "densenet121",
        "efficientnet_b0",
        "mobilenet_v3_large",
        "resnet50",
        "swin_t",
        "vgg16",
        "vit_b_16",
        "vit_small_patch16_224",
    ]


@pytest.mark.parametrize("card", SHIPPED, ids=lambda card: card.name)
def test_a_shipped_card_is_true_to_its_architecture(card: ModelCard) -> None:
    module = on_no_device(card)
    assert card.path is not None
    assert card.path.stem == card.name
    assert card.title
    assert card.summary
    assert card.licence
    assert card.layer in dict(module.named_modules())
    assert card.parameters == sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    "card", [card for card in SHIPPED if card.weights.kind == "torchvision"], ids=lambda card: card.name
)
def test_a_torchvision_card_repeats_what_torchvision_says_of_the_weights(card: ModelCard) -> None:
    weights = models.get_weight(card.weights.name)
    assert weights in models.get_model_weights(card.architecture.removeprefix("torchvision:"))
    assert card.parameters == weights.meta["num_params"]
    assert card.weights.megabytes == weights.meta["_file_size"]
    assert f"{weights.meta['_metrics']['ImageNet-1K']['acc@1']:.1f} %" in card.summary


def test_listing_cards_imports_no_torch() -> None:
    code = "import sys; from camapp.backbones.cards import list_cards; list_cards(); print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_a_users_card_is_read_and_its_paths_count_from_its_folder(tmp_path: Path) -> None:
    card = read_card(write(tmp_path, MINE))
    assert card.weights.file == tmp_path / "weights/mine.safetensors"
    assert card.labels.file == tmp_path / "names.txt"
    assert card.path == tmp_path / "mine.toml"
    assert card.preprocessing.size == (96, 128)
    assert card.preprocessing.resize == 128  # covers the longer side
    assert card.preprocessing.fit == "crop"


def test_a_users_folder_adds_cards_after_the_shipped_ones(tmp_path: Path) -> None:
    write(tmp_path, MINE)
    assert [card.name for card in list_cards(tmp_path)] == [card.name for card in SHIPPED] + ["mine"]


def test_the_environment_names_the_users_folder_and_an_argument_overrides_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, MINE)
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("CAMAPP_MODELS", str(tmp_path))
    assert find_card("mine").title == "My classifier"
    with pytest.raises(ModelError, match='No model "mine"'):
        find_card("mine", tmp_path / "other")


def test_a_users_card_takes_the_place_of_a_shipped_one(tmp_path: Path) -> None:
    write(tmp_path, MINE.replace('"mine"', '"resnet50"'))
    names = [card.name for card in list_cards(tmp_path)]
    assert names == [card.name for card in SHIPPED]
    assert find_card("resnet50", tmp_path).title == "My classifier"


def test_a_card_is_found_by_the_path_of_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, MINE)
    assert find_card(path) == find_card(str(path)) == read_card(path)
    shipped = resource_folder("models") / "vgg16.toml"
    assert find_card(shipped).name == "vgg16"


def test_an_unknown_name_is_told_the_close_ones() -> None:
    with pytest.raises(ModelError, match=r'No model "resnet5"\. Did you mean resnet50.*camapp models lists them'):
        find_card("resnet5")


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("size = [96, 128]", 'size = "224"', "input.size = '224', expected the input's side in pixels"),
        ("size = [96, 128]", "size = [0, 128]", "input.size.0 = 0, expected"),
        ("size = [96, 128]", "size = [96, 128, 3]", "input.size"),
        ("size = [96, 128]", "", "input.size is missing, expected the input's side in pixels"),
        ("[0.485, 0.456, 0.406]", "[123.7, 116.3, 103.5]", "input.mean.0 = 123.7, expected .* on the 0-1 scale"),
        ("[0.229, 0.224, 0.225]", "[0.229, 0.224, 0.0]", "input.std.2 = 0.0, expected .* above 0"),
        ('"bilinear"', '"cubic"', "input.interpolation = 'cubic', expected one of nearest, bilinear, bicubic, lanczos"),
        ("[input]", '[input]\nfit = "pad"', "input.fit = 'pad', expected one of crop, letterbox, stretch"),
        ("[input]", "[inputs]", r'"inputs" is not a field of a card \(did you mean input'),
        ('kind = "file"', 'kind = "url"', 'weights.kind = \'url\', expected "package", "torchvision"'),
        ('kind = "file"', "", 'weights.kind is missing, expected "package", "torchvision", "timm" or "file"'),
        ("[weights]", "weights = 3\n[other]", "weights = 3, expected a section with kind"),
        ('kind = "file"', 'kind = "timm"', "weights.tag is missing, expected a pretrained tag of timm"),
        ('file = "weights', 'fiel = "weights', r'"weights.fiel" is not a field of a card \(did you mean file'),
        ("mine.safetensors", "mine.onnx", r"weights.file = .*mine.onnx', expected a checkpoint \(.safetensors, .pth"),
        ("[weights]", '[weights]\nsha256 = "12ab"', "weights.sha256 = '12ab', expected the file's SHA-256, 64 hex"),
        ('"torchvision:resnet18"', '"resnet18"', "architecture = 'resnet18', expected \"timm:NAME\""),
        ('title = "My classifier"\n', "", "title is missing, expected the name as people write it"),
        ('name = "mine"', 'name = "a/b"', "name = 'a/b', expected a name of letters"),
        ('file = "names.txt"\n', "", 'labels: expected either source = "imagenet" or file'),
        ('file = "names.txt"', 'source = "imagenet"', "labels: count = 3: ImageNet has 1000 classes"),
        ("count = 3", "count = 0", "labels.count = 0, expected the number of classes"),
        ("count = 3", "count = ", "is not valid TOML"),
    ],
)
def test_a_wrong_card_is_told_the_file_the_field_and_what_was_expected(
    tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    assert right in MINE
    path = write(tmp_path, MINE.replace(right, wrong))
    with pytest.raises(ModelError, match=told) as error:
        read_card(path)
    assert str(path) in str(error.value)


def test_weights_of_another_library_than_the_architectures_are_refused(tmp_path: Path) -> None:
    text = MINE.replace('kind = "file"', 'kind = "timm"').replace('file = "weights/mine.safetensors"', 'tag = "in1k"')
    with pytest.raises(
        ModelError, match=r'weights.kind = "timm" does not go with architecture = "torchvision:resnet18"'
    ):
        read_card(write(tmp_path, text))


def test_missing_and_unreadable_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Cannot read the model card .*none\.toml"):
        find_card(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes('title = "caf\xe9"'.encode("latin-1"))
    with pytest.raises(ModelError, match=r"latin\.toml is not valid TOML"):
        read_card(tmp_path / "latin.toml")
    with pytest.raises(ModelError, match="nowhere does not exist"):
        list_cards(tmp_path / "nowhere")


def test_two_cards_of_one_name_in_a_folder_are_refused(tmp_path: Path) -> None:
    write(tmp_path, MINE, "a.toml")
    write(tmp_path, MINE, "b.toml")
    with pytest.raises(ModelError, match=r'Two model cards have the name "mine": .*a\.toml and .*b\.toml'):
        list_cards(tmp_path)


def test_a_card_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        SHIPPED[0].name = "other"
    assert len({*SHIPPED, *list_cards()}) == len(SHIPPED)  # equal and hashable
