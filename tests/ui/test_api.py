"""The public API, used well and abused; the same server as the page's."""

from __future__ import annotations

import html
import json
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from PIL import Image

from camapp.contrast import Contrast
from camapp.explainer import explain
from camapp.loading import load_model
from tests.images.odd_pictures import ODD_PICTURES, Odd

ASSETS = Path(__file__).resolve().parents[2] / "assets"
CAT = ASSETS / "chelsea.jpg"


@pytest.fixture(scope="module")
def client(server: Any, tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(server.url, verbose=False, download_files=tmp_path_factory.mktemp("answers"))


@pytest.fixture
def http(server: Any) -> Any:
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as opened:
        yield opened


def uploaded(http: httpx.Client, path: Path = CAT) -> dict[str, Any]:
    answer = http.post("gradio_api/upload", files={"files": (path.name, path.read_bytes())})
    return {"path": answer.json()[0], "meta": {"_type": "gradio.FileData"}}


def call(http: httpx.Client, picture: Any) -> str:
    """The events of one call with the usual choices, as the server sends them."""
    data = [picture, "efficientnet_lite0", "", "gradcam", "", "", "model"]
    answer = http.post("gradio_api/call/explain", json={"data": data})
    return http.get(f"gradio_api/call/explain/{answer.json()['event_id']}").text


def test_the_api_answers_with_the_files_and_numbers_of_explain(client: Client) -> None:
    overlay, heatmap, values, summary = client.predict(handle_file(CAT), api_name="/explain")
    model = load_model("efficientnet_lite0", device="cpu", download=False)
    expected = explain(model, CAT)
    with Image.open(overlay) as painted:
        np.testing.assert_array_equal(np.asarray(painted), np.asarray(expected.overlay()))
    with Image.open(heatmap) as stored:
        assert (stored.mode, stored.size) == ("I;16", (451, 300))
    np.testing.assert_array_equal(np.load(values), expected.heatmap())
    assert summary["maps"][0]["label"] == "tiger cat"
    assert summary["layer"] == "bn2"
    assert Path(overlay).name == "chelsea-tiger_cat.overlay.png"


def test_the_api_gives_what_sets_two_classes_apart(client: Client) -> None:
    overlay, heatmap, values, summary = client.predict(handle_file(CAT), compare_with="-1", api_name="/explain")
    contrast = Contrast(explain(load_model("efficientnet_lite0", device="cpu", download=False), CAT, top_k=2))
    with Image.open(overlay) as painted:
        np.testing.assert_array_equal(np.asarray(painted), np.asarray(contrast.overlay()))
    np.testing.assert_array_equal(np.load(values), contrast.heatmap())
    with Image.open(heatmap) as stored:
        np.testing.assert_allclose(np.asarray(stored) / 65535 * 2 - 1, contrast.heatmap(), atol=2e-5)
    assert [one["label"] for one in summary["maps"]] == ["tiger cat", "Egyptian cat"]


def test_the_api_takes_a_layer_and_a_class_by_name(client: Client) -> None:
    *_, summary = client.predict(
        handle_file(CAT),
        model="efficientnet_lite1",
        layer="blocks.4.2.conv_pwl",
        method="gradcam",
        target="Siamese",
        api_name="/explain",
    )
    assert summary["model"] == "efficientnet_lite1"
    assert summary["layer"] == "blocks.4.2.conv_pwl"
    assert summary["maps"][0]["label"] == "Siamese cat"


def test_the_api_is_documented_under_its_name_and_shows_nothing_else(client: Client) -> None:
    described = client.view_api(return_format="dict")
    events = {"/batch", "/compare", "/explain", "/features", "/inspect", "/probe"}
    assert set(described["named_endpoints"]) == events
    assert not described["unnamed_endpoints"]
    names = [one["parameter_name"] for one in described["named_endpoints"]["/explain"]["parameters"]]
    assert names == ["picture", "model", "layer", "method", "target", "compare_with", "fit"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "resnet5000"}, 'Model "resnet5000" is not available'),
        ({"model": "resnet50"}, "Models here: efficientnet_lite0"),  # a card, but its weights are not here
        ({"model": "../../etc/passwd"}, "is not available on this page"),
        ({"layer": "bn22"}, "Did you mean bn2"),
        ({"layer": "__class__"}, "No layer"),
        ({"method": "magic"}, 'No method "magic"'),
        ({"target": "unicorn"}, 'no class "unicorn"'),
        ({"target": "x" * 100_000}, "target is 100000 letters"),
        ({"model": None}, 'Model "" is not available'),
        ({"method": None}, 'No method ""'),
        ({"target": "1000"}, "no class 1000"),
        ({"target": "-2"}, "no class -2"),
        ({"layer": "bn2,blocks.1,blocks.2,blocks.3"}, "4 layers are too many"),
        ({"compare_with": "unicorn"}, 'no class "unicorn"'),
        ({"target": "tabby", "compare_with": "tabby"}, "compared with itself"),
        ({"fit": "squash"}, "squash"),
    ],
)
def test_unknown_names_are_refused_in_words(client: Client, options: dict[str, str], message: str) -> None:
    with pytest.raises(AppError, match=re.escape(message)):
        client.predict(handle_file(CAT), **options, api_name="/explain")


