"""The public API of the tab: what programs get, and what they are refused."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

import camapp
from camapp.features.formats import load_features
from tests.ui.features.made import coloured_zip
from tests.ui.served import Served


@pytest.fixture(scope="module")
def client(server: Served) -> Client:
    return Client(server.url, verbose=False)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return coloured_zip(tmp_path_factory.mktemp("api") / "colours.zip", 4)


def test_features_come_as_a_file_that_reads_back(client: Client, archive: Path) -> None:
    path, facts = client.predict([handle_file(archive)], format="npz", normalize=True, api_name="/features")
    table = load_features(path)
    assert (len(table), table.classes) == (facts["pictures"], tuple(facts["classes"])) == (12, ("blue", "green", "red"))
    assert table.provenance["normalize"] is True


def test_a_classifier_comes_as_a_file_that_explains(client: Client, archive: Path) -> None:
    path, report = client.predict([handle_file(archive)], kind="ridge", api_name="/probe")
    assert camapp.load_model(path, device="cpu").labels == ("blue", "green", "red")
    assert report["trained_on"] + report["pictures"] == 12
    assert report["accuracy"] >= report["majority"]


@pytest.mark.parametrize(
    ("api", "options", "said"),
    [
        ("/features", {"layers": "__class__"}, 'no layer "__class__"'),
        ("/features", {"layers": "re:(a+)+$"}, "no layer"),
        ("/features", {"pooling": "spp(99999)"}, 'No pooling "spp(99999)"'),
        ("/features", {"format": "exe"}, 'No format is called "exe"'),
        ("/features", {"model": "../../etc/passwd"}, "is not available on this page"),
        ("/probe", {"kind": "forest"}, 'No kind of probe "forest"'),
        ("/probe", {"test_share": 7}, "from 0.1 to 0.5"),
        ("/probe", {"labels": "nobody.png,x"}, 'No picture is called "nobody.png"'),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(
    client: Client, archive: Path, api: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(AppError) as refused:
        client.predict([handle_file(archive)], **options, api_name=api)
    assert said in html.unescape(str(refused.value))


@pytest.mark.parametrize("more", [{}, {"meta": {"_type": "gradio.FileData"}}, {"orig_name": "x.zip"}])
def test_a_file_of_the_server_is_not_taken_for_an_upload(server: Served, archive: Path, more: dict[str, Any]) -> None:
    data = [[{"path": str(archive), **more}], "efficientnet_lite0", "penultimate", "auto", False, "npz"]
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as http:
        started = http.post("gradio_api/call/features", json={"data": data})
        assert started.status_code == 200
        events = http.get(f"gradio_api/call/features/{started.json()['event_id']}").text
    assert "event: error" in events
    assert "event: complete" not in events
    assert not re.search("Traceback|colours", json.dumps(events))
