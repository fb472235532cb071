"""Features of folders, classifiers on them, and comparisons, from picture files to results."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import camapp
from camapp.backbones.load import LoadedModel
from camapp.errors import DecodeError, StoppedError, UsageError
from camapp.features import FeatureExtractor
from camapp.images.decode import decode
from camapp.loading import load_model
from camapp.transfer.extraction import counting

COLOURS = {"red": (220, 40, 30), "green": (30, 200, 60), "blue": (40, 60, 220)}


def paint(folder: Path, each: int, seed: int) -> Path:
    """Noisy pictures of three colours, in one folder a colour."""
    random = np.random.default_rng(seed)
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = np.clip(np.array(colour) + random.normal(0, 25, (40, 52, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(device="cpu")


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint(tmp_path_factory.mktemp("pictures") / "train", 5, 0)


@pytest.fixture(scope="module")
def test(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint(tmp_path_factory.mktemp("pictures") / "test", 2, 1)


def test_each_row_is_the_extractors_answer_to_that_picture(model: LoadedModel, train: Path) -> None:
    table = camapp.extract_features(model, train, layers=["blocks.2", "penultimate"], batch_size=4, channels_last=False)
    assert table.classes == ("blue", "green", "red")
    assert len(table) == 15
    assert table.labels == tuple(name.split("/")[0] for name in table.names)
    extractor = FeatureExtractor(model, ["blocks.2", "penultimate"])
    for row in (0, 7, 14):
        inputs = model.prepare(decode(train / table.names[row]))[0]
        alone = extractor(inputs)
        for layer in table.layers:
            np.testing.assert_allclose(table[layer][row], alone[layer][0].numpy(), rtol=1e-4, atol=1e-5)
    assert table.provenance["weights"]["sha256"] == model.weights.sha256
    assert table.info["blocks.2"].stride == (8.0, 8.0)


def test_neither_batches_nor_threads_nor_their_memory_format_change_the_features(
    model: LoadedModel, train: Path
) -> None:
    one = camapp.extract_features(model, train, batch_size=15, workers=1)
    for options in ({"batch_size": 1}, {"workers": 4, "batch_size": 7}, {"channels_last": False}):
        other = camapp.extract_features(model, train, **options)
        np.testing.assert_allclose(other["penultimate"], one["penultimate"], rtol=1e-3, atol=1e-4)
        assert other.names == one.names


def test_a_broken_picture_is_named_and_loses_no_other(model: LoadedModel, tmp_path: Path) -> None:
    folder = paint(tmp_path / "mixed", 2, 0)
    (folder / "green" / "0.png").write_bytes(b"\x89PNG but no more")
    table = camapp.extract_features(model, folder)
    assert len(table) == 5
    assert [name for name, _ in table.failures] == ["green/0.png"]
    assert table.labels == ("blue", "blue", "green", "red", "red")


def test_a_folder_of_nothing_but_broken_pictures_is_an_error(model: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"")
    with pytest.raises(DecodeError, match="None of 1 picture"):
        camapp.extract_features(model, tmp_path)


def test_loose_pictures_have_no_labels(model: LoadedModel, train: Path) -> None:
    assert camapp.extract_features(model, train / "red").labels is None


def test_a_probe_tells_colours_and_the_same_seed_gives_the_same_probe(
    model: LoadedModel, train: Path, test: Path
) -> None:
    trained = camapp.train_probe(model, train, test)
    assert trained.report is not None
    assert trained.report.accuracy == 1.0
    assert repr(trained) == (
        "TrainedProbe(linear on penultimate of efficientnet_lite0, 3 classes, accuracy 1.000 on 6 pictures)"
    )
    again = camapp.train_probe(model, train, test)
    for name, tensor in trained.probe.tensors().items():
        assert torch.equal(tensor, again.probe.tensors()[name])


def test_a_trained_probe_is_saved_opened_and_explained(
    model: LoadedModel, train: Path, test: Path, tmp_path: Path
) -> None:
    trained = camapp.train_probe(model, train, test, kind="ridge", layers=["blocks.2", "penultimate"])
    path = trained.save(tmp_path / "colours.camapp")
    picture = test / "green" / "1.png"
    explanation = camapp.explain(str(path), picture)
    assert explanation.predictions[0].label == "green"
    here = camapp.explain(trained.model(), picture)
    np.testing.assert_allclose(here.model_maps, explanation.model_maps, atol=1e-4)


def test_neighbours_over_layers_of_unlike_size_are_told_so(model: LoadedModel, train: Path, test: Path) -> None:
    options = {"layers": ["blocks.0", "blocks.1"], "kind": "knn"}
    trained = camapp.train_probe(model, train, test, **options)
    assert trained.report is not None
    assert any("several layers" in note for note in trained.report.notes)
    assert not any(
        "several" in note for note in camapp.train_probe(model, train, test, normalize=True, **options).probe.notes
    )


def test_without_test_pictures_a_share_of_each_class_is_kept_apart(model: LoadedModel, train: Path) -> None:
    trained = camapp.train_probe(model, train, test_share=0.4, seed=3)
    assert trained.report is not None
    assert trained.report.pictures == 6
    assert len(trained.trained_on) == 9
    assert sorted(name.split("/")[0] for name in trained.trained_on) == ["blue"] * 3 + ["green"] * 3 + ["red"] * 3
    every = camapp.train_probe(model, train, test_share=0)
    assert every.report is None
    assert len(every.trained_on) == 15


def test_features_taken_before_do_for_pictures_unless_another_model_took_them(
    model: LoadedModel, train: Path, test: Path, tmp_path: Path
) -> None:
    table = camapp.extract_features(model, train)
    table.save(tmp_path / "train.parquet")
    trained = camapp.train_probe(model, camapp.load_features(tmp_path / "train.parquet"), test)
    assert trained.report is not None
    assert trained.report.accuracy == 1.0
    other = load_model("efficientnet_lite1", device="cpu")
    with pytest.raises(UsageError, match="taken by efficientnet_lite0, not by efficientnet_lite1"):
        camapp.train_probe(other, table, test)


def test_the_settings_of_features_taken_before_stand(
    model: LoadedModel, train: Path, test: Path, tmp_path: Path
) -> None:
    table = camapp.extract_features(model, train, layers="blocks.2", pool="max", normalize=True, fit="stretch")
    trained = camapp.train_probe(model, table, test)
    assert trained.settings.layers == ("blocks.2",)
    assert (trained.settings.pool, trained.settings.normalize, trained.settings.fit) == ("max", True, "stretch")
    headed = trained.model()
    inputs = headed.prepare(decode(train / table.names[3]))[0]
    with torch.no_grad():
        scores = headed.module(inputs).numpy()
    np.testing.assert_allclose(scores, trained.probe.scores(table["blocks.2"][3:4]), rtol=1e-3, atol=1e-4)
    with pytest.raises(UsageError, match="not taken alike: pool is max for one and avg"):
        camapp.train_probe(model, table, camapp.extract_features(model, test, layers="blocks.2", pool="avg"))
    anonymous = camapp.FeatureTable(table.names, table.features, table.info, table.labels)
    with pytest.raises(UsageError, match="do not say how they were taken"):
        camapp.train_probe(model, anonymous)


def test_layers_are_compared_in_one_call(model: LoadedModel, train: Path, test: Path) -> None:
    comparison = camapp.compare_features(model, train, test, layers=["blocks[0]", "penultimate"])
    rows = {row.layer: row for row in comparison.rows}
    assert (rows["blocks.0"].size, rows["penultimate"].size) == (16, 1280)
    assert rows["penultimate"].accuracy == 1.0
    assert (comparison.trained, comparison.tested) == (15, 6)
    assert list(comparison.rows) == sorted(comparison.rows, key=lambda row: (-row.accuracy, row.size))


def test_what_cannot_be_learnt_from_is_refused_with_a_way_out(model: LoadedModel, train: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no labels, such as 0.png.*one subfolder a class"):
        camapp.train_probe(model, train / "red")
    single = tmp_path / "single"
    (single / "red").mkdir(parents=True)
    for number in range(2):
        (single / "red" / f"{number}.png").write_bytes((train / "red" / f"{number}.png").read_bytes())
    with pytest.raises(UsageError, match="of one class, 'red'"):
        camapp.train_probe(model, single)
    (single / "blue").mkdir()
    (single / "blue" / "0.png").write_bytes((train / "blue" / "0.png").read_bytes())
    with pytest.raises(UsageError, match="blue"):
        camapp.train_probe(model, single)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no picture"):
        camapp.train_probe(model, tmp_path / "empty")


def test_what_labels_forbid_is_said_before_a_picture_is_decoded(
    model: LoadedModel, train: Path, test: Path, tmp_path: Path
) -> None:
    def never(names: list[str]) -> Iterator[str]:
        raise AssertionError("pictures were read")
        yield from names

    other = paint(tmp_path / "other", 1, 0)
    (other / "red").rename(other / "violet")
    with pytest.raises(UsageError, match=r"violet.*Train has blue, green, red"):
        camapp.train_probe(model, train, other, progress=never)
    with pytest.raises(UsageError, match="in train and in test"):
        camapp.train_probe(model, train, train, progress=never)
    (train / "loose.png").write_bytes(b"")
    try:
        with pytest.raises(UsageError, match=r"no labels, such as loose\.png"):
            camapp.train_probe(model, train, test, progress=never)
    finally:
        (train / "loose.png").unlink()
    for options in ({"kind": "forest"}, {"kind": "knn", "C": 1.0}):
        with pytest.raises(UsageError):
            camapp.train_probe(model, train, test, progress=never, **options)


def test_a_model_says_the_probabilities_of_its_probe(model: LoadedModel, train: Path, test: Path) -> None:
    for kind in ("linear", "knn"):
        trained = camapp.train_probe(model, train, test, kind=kind, layers="blocks.1")
        table = camapp.extract_features(model, test, layers="blocks.1")
        headed = trained.model()
        inputs = torch.cat([headed.prepare(decode(test / name))[0] for name in table.names])
        with torch.no_grad():
            probabilities = headed.module(inputs).softmax(1).numpy()
        expected = trained.probe.probabilities(table["blocks.1"])
        np.testing.assert_allclose(probabilities, expected, atol=1e-4)
        assert FeatureExtractor(headed)(inputs).info["penultimate"].layer == "head:input"


def test_a_class_whose_name_is_a_number_is_meant_by_it(model: LoadedModel, train: Path, tmp_path: Path) -> None:
    for colour, number in (("red", "10"), ("green", "2"), ("blue", "7")):
        (tmp_path / "numbers").mkdir(exist_ok=True)
        os.symlink(train / colour, tmp_path / "numbers" / number)
    trained = camapp.train_probe(model, tmp_path / "numbers", test_share=0)
    headed = trained.model()
    assert headed.labels == ("10", "2", "7")
    explained = camapp.explain(headed, train / "green" / "0.png", targets="2")
    assert (explained.classes[0].label, explained.classes[0].index) == ("2", 1)
    assert headed.class_index("7") == 2
    assert headed.class_index(0) == 0


def test_a_network_given_by_hand_takes_no_features_of_another(model: LoadedModel, train: Path) -> None:
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    network.append(torch.nn.Linear(4, 2))
    mine = camapp.wrap_model(network.eval(), size=32)
    table = camapp.extract_features(mine, train)
    with pytest.raises(UsageError, match="given by hand"):
        camapp.train_probe(mine, table, test_share=0)
    assert camapp.train_probe(mine, train, test_share=0).model().labels == ("blue", "green", "red")


def test_counting_tells_the_pictures_done_and_cancel_stops_between_batches(model: LoadedModel, train: Path) -> None:
    told: list[tuple[int, int]] = []
    progress = counting(lambda done, total: told.append((done, total)))
    table = camapp.extract_features(model, train, batch_size=4, progress=progress)
    assert told == [(done, 15) for done in range(1, 16)]
    told.clear()
    with pytest.raises(StoppedError, match="after 8 of 15 pictures"):
        camapp.extract_features(model, train, batch_size=4, progress=progress, cancel=lambda: len(told) >= 7)
    assert not any(module._forward_hooks for module in model.module.modules())
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError, match="after 0 of 15"):
        camapp.train_probe(model, train, cancel=stop)
    with pytest.raises(StoppedError, match="nothing was trained"):
        camapp.train_probe(model, table, cancel=stop)


def test_features_beyond_the_memory_allowed_are_refused_with_their_size(model: LoadedModel, train: Path) -> None:
    values = 15 * 1280 * 7 * 7 * 4
    with pytest.raises(UsageError, match=r"15 pictures take 4 MB, more than the 1 MB allowed; .*62,720 values"):
        camapp.extract_features(model, train, layers="conv_head", pool="flatten", max_bytes=2**20)
    fits = camapp.extract_features(model, train, layers="conv_head", pool="flatten", max_bytes=values)
    assert fits.flat(fits.layers[0]).nbytes == values
