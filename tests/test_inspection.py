"""inspect_pictures: what plain autograd gives too, of the pictures that can be read, on a model left as it was."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import camapp
from camapp.backbones.load import LoadedModel
from camapp.errors import DecodeError, LayerError, StoppedError, TargetError, UsageError
from camapp.hooks.report.records import Snapshot, TensorStatistics
from camapp.images.decode import decode
from camapp.inspection import Inspection, inspect_picture, inspect_pictures
from camapp.resources import resource_folder

ASSETS = resource_folder("assets")
CAT = ASSETS / "chelsea.jpg"


@pytest.fixture(scope="module")
def backbone() -> LoadedModel:
    return camapp.load_model("efficientnet_lite0", device="cpu")


def small_network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(4, 3)
    )


def small(**options: Any) -> LoadedModel:
    return camapp.wrap_model(small_network(), size=24, labels=["cat", "dog", "<b>owl</b>"], **options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pictures = tmp_path / "in"
    pictures.mkdir()
    random = np.random.default_rng(0)
    for number in range(5):
        Image.fromarray(random.integers(0, 256, (30, 40, 3), np.uint8)).save(pictures / f"{number}.png")
    return pictures


def figures(found: Inspection | Snapshot, of: Any) -> dict[str, TensorStatistics]:
    snapshot = found.snapshot if isinstance(found, Inspection) else found
    return {one.name: one for one in snapshot.of(of)}


def by_autograd(model: LoadedModel, names: list[str], paths: list[Path], target: int | None) -> dict[str, Any]:
    """Outputs, their gradients and the parameters' gradients, by torch alone."""
    inputs = torch.cat([model.prepare(decode(path))[0] for path in paths])
    outputs: dict[str, torch.Tensor] = {}
    handles = [
        model.module.get_submodule(name).register_forward_hook(
            lambda _m, _i, out, name=name: outputs.update({name: out})
        )
        for name in names
    ]
    model.module.eval()
    logits = model.module(inputs)
    for handle in handles:
        handle.remove()
    scores = logits.amax(1) if target is None else logits[:, target]
    parameters = dict(model.module.named_parameters())
    gradients = torch.autograd.grad(scores.sum(), [*outputs.values(), *parameters.values()])
    return {
        "scores": scores.tolist(),
        "activation": {name: out.detach().double() for name, out in outputs.items()},
        "gradient": {name: one.double() for name, one in zip(outputs, gradients[: len(outputs)], strict=True)},
        "parameter gradient": {
            name: one.double() for name, one in zip(parameters, gradients[len(outputs) :], strict=True)
        },
    }


def test_the_figures_of_the_embedded_model_are_those_of_plain_autograd(backbone: LoadedModel) -> None:
    names = ["conv_stem", "blocks.3.1.conv_dw", "conv_head", "classifier"]
    paths = [CAT, ASSETS / "coffee.jpg"]
    expected = by_autograd(backbone, names, paths, None)
    found = inspect_pictures(backbone, paths)
    assert [one.score for one in found.pictures] == pytest.approx(expected["scores"], rel=1e-4)
    assert [one.target for one in found.pictures][1] == "espresso"
    assert found.snapshot.loss == pytest.approx(sum(expected["scores"]), rel=1e-4)
    for of in ("activation", "gradient"):
        seen = figures(found, of)
        for name in names:
            oracle = expected[of][name]
            assert seen[name].shape == tuple(oracle.shape)
            assert seen[name].norm == pytest.approx(float(oracle.norm()), rel=1e-3), (of, name)
            assert seen[name].abs_max == pytest.approx(float(oracle.abs().max()), rel=1e-3), (of, name)
            assert seen[name].zero_share == pytest.approx(float((oracle == 0).double().mean()), abs=1e-3)
            assert seen[name].nonfinite == 0
    for name, oracle in expected["parameter gradient"].items():
        assert figures(found, "parameter gradient")[name].norm == pytest.approx(float(oracle.norm()), rel=1e-2), name


def test_a_healthy_model_gets_no_verdict_though_a_class_reaches_one_row_of_its_head(backbone: LoadedModel) -> None:
    found = inspect_pictures(backbone, CAT)
    assert figures(found, "parameter gradient")["classifier.bias"].zero_share > 0.99
    assert found.snapshot.verdicts == ()
    assert "nothing wrong was found" in str(found)


def test_a_dead_layer_is_found(folder: Path) -> None:
    model = small()
    with torch.no_grad():
        model.module[0].bias -= 100  # type: ignore[index, operator]
    found = inspect_pictures(model, folder)
    assert [(one.name, one.what) for one in found.snapshot.verdicts if one.of == "activation"] == [("1", "dead")]
    row = next(line for line in str(found).splitlines() if line.startswith("1 "))
    assert row.endswith("<- dead")