@pytest.mark.parametrize("odd", ODD_PICTURES, ids=lambda odd: odd.file)
def test_odd_pictures_are_explained_or_refused_in_words(http: httpx.Client, tmp_path: Path, odd: Odd) -> None:
    path = odd.write(tmp_path)
    sent = http.post("gradio_api/upload", files={"files": (path.name, path.read_bytes())})
    events = call(http, {"path": sent.json()[0]})
    if odd.refusal:
        assert "event: error" in events
        message = json.loads(events.split("data: ")[-1])["error"]
        assert re.search(odd.refusal, html.unescape(message))
    else:
        assert "event: complete" in events
        summary = json.loads(events.split("data: ")[-1])[3]
        assert summary["size"] == list(odd.size)


@pytest.mark.parametrize("path", ["/etc/passwd", str(CAT)])
@pytest.mark.parametrize("more", [{}, {"orig_name": "x.svg"}, {"meta": {"_type": "gradio.FileData"}}])
def test_a_file_of_the_server_is_not_taken_for_an_upload(http: httpx.Client, path: str, more: dict[str, Any]) -> None:
    events = call(http, {"path": path, **more})
    assert "event: error" in events
    assert "event: complete" not in events
    assert "text, not a picture" not in events  # it was not even opened


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/x.png", "https://example.com/x.png"])
def test_a_picture_by_url_is_not_taken(http: httpx.Client, server: Any, url: str) -> None:
    events = call(http, {"path": url, "meta": {"_type": "gradio.FileData"}})
    assert "event: error" in events
    assert "event: complete" not in events
    assert server.foreign_lookups == set()


@pytest.mark.parametrize(
    "route", ["gradio_api/file=https://example.com/x.png", "gradio_api/proxy=https://example.com/"]
)
def test_the_server_fetches_no_url_for_anyone(http: httpx.Client, server: Any, route: str) -> None:
    assert http.get(route).status_code in (400, 403, 404)
    assert server.foreign_lookups == set()


def test_a_picture_as_data_is_not_taken(http: httpx.Client) -> None:
    data = {"url": "data:image/png;base64,iVBORw0KGgo=", "meta": {"_type": "gradio.FileData"}}
    events = call(http, data)
    assert "event: error" in events


def test_errors_say_nothing_of_the_servers_files(http: httpx.Client, server: Any) -> None:
    events = call(http, {"path": str(CAT)})
    assert str(server.folder) not in events
    assert "Traceback" not in events


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/hostname", str(CAT), "app.py"])
def test_files_of_the_server_are_not_served(http: httpx.Client, path: str) -> None:
    assert http.get(f"gradio_api/file={path}").status_code in (403, 404)


