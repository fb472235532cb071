"""The public API event /inspect, used well and abused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

from camapp.channels import channel_maps
from camapp.hooks.report.records import Snapshot
from camapp.loading import load_model
from camapp.resources import resource_folder

CAT = resource_folder("assets") / "chelsea.jpg"


@pytest.fixture(scope="module")
def client(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(server.url, verbose=False, download_files=tmp_path_factory.mktemp("answers"))


def test_the_api_answers_with_the_figures_and_files_of_the_library(client: Client) -> None:
    facts, grid, values = client.predict(
        handle_file(CAT), layer="conv_head", ranking="gradient", target="tabby", channels=9, api_name="/inspect"
    )
    model = load_model("efficientnet_lite0", device="cpu", download=False)
    maps = channel_maps(model, CAT, "conv_head", ranking="gradient", target="tabby")
    np.testing.assert_allclose(np.load(values), maps.values, atol=1e-5)
    with Image.open(grid) as painted:
        assert np.asarray(painted).shape == maps.grid(9).pixels.shape
        assert not painted.info
    assert [one["channel"] for one in facts["channels"]["channels"]] == list(maps.top(9))
    assert facts["pictures"][0]["target"] == "tabby"
    snapshot = Snapshot.from_dict(facts)
    assert next(snapshot.of("activation")).name == "conv_stem"
    assert not snapshot.verdicts


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "../x"}, "not available on this page"),
        ({"layer": "<b>bn2"}, 'efficientnet_lite0 has no layer "&lt;b&gt;bn2" with a map'),
        ({"layer": "bn2@7"}, "was called 1 time"),
        ({"ranking": "best"}, "use one of mean, max, gradient"),
        ({"ranking": "gradient", "target": "zzz"}, "zzz"),
        ({"channels": 1e9}, "choose from 1 to 256"),
        ({"channels": 1.5}, "choose from 1 to 256"),
        ({"channels": None}, "choose from 1 to 256"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(client: Client, options: dict[str, Any], words: str) -> None:
    with pytest.raises(AppError, match=words) as refused:
        client.predict(handle_file(CAT), api_name="/inspect", **options)
    assert "<b>" not in str(refused.value)


def test_without_a_picture_it_says_so(client: Client) -> None:
    with pytest.raises(AppError, match="There is no picture yet"):
        client.predict(None, api_name="/inspect")
