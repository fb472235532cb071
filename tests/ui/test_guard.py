"""What stands before every request: names, sizes, passwords."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from camapp.errors import UsageError
from camapp.ui.guard import MOST_BODY_BYTES, Guard, allowed_hosts
from camapp.ui.passwords import Passwords

T = TypeVar("T")


async def inside(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that reads the whole body and says how long it is."""
    body = await Request(scope, receive).body()
    await PlainTextResponse(str(len(body)))(scope, receive, send)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns, run in a thread: a browser of other tests has a loop in this one."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, work).result()


def ask(hosts: frozenset[str] | None, host: str) -> httpx.Response:
    """One request to a guarded application under a name."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=Guard(inside, hosts))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get("/", headers={"host": host})

    return finished(send())


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost", "LOCALHOST:7860", "[::1]:7860"])
def test_a_page_on_this_machine_answers_under_its_own_names(host: str) -> None:
    assert ask(allowed_hosts("127.0.0.1"), host).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:7860.evil.example",
        "[::1]evil.example",
        "evil.example",
        "evil.example:7860",
        "127.0.0.1.evil.example",
        "",
        "localhost@evil",
    ],
)
def test_it_answers_under_no_other_name_that_leads_here(host: str) -> None:
    refused = ask(allowed_hosts("127.0.0.1"), host)
    assert refused.status_code == 421
    assert "--trusted-host" in refused.text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin", "origin": "https://maps.example"}, 200),  # behind a proxy
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:7860"}, 200),
        ({"origin": "http://[::1]:7860"}, 200),
        ({}, 200),  # a program
    ],
)
def test_no_other_web_site_may_send_anything(headers: dict[str, str], status: int) -> None:
    async def send() -> int:
        transport = httpx.ASGITransport(app=Guard(inside, allowed_hosts("127.0.0.1")))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.get("/", headers=headers)).status_code == 200  # a link leads here
            return (await client.post("/", headers=headers, content=b"x")).status_code

    assert finished(send()) == status


def test_names_behind_a_proxy_are_trusted_when_they_are_told() -> None:
    assert ask(allowed_hosts("127.0.0.1", named=["maps.example"]), "maps.example").status_code == 200
    assert ask(allowed_hosts("127.0.0.1", "https://maps.example/camapp"), "maps.example").status_code == 200
    assert ask(allowed_hosts("127.0.0.1", "/camapp"), "maps.example").status_code == 421


def test_a_page_on_a_network_answers_under_any_name_unless_some_are_told() -> None:
    assert allowed_hosts("0.0.0.0") is None
    assert ask(allowed_hosts("0.0.0.0"), "any.example").status_code == 200
    assert ask(allowed_hosts("0.0.0.0", named=["maps.example"]), "any.example").status_code == 421


def test_a_body_that_says_it_is_too_large_is_refused_unread() -> None:
    async def send(length: str) -> int:
        transport = httpx.ASGITransport(app=Guard(inside))
        async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
            return (await client.post("/", headers={"content-length": length}, content=b"")).status_code

    assert finished(send(str(MOST_BODY_BYTES + 1))) == 413
    assert finished(send("-1")) == 413
    assert finished(send("many")) == 413


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def test_visitors_are_admitted_by_name_and_password(tmp_path: Path) -> None:
    passwords = Passwords.from_file(write(tmp_path / "who", "# the ward\n\nann:s3cret:with colon\nbob: spaced \n"))
    assert passwords.admit("ann", "s3cret:with colon")
    assert passwords.admit("bob", " spaced ")
    for name, password in (("ann", "s3cret"), ("ann", ""), ("carl", ""), ("", ""), ("bob", "ünï")):
        assert not passwords.admit(name, password)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names nobody"),
        ("# only\n", "names nobody"),
        ("ann\n", "Line 1"),
        ("ann:x\n:y\n", "Line 2"),
        ("a:\n", "Line 1"),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Passwords.from_file(write(tmp_path / "who", text))


@pytest.mark.skipif(os.name != "posix", reason="file modes mean nothing elsewhere")
def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="chmod 600"):
        Passwords.from_file(write(tmp_path / "who", "ann:x\n", 0o644))


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Passwords.from_file(tmp_path / "nobody")