def test_each_picture_is_scored_for_its_own_class_or_for_the_one_that_is_named(folder: Path) -> None:
    model = small()
    paths = sorted(folder.iterdir())
    for target, index in ((None, None), ("dog", 1), (2, 2)):
        expected = by_autograd(model, ["0"], paths, index)
        found = inspect_pictures(model, folder, target=target)
        assert [one.score for one in found.pictures] == pytest.approx(expected["scores"], rel=1e-5)
        assert figures(found, "gradient")["0"].norm == pytest.approx(float(expected["gradient"]["0"].norm()), rel=1e-5)
    assert {one.target for one in inspect_pictures(model, folder, target="dog").pictures} == {"dog"}


def test_any_function_of_the_scores_can_be_sent_back(folder: Path) -> None:
    def margin(row: torch.Tensor) -> torch.Tensor:
        return row[0] - row[1]

    found = inspect_pictures(small(), folder, target=margin)
    bias = figures(found, "parameter gradient")["5.bias"]
    assert (bias.norm, bias.mean) == (pytest.approx(5 * math.sqrt(2)), pytest.approx(0))
    assert {one.target for one in found.pictures} == {"margin"}


def test_the_first_pictures_are_taken_and_it_is_said_of_how_many(folder: Path) -> None:
    found = inspect_pictures(small(), folder, batch_size=2)
    assert [one.name for one in found.pictures] == ["0.png", "1.png"]
    assert found.found == 5
    assert f"Sequential on 2 of 5 pictures, sum of the scores {found.snapshot.loss:.4g}: " in str(found)
    assert figures(found, "activation")["0"].shape == (2, 4, 22, 22)
    assert "on 5 pictures" in str(inspect_pictures(small(), folder))
    assert "on 1 picture, score" in str(inspect_pictures(small(), folder / "0.png"))


def test_broken_pictures_are_named_and_the_others_inspected(folder: Path) -> None:
    whole = inspect_pictures(small(), [folder / "0.png", folder / "2.png"])
    (folder / "1.png").write_bytes(b"no picture")
    found = inspect_pictures(small(), folder, batch_size=3)
    assert [name for name, _ in found.failures] == ["1.png"]
    assert [one.name for one in found.pictures] == ["0.png", "2.png"]
    assert figures(found, "gradient")["0"].norm == pytest.approx(figures(whole, "gradient")["0"].norm, rel=1e-6)
    assert "1.png: cannot be read: " in str(found)
    for path in folder.iterdir():
        path.write_bytes(b"no picture")
    with pytest.raises(DecodeError, match=r"None of 5 picture\(s\) can be read\. The first, 0\.png: "):
        inspect_pictures(small(), folder)


def test_the_model_is_left_as_it_was(folder: Path) -> None:
    model = small()
    model.module.train()
    before = {name: one.clone() for name, one in model.module.state_dict().items()}
    state = torch.get_rng_state()
    inspect_pictures(model, folder)
    assert model.module.training
    assert all(torch.equal(one, before[name]) for name, one in model.module.state_dict().items())
    assert all(one.grad is None for one in model.module.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(one._forward_hooks or one._backward_hooks for one in model.module.modules())


@pytest.mark.parametrize("frozen", [("0",), ("0", "5")], ids=["a frozen backbone", "a frozen network"])
def test_gradients_pass_through_frozen_layers(folder: Path, frozen: tuple[str, ...]) -> None:
    expected = figures(inspect_pictures(small(), folder), "gradient")
    model = small()
    for name in frozen:
        model.module.get_submodule(name).requires_grad_(False)
    found = inspect_pictures(model, folder)
    for name in ("0", "1", "5"):
        assert figures(found, "gradient")[name].norm == pytest.approx(expected[name].norm, rel=1e-6)
    assert not [name for name in figures(found, "parameter gradient") if name.split(".")[0] in frozen]


def test_inspecting_works_where_gradients_are_off(folder: Path) -> None:
    model = small()
    expected = inspect_pictures(model, folder)
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            found = inspect_pictures(model, folder)
        assert figures(found, "gradient")["0"].norm == pytest.approx(figures(expected, "gradient")["0"].norm, rel=1e-6)


def test_layers_are_chosen_by_patterns(folder: Path) -> None:
    found = inspect_pictures(small(), folder, layers=["0", "[-1:]"])
    assert list(figures(found, "activation")) == ["0", "5"]
    assert found.settings["layers"] == ["0", "[-1:]"]
    convolutions = inspect_pictures(small(), folder, layers=nn.Conv2d)
    assert list(figures(convolutions, "gradient")) == ["0"]
    assert convolutions.settings["layers"] == ["Conv2d"]
    with pytest.raises(LayerError, match='No layer "conv9"'):
        inspect_pictures(small(), folder, layers="conv9")


def test_a_class_that_there_is_not_is_told_before_a_picture_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r'no class "dgo"\. Did you mean dog'):
        inspect_pictures(small(), tmp_path / "missing", target="dgo")


