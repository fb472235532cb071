"""The page behind a password, behind a proxy, and inside of another application: real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
from gradio_client import Client, handle_file

from tests.ui.served import ASSETS, free_port, serving

_HOST = """
import uvicorn
from fastapi import FastAPI
from camapp.ui.app import mount

app = FastAPI()
app.get("/hello")(lambda: "of the other application")
mount(app, "/maps/")
uvicorn.run(app, port={port}, log_level="warning", timeout_graceful_shutdown=2)
"""


def test_visitors_without_a_password_see_nothing_of_the_page(tmp_path: Path) -> None:
    who = tmp_path / "who"
    who.write_text("ann:s3cret\n")
    who.chmod(0o600)
    port = str(free_port())
    command = [sys.executable, "-m", "camapp", "serve", "--port", port, "--auth-file", str(who)]
    with serving(command, tmp_path / "served", probe="healthz", GRADIO_SERVER_PORT=port) as served:
        with httpx.Client(base_url=served.url, trust_env=False) as http:
            assert http.get("config").status_code == 401
            assert http.post("gradio_api/upload", files={"files": ("a.png", b"x")}).status_code == 401
            assert http.post("login", data={"username": "ann", "password": "wrong"}).status_code == 400
            assert http.post("login", data={"username": "ann", "password": "s3cret"}).is_success
            assert http.get("config").is_success
            assert http.get("healthz", headers={"host": "evil.example"}).status_code == 421
        client = Client(served.url, auth=("ann", "s3cret"), verbose=False)
        *_, summary = client.predict(handle_file(str(ASSETS / "chelsea.jpg")), api_name="/explain")
        assert summary["predictions"][0]["label"] == "tiger cat"


def test_the_page_lies_inside_of_another_application_with_the_same_guard(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", _HOST.format(port=port)]
    with serving(command, tmp_path / "served", probe="maps/healthz", GRADIO_SERVER_PORT=str(port)) as served:

        def get(route: str) -> httpx.Response:
            return httpx.get(f"{served.url}{route}", trust_env=False, follow_redirects=True)

        assert get("hello").json() == "of the other application"
        assert "frame-ancestors 'none'" in get("maps/").headers["content-security-policy"]
        assert get("maps/result/nothing/json").status_code == 404
        assert "expired" in get("maps/result/nothing/json").text
        assert get("maps/gradio_api/file=/etc/hostname").status_code == 403
        assert get("maps/gradio_api/run-history/list").status_code == 404
        client = Client(f"{served.url}maps/", verbose=False)
        *_, summary = client.predict(handle_file(str(ASSETS / "coffee.jpg")), api_name="/explain")
        assert summary["predictions"][0]["label"] == "espresso"
        assert [one for one in served.temporary if one.name.startswith("camapp-")]
        served.process.terminate()
        served.process.wait(60)
        assert not [one for one in served.temporary if one.name.startswith("camapp-")]
