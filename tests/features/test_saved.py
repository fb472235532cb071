"""The file of a probe: written, opened as a model, and refused where it is not what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import camapp
from camapp.backbones.load import LoadedModel
from camapp.errors import ModelError, UsageError, WeightsError
from camapp.features import FeatureExtractor
from camapp.features.probe import fit_probe
from camapp.features.saved import ProbeSettings, headed_model, load_probe, save_probe
from camapp.loading import load_model


@pytest.fixture(scope="module")
def backbone() -> LoadedModel:
    return load_model(device="cpu")


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    return torch.randn(6, 3, 224, 224, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module", params=["linear", "ridge", "knn"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def trained(backbone: LoadedModel, pictures: torch.Tensor, kind: str, settings: ProbeSettings) -> Any:
    features = FeatureExtractor(backbone, settings.layers, settings.pool, normalize=settings.normalize)(pictures)
    return fit_probe(features.joined().numpy(), ["a", "b", "c"] * 2, kind=kind)


def test_a_saved_probe_opens_as_a_model_with_the_same_scores(
    backbone: LoadedModel, pictures: torch.Tensor, kind: str, tmp_path: Path
) -> None:
    settings = ProbeSettings(("blocks.4", "penultimate"), "avg", normalize=True)
    probe = trained(backbone, pictures, kind, settings)
    path = save_probe(tmp_path / "mine.camapp", probe, backbone, settings, {"pictures": 6})
    model = load_model(path, device="cpu")
    assert model.labels == ("a", "b", "c")
    assert model.name == "mine"
    features = FeatureExtractor(backbone, settings.layers, "avg", normalize=True)(pictures)
    with torch.no_grad():
        scores = model.module(pictures)
    joined = features.joined().numpy()
    if kind == "knn":  # votes become logits
        np.testing.assert_allclose(scores.softmax(1).numpy(), probe.probabilities(joined), atol=1e-4)
    else:
        np.testing.assert_allclose(scores.numpy(), probe.scores(joined), rtol=1e-4, atol=1e-5)
    same = headed_model(backbone, probe, settings, "mine")
    with torch.no_grad():
        assert torch.equal(same.module(pictures), scores)


def test_the_file_is_safetensors_with_toml_inside_and_no_pickle(
    backbone: LoadedModel, pictures: torch.Tensor, tmp_path: Path
) -> None:
    path = save_probe(
        tmp_path / "mine.camapp", trained(backbone, pictures, "linear", ProbeSettings()), backbone, ProbeSettings(), {}
    )
    with safe_open(path, "pt") as file:
        assert set(file.keys()) == {"weight", "bias"}
        text = file.metadata()["camapp"]
    assert 'name = "efficientnet_lite0"' in text
    assert backbone.weights.sha256 in text
    assert b"\x80\x04" not in path.read_bytes()[:16]


def test_its_classes_are_explained_at_the_backbones_own_layer(
    backbone: LoadedModel, pictures: torch.Tensor, tmp_path: Path
) -> None:
    probe = trained(backbone, pictures, "linear", ProbeSettings())
    path = save_probe(tmp_path / "mine.camapp", probe, backbone, ProbeSettings(), {})
    picture = np.random.default_rng(0).integers(0, 256, (80, 100, 3), np.uint8)
    explanation = camapp.explain(str(path), picture, targets="b")
    assert explanation.layer == "backbone.bn2"
    assert explanation.classes[0].label == "b"
    imagenet = camapp.explain(backbone, picture)
    assert not np.allclose(explanation.model_maps[0], imagenet.model_maps[0], atol=0.05)


def test_nothing_is_overwritten_without_being_asked(
    backbone: LoadedModel, pictures: torch.Tensor, tmp_path: Path
) -> None:
    probe = trained(backbone, pictures, "linear", ProbeSettings())
    path = tmp_path / "mine.camapp"
    path.write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists"):
        save_probe(path, probe, backbone, ProbeSettings(), {})
    assert path.read_bytes() == b"precious"
    save_probe(path, probe, backbone, ProbeSettings(), {}, overwrite=True)
    assert len(path.read_bytes()) > 1000
    assert [one.name for one in tmp_path.iterdir()] == ["mine.camapp"]


@pytest.mark.parametrize(("name", "says"), [("mine.pth", "does not end in"), ("mine", "does not end in")])
def test_a_name_that_cannot_be_is_refused(
    name: str, says: str, backbone: LoadedModel, pictures: torch.Tensor, tmp_path: Path
) -> None:
    probe = trained(backbone, pictures, "linear", ProbeSettings())
    with pytest.raises(UsageError, match=says):
        save_probe(tmp_path / name, probe, backbone, ProbeSettings(), {})
    assert list(tmp_path.iterdir()) == []


def test_a_network_without_a_card_cannot_be_named_by_a_file(pictures: torch.Tensor, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    mine = camapp.wrap_model(network, size=32)
    features = FeatureExtractor(mine)(pictures[..., :32, :32])["penultimate"].numpy()
    probe = fit_probe(features, ["a", "b", "c"] * 2)
    with pytest.raises(UsageError, match="no model card"):
        save_probe(tmp_path / "mine.camapp", probe, mine, ProbeSettings(), {})
    assert headed_model(mine, probe, ProbeSettings(), "mine").labels == ("a", "b", "c")


def header(path: Path) -> tuple[dict[str, torch.Tensor], str]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()["camapp"]  # noqa: SIM118


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("format = 1", "format = 99", 1), "format 99"),
        (lambda text: "no = toml = at all", "no TOML"),
        (lambda text: text.replace('kind = "linear"', 'kind = "magic"'), "damaged"),
        (lambda text: text.replace("[card.input]", "[card.inputs]"), "card|input"),
        (lambda text: text.replace("[features]", "[other]"), "features"),
        (lambda text: text.replace('[backbone]\nweights = "', '[backbone]\nrandom = 7\nother = "'), "damaged"),
    ],
)
def test_a_header_that_says_something_else_is_refused(
    change: Any, says: str, backbone: LoadedModel, pictures: torch.Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "mine.camapp"
    save_probe(path, trained(backbone, pictures, "linear", ProbeSettings()), backbone, ProbeSettings(), {})
    tensors, text = header(path)
    assert change(text) != text
    save_file(tensors, path, {"camapp": change(text)})
    with pytest.raises(ModelError, match=says):
        load_probe(path)


def test_a_head_of_another_size_or_without_its_tensors_is_refused(
    backbone: LoadedModel, pictures: torch.Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "mine.camapp"
    save_probe(path, trained(backbone, pictures, "linear", ProbeSettings()), backbone, ProbeSettings(), {})
    tensors, text = header(path)
    for wrong in ({"weight": tensors["weight"]}, {**tensors, "weight": tensors["weight"][:2].contiguous()}):
        save_file(wrong, path, {"camapp": text})
        with pytest.raises(ModelError, match="damaged"):
            load_probe(path)


def test_other_weights_than_it_was_trained_on_are_refused(
    backbone: LoadedModel, pictures: torch.Tensor, tmp_path: Path
) -> None:
    path = tmp_path / "mine.camapp"
    save_probe(path, trained(backbone, pictures, "linear", ProbeSettings()), backbone, ProbeSettings(), {})
    tensors, text = header(path)
    before, _, after = text.partition("[backbone]")
    save_file(tensors, path, {"camapp": before + "[backbone]" + after.replace(str(backbone.weights.sha256), "0" * 64)})
    with pytest.raises(WeightsError, match="trained on other weights"):
        load_probe(path)


@pytest.mark.parametrize("content", [b"", b"not a model", b"PAR1" + bytes(100)])
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.camapp"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="damaged, or no classifier"):
        load_model(path)


def test_a_probe_on_a_card_of_ones_own_moves_with_its_weights_and_names_no_folder(
    pictures: torch.Tensor, tmp_path: Path
) -> None:
    home = tmp_path / "secret_home"
    home.mkdir()
    module = timm.create_model("resnet10t", num_classes=3)
    save_file(module.state_dict(), home / "mine.safetensors")
    (home / "names.txt").write_text("x\ny\nz\n")
    (home / "card.toml").write_text(
        'name = "mine"\ntitle = "Mine"\narchitecture = "timm:resnet10t"\n'
        '[weights]\nkind = "file"\nfile = "mine.safetensors"\n'
        '[input]\nsize = 64\ninterpolation = "bilinear"\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n'
        '[labels]\nfile = "names.txt"\ncount = 3\n'
    )
    mine = load_model(home / "card.toml", device="cpu")
    small = pictures[..., :64, :64]
    probe = trained(mine, small, "linear", ProbeSettings())
    path = save_probe(home / "probe.camapp", probe, mine, ProbeSettings(), {})
    with torch.no_grad():
        expected = load_model(path, device="cpu").module(small)
    assert b"secret_home" not in path.read_bytes()
    away = tmp_path / "away"
    away.mkdir()
    for name in ("probe.camapp", "mine.safetensors"):
        (home / name).rename(away / name)
    with torch.no_grad():
        assert torch.equal(load_model(away / "probe.camapp", device="cpu").module(small), expected)
    (away / "mine.safetensors").unlink()
    with pytest.raises(WeightsError, match="missing"):
        load_model(away / "probe.camapp", device="cpu")


def test_a_missing_file_and_plain_safetensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no file"):
        load_model(tmp_path / "mine.camapp")
    path = tmp_path / "features.camapp"
    save_file({"penultimate": torch.zeros(3, 4)}, path)
    with pytest.raises(ModelError, match="no classifier trained by camapp"):
        load_model(path)


@pytest.mark.parametrize("name", ["features.parquet", "features.safetensors", "weights.pth"])
def test_a_file_of_features_or_weights_is_no_model(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"features or weights")
    with pytest.raises(ModelError, match=r"is a file, but no model.*\.toml.*\.camapp"):
        load_model(str(tmp_path / name))