def test_options_that_cannot_be_meant_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="batch_size = 0"):
        inspect_pictures(small(), folder, batch_size=0)
    with pytest.raises(UsageError, match=r"model is a Sequential.*camapp\.Inspector"):
        inspect_pictures(small_network(), folder)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="zoom"):
        inspect_pictures(small(), folder, fit="zoom")  # type: ignore[arg-type]


def test_an_inspection_saves_itself_and_reads_back(folder: Path, tmp_path: Path) -> None:
    (folder / "4.png").write_bytes(b"")
    found = inspect_pictures(small(), folder)
    paths = found.save(tmp_path / "out")
    assert [path.name for path in paths] == ["snapshot.json", "table.txt", "depth.png"]
    facts = json.loads(paths[0].read_text())
    assert facts["model"] == "Sequential"
    assert facts["found"] == 5
    assert [one["name"] for one in facts["pictures"]] == ["0.png", "1.png", "2.png", "3.png"]
    assert [one["picture"] for one in facts["failures"]] == ["4.png"]
    assert facts["settings"]["target"] == "each picture's likeliest class"
    assert facts["versions"]["camapp"] == camapp.__version__
    assert Snapshot.from_dict(facts).to_dict() == found.snapshot.to_dict()
    assert paths[1].read_text() == f"{found}\n"
    with Image.open(paths[2]) as picture:
        assert picture.format == "PNG"
    with pytest.raises(UsageError, match="holds a report already"):
        found.save(tmp_path / "out")
    assert found.save(tmp_path / "out", overwrite=True) == paths


def test_a_network_of_nan_is_inspected_marked_and_saved_as_strict_json(folder: Path, tmp_path: Path) -> None:
    model = small()
    with torch.no_grad():
        model.module[5].weight[0, 0] = math.nan  # type: ignore[index]
    found = inspect_pictures(model, folder, target="cat")
    assert math.isnan(found.pictures[0].score)
    path = found.save(tmp_path / "out")[0]

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    facts = json.loads(path.read_text(), parse_constant=refuse)
    assert facts["pictures"][0]["score"] == facts["loss"] == "NaN"
    assert figures(found, "activation")["5"].nonfinite == 5
    assert "nan: " in str(found)


def test_a_notebook_gets_the_picture_and_the_names_escaped(folder: Path) -> None:
    page = inspect_pictures(small(), folder, target=2)._repr_html_()
    assert "&lt;b&gt;owl&lt;/b&gt;" in page
    assert "<b>owl" not in page
    assert 'src="data:image/png;base64,iVBOR' in page
    assert page.count("<table") == 2


def test_random_weights_are_said_everywhere(folder: Path) -> None:
    model = camapp.load_model("mobilenet_v3_large", random_weights=True, device="cpu")
    found = inspect_pictures(model, folder / "0.png", layers="classifier.*")
    assert "RANDOM WEIGHTS mobilenet_v3_large on 1 picture" in str(found)
    assert "RANDOM WEIGHTS" in repr(found)
    assert "RANDOM WEIGHTS" in found._repr_html_()
    assert found.to_dict()["weights"]["random"] is True


def test_a_picture_that_is_decoded_already_gives_the_figures_of_its_file(backbone: LoadedModel) -> None:
    one = inspect_picture(backbone, decode(CAT), target="tabby", layers="blocks.6*")
    same = inspect_pictures(backbone, CAT, target="tabby", layers="blocks.6*")
    assert one.to_dict() == {**same.to_dict(), "settings": {**same.settings, "batch_size": 1}}
    with pytest.raises(TargetError):
        inspect_picture(backbone, decode(CAT), target="no such class")


@pytest.mark.parametrize("stopped_at", ["the forward", "the backward"])
def test_an_inspection_stops_between_its_passes_and_leaves_the_model_as_it_was(stopped_at: str) -> None:
    model, stop, ran = small(), threading.Event(), []
    ours = [
        model.module.register_forward_hook(lambda *_: ran.append("forward")),
        model.module.register_forward_hook(lambda *_: stop.set()),
        model.module[0].register_full_backward_hook(lambda *_: ran.append("backward")),
    ]
    if stopped_at == "the forward":
        stop.set()
    with pytest.raises(StoppedError, match="Stopped as asked"):
        inspect_picture(model, decode(CAT), cancel=stop)
    assert ran == ([] if stopped_at == "the forward" else ["forward"])
    for hook in ours:
        hook.remove()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.module.modules())
    with pytest.raises(StoppedError, match="Not done within 1e-09 s"):
        inspect_picture(model, decode(CAT), deadline=1e-9)