def test_a_picture_past_the_limit_is_refused_in_words(http: httpx.Client) -> None:
    sent = http.post("gradio_api/upload", files={"files": ("big.png", b"x" * (20 * 2**20 + 1))})
    events = call(http, {"path": sent.json()[0]})
    assert "event: error" in events
    assert "20.0 MiB" in events


def test_a_request_past_the_limit_is_refused_before_it_is_read(server: Any) -> None:
    host, port = server.url.removeprefix("http://").strip("/").split(":")
    head = f"POST /gradio_api/upload HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {300 * 2**20}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head.encode())
        assert b" 413 " in connection.recv(64)


@pytest.mark.parametrize("route", ["gradio_api/run-history/list", "runs", "monitoring", "gradio_api/mcp/", "docs"])
def test_doors_that_are_not_used_are_closed(http: httpx.Client, route: str) -> None:
    assert http.get(route).status_code in (403, 404)


def test_events_of_the_page_answer_no_direct_call(http: httpx.Client) -> None:
    events = http.get("config").json()["dependencies"]
    private = {one["api_name"] for one in events if one["api_visibility"] == "private" and one["queue"] is not False}
    assert {"explain_again", "explain_new", "compare_now", "extract"} <= private
    for name in private:
        if not name:
            continue  # it has no address at all
        answer = http.post(f"gradio_api/run/{name}", json={"data": []})
        assert not answer.is_success, name
        assert "/" not in answer.text.replace("/call/", "").replace("/queue/", ""), name  # and tells no path


def test_every_answer_carries_the_safety_headers(http: httpx.Client) -> None:
    for route in ("", "config", "healthz", "gradio_api/info", "no-such-page"):
        headers = http.get(route).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"], route
        assert headers["x-content-type-options"] == "nosniff", route


def test_the_health_check_answers(http: httpx.Client) -> None:
    assert http.get("healthz").json() == {"status": "ok"}


def test_another_web_site_cannot_use_the_page(http: httpx.Client) -> None:
    answer = http.post("gradio_api/call/explain", json={"data": []}, headers={"origin": "https://evil.example"})
    assert answer.headers.get("access-control-allow-origin") != "https://evil.example"


def test_results_are_downloaded_by_their_token_only(http: httpx.Client) -> None:
    assert http.get("result/guessed/overlay.png").status_code == 404
    assert http.get("result/..%2f..%2fetc/passwd").status_code == 404


def test_thirty_requests_at_once_are_answered_right_or_told_that_the_queue_is_full(http: httpx.Client) -> None:
    names = ["chelsea", "coffee", "rocket"]
    labels = {"chelsea": "tiger cat", "coffee": "espresso", "rocket": "missile"}
    files = {name: uploaded(http, ASSETS / f"{name}.jpg") for name in names}

    def ask(number: int) -> tuple[str, str]:
        name = names[number % 3]
        data = [files[name], "efficientnet_lite0", "", "gradcam", "", "", "model"]
        joined = http.post("gradio_api/call/explain", json={"data": data})
        if joined.status_code != 200:
            return name, joined.text
        return name, http.get(f"gradio_api/call/explain/{joined.json()['event_id']}").text

    with ThreadPoolExecutor(30) as threads:
        answers = list(threads.map(ask, range(30)))
    done = [(name, text) for name, text in answers if "event: complete" in text]
    assert len(done) >= 16
    for name, text in done:
        assert f'"label": "{labels[name]}"' in text
    for _, text in answers:
        assert "event: complete" in text or "ueue is full" in text


def test_the_server_looked_up_no_foreign_host(client: Client, server: Any) -> None:
    client.predict(handle_file(CAT), api_name="/explain")
    assert server.foreign_lookups == set()
