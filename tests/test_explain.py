"""One picture in, an Explanation out: the embedded model on a real picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import camapp
from camapp.cam import GradCAM
from camapp.errors import LayerError, ModelError, TargetError, UsageError
from camapp.images.render import overlay
from camapp.resources import resource_folder

CATS = {281, 282, 285}  # tabby, tiger cat, Egyptian cat
CHELSEA = resource_folder("assets") / "chelsea.jpg"


@pytest.fixture(scope="module")
def model() -> camapp.LoadedModel:
    return camapp.load_model("efficientnet_lite0", device="cpu")


@pytest.fixture(scope="module")
def cat(model: camapp.LoadedModel) -> camapp.Explanation:
    return camapp.explain(model, CHELSEA, top_k=2)


def test_the_cat_is_a_cat_and_the_peak_lies_on_its_face(cat: camapp.Explanation) -> None:
    assert cat.predictions[0].index in CATS
    assert [one.index for one in cat.classes] == [one.index for one in cat.predictions[:2]]
    assert cat.reasons == (None, None)
    for k in range(2):
        x, y = cat.peak(k)
        assert 90 < x < 360, "the face spans x from 90 to 360 of 451"
        assert 20 < y < 290


def test_maps_lie_on_the_picture_at_its_own_size(cat: camapp.Explanation) -> None:
    assert cat.maps.shape == (2, 300, 451)
    assert cat.maps.dtype == np.float32
    assert cat.maps.min() == 0
    assert 0.95 < cat.maps.max() <= 1  # the model-size peak falls between original pixels
    rows, columns = cat.geometry.seen_pixels
    unseen = np.ones((300, 451), bool)
    unseen[rows, columns] = False
    assert unseen.any()
    assert not cat.maps[:, unseen].any()


def test_it_is_the_engines_map_of_the_same_class(model: camapp.LoadedModel, cat: camapp.Explanation) -> None:
    inputs, geometry, _ = model.prepare(camapp.decode(CHELSEA))
    result = GradCAM(model)(inputs, cat.classes[1].index)
    np.testing.assert_allclose(cat.model_maps[1], result.maps[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(cat.raw[1], result.raw[0].numpy(), atol=1e-6)
    assert geometry == cat.geometry
    probabilities = torch.softmax(model.module(inputs)[0].detach(), 0)
    for one in cat.predictions:
        assert one.probability == pytest.approx(float(probabilities[one.index]), abs=1e-5)
        assert one.label == model.labels[one.index]


def test_at_the_last_map_the_sum_of_the_raw_map_and_the_bias_is_the_logit(
    model: camapp.LoadedModel, cat: camapp.Explanation
) -> None:
    for k, one in enumerate(cat.classes):
        bias = float(model.module.classifier.bias[one.index].detach())  # type: ignore[union-attr, index]
        assert cat.raw[k].astype(np.float64).sum() + bias == pytest.approx(one.logit, abs=2e-5)


def test_a_flipped_picture_has_a_flipped_map_nearly(model: camapp.LoadedModel, cat: camapp.Explanation) -> None:
    """Where the overlay lies is right on both sides: a shift of the way back would show twice here."""
    flipped = camapp.explain(
        model, np.ascontiguousarray(camapp.decode(CHELSEA).rgb[:, ::-1]), targets=cat.classes[0].index
    )
    both = np.corrcoef(flipped.maps[0][:, ::-1].ravel(), cat.maps[0].ravel())[0, 1]
    assert both > 0.9


@pytest.mark.parametrize("source", ["path", "text", "bytes", "file", "pillow", "array", "picture"])
def test_every_kind_of_source_gives_the_same_map(
    model: camapp.LoadedModel, cat: camapp.Explanation, source: str
) -> None:
    picture = camapp.decode(CHELSEA)
    with CHELSEA.open("rb") as file, Image.open(CHELSEA) as pillow:
        given = {
            "path": CHELSEA,
            "text": str(CHELSEA),
            "bytes": CHELSEA.read_bytes(),
            "file": file,
            "pillow": pillow,
            "array": picture.rgb,
            "picture": picture,
        }[source]
        explanation = camapp.explain(model, given)
    np.testing.assert_array_equal(explanation.model_maps[0], camapp.explain(model, picture).model_maps[0])
    np.testing.assert_allclose(explanation.model_maps[0], cat.model_maps[0], atol=1e-5)


def test_targets_by_name_prefix_index_and_several(model: camapp.LoadedModel) -> None:
    def indices(targets: object) -> list[int]:
        return [one.index for one in camapp.explain(model, CHELSEA, targets=targets).classes]  # type: ignore[arg-type]

    assert indices("tabby") == [281]
    assert indices("Egyptian") == [285]
    assert indices(282) == [282]
    assert indices("282") == [282]
    assert indices(["tabby", 285]) == [281, 285]
    assert indices(np.array([281, 285])) == [281, 285]
    assert indices(np.int64(0)) == [0]
    assert indices(torch.tensor(281)) == [281]
    assert indices(camapp.TopClasses(2))[0] in CATS


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"targets": "tabi"}, TargetError, "tabby"),
        ({"targets": 1000}, TargetError, "1000"),
        ({"targets": []}, TargetError, "targets is empty"),
        ({"targets": True}, TargetError, "True is not a class"),
        ({"targets": 2.0}, TargetError, r"2\.0 is not a class"),
        ({"targets": b"tabby"}, TargetError, "is not a class"),
        ({"top_k": 0}, TargetError, "top k = 0"),
        ({"top_k": 1001}, TargetError, "top 1001 classes"),
        ({"method": "gradcm"}, UsageError, "Did you mean gradcam"),
        ({"layer": "bn3"}, LayerError, "Did you mean"),
        ({"fit": "zoom"}, UsageError, "crop, letterbox, stretch"),
    ],
)
def test_wrong_options_are_refused(
    model: camapp.LoadedModel, arguments: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        camapp.explain(model, CHELSEA, **arguments)  # type: ignore[arg-type]


def test_a_model_that_is_neither_name_nor_loaded_is_refused() -> None:
    with pytest.raises(UsageError, match=r"camapp\.wrap_model\(network"):
        camapp.explain(torch.nn.Identity(), CHELSEA)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="Did you mean efficientnet_lite0"):
        camapp.explain("eficientnet_lite0", CHELSEA)


def test_saved_files_hold_what_the_explanation_holds(cat: camapp.Explanation, tmp_path: Path) -> None:
    saved = cat.save(tmp_path / "new" / "folder", alpha=0.7, colormap="magma")
    assert len(saved) == 2
    for k, files in enumerate(saved):
        painted = np.asarray(Image.open(files.overlay))
        wanted = overlay(cat.picture.rgb, cat.maps[k], cat.geometry, alpha=0.7, colormap="magma")
        np.testing.assert_array_equal(painted, wanted)
        np.testing.assert_array_equal(np.load(files.values), cat.maps[k])
        levels = np.asarray(Image.open(files.heatmap))
        assert levels.dtype == np.uint16
        np.testing.assert_allclose(levels / 65535, cat.maps[k], atol=1 / 65535)
    facts = json.loads((tmp_path / "new" / "folder" / "chelsea.json").read_text())
    assert facts["model"] == "efficientnet_lite0"
    assert facts["weights"]["sha256"].startswith("57934424")
    assert facts["layer"] == "bn2"
    assert facts["crop"]["fit"] == "crop"
    assert facts["crop"]["seen"] == pytest.approx(cat.geometry.seen, abs=1e-3)
    assert facts["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    assert facts["maps"][0]["overlay"] == saved[0].overlay.name
    assert facts["maps"][1]["raw_range"] == [float(cat.raw[1].min()), float(cat.raw[1].max())]
    assert sorted(path.name for path in saved[0].overlay.parent.iterdir()) == sorted(
        [path.name for files in saved for path in vars(files).values()] + ["chelsea.json"]
    )


def test_random_weights_are_marked_everywhere(tmp_path: Path) -> None:
    explanation = camapp.explain(camapp.load_model("efficientnet_lite0", random_weights=True, device="cpu"), CHELSEA)
    plain = overlay(explanation.picture.rgb, explanation.heatmap(), explanation.geometry)
    assert explanation.random_weights
    assert (np.asarray(explanation.overlay())[2, 2] == (190, 20, 30)).all()
    assert not np.array_equal(np.asarray(explanation.overlay()), plain)
    assert explanation.notes[0].startswith("random weights")
    assert "RANDOM WEIGHTS" in repr(explanation)
    explanation.save(tmp_path)
    assert json.loads((tmp_path / "chelsea.json").read_text())["weights"]["random"] is True
    assert "random weights" in explanation._repr_html_()


def test_a_notebook_shows_each_class_with_a_text_alternative(cat: camapp.Explanation) -> None:
    shown = cat._repr_html_()
    assert shown.count("<img ") == 2
    assert f'alt="Heatmap of {cat.classes[0].label}' in shown
    assert "gradcam at &quot;bn2&quot;" in shown


def test_an_unknown_k_is_refused(cat: camapp.Explanation) -> None:
    with pytest.raises(UsageError, match=r"k = 2 is out of range: 2 class\(es\) were explained"):
        cat.overlay(2)


def test_a_blank_map_has_its_reason_and_no_peak(model: camapp.LoadedModel) -> None:
    black = np.zeros((64, 64, 3), np.uint8)
    explanations = [camapp.explain(model, black, targets=target) for target in range(0, 1000, 125)]
    blank = [one for one in explanations if one.reasons[0]]
    assert blank, "some class has no evidence at all in a black picture"
    for one in blank:
        assert not one.maps.any()
        np.testing.assert_array_equal(np.asarray(one.overlay(alpha=1, frame=False)), black)
        facts = one.to_dict()["maps"][0]
        assert facts["peak"] is None
        assert one.peak() is None
        assert facts["reason"] == one.reasons[0]


def test_values_that_are_not_finite_give_valid_json(tmp_path: Path) -> None:
    broken = camapp.load_model("efficientnet_lite0", random_weights=True, device="cpu")
    with torch.no_grad():
        broken.module.conv_stem.weight.fill_(float("nan"))  # type: ignore[union-attr, operator]
    explanation = camapp.explain(broken, CHELSEA)
    assert str(explanation.reasons[0]).startswith("not finite")
    explanation.save(tmp_path)

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    facts = json.loads((tmp_path / "chelsea.json").read_text(), parse_constant=refuse)
    assert facts["maps"][0]["raw_range"] == [None, None]


def test_the_default_device_of_the_caller_changes_nothing(model: camapp.LoadedModel, cat: camapp.Explanation) -> None:
    with torch.device("meta"):
        explanation = camapp.explain(model, CHELSEA)
    np.testing.assert_array_equal(explanation.model_maps[0], camapp.explain(model, CHELSEA).model_maps[0])
    assert explanation.classes[0].index == cat.classes[0].index


def test_many_threads_may_save_under_one_name(cat: camapp.Explanation, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: cat.save(tmp_path), range(24)))
    assert len(list(tmp_path.iterdir())) == 7
    np.testing.assert_array_equal(np.load(tmp_path / cat.save(tmp_path)[0].values.name), cat.maps[0])


def test_a_stem_with_a_folder_is_refused(cat: camapp.Explanation, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a file name"):
        cat.save(tmp_path / "in", stem="../out")
    assert not list(tmp_path.rglob("*.png"))


def test_a_card_that_does_not_fit_its_network_is_to_blame(tmp_path: Path) -> None:
    text = (resource_folder("models") / "vit_b_16.toml").read_text()
    assert "size = 224" in text
    (tmp_path / "wrong.toml").write_text(text.replace("size = 224", "size = 256").replace('"vit_b_16"', '"wrong"'))
    loaded = camapp.load_model(tmp_path / "wrong.toml", random_weights=True, device="cpu")
    with pytest.raises(ModelError, match=r"wrong fails on its own input of 256x256: .* Check input\.size"):
        camapp.explain(loaded, CHELSEA)
    with pytest.raises(ModelError, match="wrong fails on its own input"):
        camapp.list_layers(loaded)


def test_threads_may_ask_for_different_classes_of_one_explanation(cat: camapp.Explanation) -> None:
    from concurrent.futures import ThreadPoolExecutor

    wanted = [cat.geometry.to_original(one) for one in cat.model_maps]

    def right(turn: int) -> bool:
        return np.array_equal(cat.heatmap(turn % 2), wanted[turn % 2])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(right, range(400)))


def test_a_heatmap_that_is_given_out_cannot_be_written_on(cat: camapp.Explanation) -> None:
    with pytest.raises(ValueError, match="read-only"):
        cat.heatmap()[0, 0] = 5


def test_other_targets_than_classes_are_named_in_words(model: camapp.LoadedModel, tmp_path: Path) -> None:
    from camapp.cam.targets import ClassDifference

    both = camapp.explain(model, CHELSEA, targets=[ClassDifference("tabby", "Egyptian cat"), "tabby"])
    assert both.classes[0].label == "class 281 against 285"
    assert both.classes[1].label == "tabby"
    logits = model.module(model.prepare(camapp.decode(CHELSEA))[0])[0].detach()
    assert both.classes[0].logit == pytest.approx(float(logits[281] - 0.6 * logits[285]), abs=1e-4)
    assert "class 281 against 285, tabby" in repr(both)
    saved = both.save(tmp_path)
    facts = json.loads((tmp_path / "chelsea.json").read_text())
    assert facts["maps"][0]["probability"] is None
    assert saved[0].overlay.name == "chelsea-1-class_281_against_285.overlay.png"


def test_the_negative_map_is_what_speaks_against_the_class(model: camapp.LoadedModel) -> None:
    against = camapp.explain(model, CHELSEA, targets="golden retriever", sign="negative")
    raw = GradCAM(model)(model.prepare(camapp.decode(CHELSEA))[0], 207).raw
    opposed = torch.nn.functional.interpolate((-raw).relu()[None], size=(224, 224), mode="bilinear")[0, 0]
    wanted = (opposed - opposed.min()) / (opposed.max() - opposed.min())
    np.testing.assert_allclose(against.model_maps[0], wanted.numpy(), atol=1e-4)
    for options in ({"sign": "both"}, {"normalize": None}):
        with pytest.raises(UsageError, match="An explanation is painted"):
            camapp.explain(model, CHELSEA, **options)  # type: ignore[arg-type]


def test_one_scale_for_all_classes_keeps_their_proportions(model: camapp.LoadedModel) -> None:
    shared = camapp.explain(model, CHELSEA, top_k=3, normalize="shared")
    highest = [one.max() for one in shared.model_maps]
    raws = [one.max() for one in shared.raw]
    assert max(highest) == 1
    np.testing.assert_allclose(np.array(highest) / max(highest), np.array(raws) / max(raws), atol=0.02)


def test_a_method_made_for_the_model_may_be_given(model: camapp.LoadedModel, cat: camapp.Explanation) -> None:
    engine = GradCAM(model, ["bn2", "blocks.5.0.bn1"], fuse="product")
    one = camapp.explain(model, CHELSEA, method=engine)
    assert one.layer == "bn2 + blocks.5.0.bn1"
    assert one.reasons == (None,)
    several = camapp.explain(model, CHELSEA, layer=["blocks.5.0.bn1", "bn2"])
    assert not np.allclose(one.model_maps, several.model_maps)  # the mean, not the product
    with pytest.raises(UsageError, match="made for another model"):
        camapp.explain(camapp.load_model("efficientnet_lite0", random_weights=True), CHELSEA, method=engine)
    with pytest.raises(UsageError, match="comes too late"):
        camapp.explain(model, CHELSEA, method=engine, layer="bn2")
