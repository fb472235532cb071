"""How the page starts and ends, by each of its doors, with real processes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client, handle_file

from tests.ui.served import HOSTILE, ROOT, end, free_port, serving

APP = str(ROOT / "app.py")


def settings_of(url: str) -> dict[str, Any]:
    return httpx.get(f"{url}config", trust_env=False).json()


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that is expected to end by itself."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1,localhost", **environment}
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=120)


def test_python_app_keeps_to_this_machine_whatever_the_shell_says(server: Any) -> None:
    assert server.says(f"camapp: the page is at {server.url}")
    assert "public URL" not in server.log
    listening = Path(f"/proc/{server.process.pid}/net/tcp")
    if listening.exists():
        port = int(server.url.rsplit(":", 1)[1].strip("/"))
        lines = [line.split()[1:4] for line in listening.read_text().splitlines()[1:]]
        hosts = {address for address, _, state in lines if state == "0A" and address.endswith(f":{port:04X}")}
        assert hosts == {f"0100007F:{port:04X}"}  # 127.0.0.1
    config = settings_of(server.url)
    assert not config.get("run_history", False)
    assert not config["analytics_enabled"]
    assert httpx.get(f"{server.url}gradio_api/file=/etc/hostname", trust_env=False).status_code == 403


@pytest.mark.slow
def test_gradio_app_py_keeps_the_same_settings(tmp_path: Path) -> None:
    gradio = str(Path(sys.executable).with_name("gradio"))
    # Gradio 6.31 takes a path below the working folder only
    with serving([gradio, "app.py"], tmp_path / "served", files={"app.py": Path(APP)}, **HOSTILE) as served:

        def get(route: str) -> httpx.Response:
            return httpx.get(f"{served.url}{route}", trust_env=False)

        assert "public URL" not in served.log
        assert get("healthz").json() == {"status": "ok"}
        assert "frame-ancestors 'none'" in get("").headers["content-security-policy"]
        assert get("gradio_api/run-history/list").status_code == 404
        assert get("gradio_api/file=/etc/hostname").status_code == 403
        address = httpx.URL(served.url)
        host = address.netloc.decode()
        head = f"POST /gradio_api/upload HTTP/1.1\r\nHost: {host}\r\nContent-Length: {300 * 2**20}\r\n\r\n"
        with socket.create_connection((address.host, address.port or 80), timeout=20) as connection:
            connection.sendall(head.encode())
            assert b" 413 " in connection.recv(64)
        assert served.foreign_lookups == set()
        _end_child(served.process.pid)  # `gradio` passes no signal on to the program that it started


def _end_child(parent: int) -> None:
    children = Path(f"/proc/{parent}/task/{parent}/children")
    for child in children.read_text().split() if children.exists() else []:
        os.kill(int(child), signal.SIGTERM)


def test_sigterm_ends_the_server_with_status_0_and_wipes_its_files(tmp_path: Path) -> None:
    with serving([sys.executable, APP], tmp_path / "served") as served:
        with httpx.Client(base_url=served.url, trust_env=False, timeout=30) as http:
            picture = (ROOT / "assets" / "chelsea.jpg").read_bytes()
            path = Path(http.post("gradio_api/upload", files={"files": ("cat.jpg", picture)}).json()[0])
            assert path.is_file()
            private = next(one for one in served.temporary if one.name.startswith("camapp-"))
            assert private in path.parents
            assert private.stat().st_mode & 0o777 == 0o700
            with http.stream("GET", "gradio_api/heartbeat/anyone"):  # a window that is open
                served.process.terminate()
                assert served.process.wait(20) == 0
        assert not path.exists()
        assert not [one for one in served.temporary if one.name.startswith("camapp-")]


@pytest.mark.slow
def test_vibe_mode_is_refused() -> None:
    done = run(sys.executable, APP, GRADIO_VIBE_MODE="1", GRADIO_SERVER_PORT=str(free_port()))
    assert done.returncode == 1
    assert "GRADIO_VIBE_MODE is set" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_in_words(server: Any) -> None:
    done = run(sys.executable, APP, GRADIO_SERVER_PORT=server.url.rsplit(":", 1)[1].strip("/"))
    assert done.returncode == 1
    assert "the port is taken" in done.stderr
    assert "GRADIO_SERVER_PORT=7861 make app" in done.stderr
    assert "Traceback" not in done.stderr


def test_random_weights_are_served_under_a_loud_banner(tmp_path: Path) -> None:
    port = free_port()
    code = f"from camapp.ui.app import serve; serve(port={port}, model='resnet50', random_weights=True)"
    with serving([sys.executable, "-c", code], tmp_path / "served", GRADIO_SERVER_PORT=str(port)) as served:
        values = [str(part["props"].get("value")) for part in settings_of(f"http://127.0.0.1:{port}/")["components"]]
        assert any("RANDOM WEIGHTS" in value for value in values)
        end(served.process)


def test_uploads_and_results_are_gone_after_their_time_though_nobody_asks_any_more(tmp_path: Path) -> None:
    with serving([sys.executable, APP], tmp_path / "served", CAMAPP_KEEP_SECONDS="4") as served:
        client = Client(served.url, verbose=False, download_files=str(tmp_path))
        client.predict(handle_file(str(ROOT / "assets" / "chelsea.jpg")), api_name="/explain")
        private = next(one for one in served.temporary if one.name.startswith("camapp-"))
        assert len(left_in(private)) >= 4  # the upload, and the files of the result
        deadline = time.monotonic() + 30
        while left_in(private) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert left_in(private) == []


def left_in(private: Path) -> list[Path]:
    return [one for one in private.rglob("*") if "samples" not in one.parts and one.is_file()]


def test_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    done = run(sys.executable, APP, CAMAPP_KEEP_SECONDS="forever")
    assert done.returncode == 1
    assert "CAMAPP_KEEP_SECONDS=forever" in done.stderr
    assert "Traceback" not in done.stderr
