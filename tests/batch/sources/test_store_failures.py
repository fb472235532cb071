"""What goes wrong with a store is said in words, with the URL, and fails no more than it must."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from fsspec.registry import known_implementations

from camapp.batch.sources import Reader, list_items
from camapp.batch.sources.store_failures import shown
from camapp.errors import CamappError, StoreError
from tests.batch.sources.stores import CountedStore


class NoCredentialsError(Exception):
    """As the package of a store raises it, without a base class in common."""


@pytest.fixture(autouse=True)
def _store() -> None:
    CountedStore.reset()
    for name in ("a.jpg", "b.jpg"):
        fsspec.filesystem("counted").pipe_file(f"/bucket/{name}", name.encode())


FAILURES = [
    (PermissionError("Forbidden"), r"refused \(PermissionError: Forbidden\)\. Check your credentials"),
    (NoCredentialsError("Unable to locate credentials"), r"refused .*locate credentials.*Check your credentials"),
    (ConnectionRefusedError(111, "Connection refused"), r"cannot be reached .*Connection refused"),
    (TimeoutError(), r"cannot be reached \(TimeoutError\)"),
    (RuntimeError("no\nsense"), r"could not be read \(RuntimeError: no sense\)"),
]


@pytest.mark.parametrize(("error", "says"), FAILURES)
def test_a_store_that_fails_is_named(error: Exception, says: str) -> None:
    CountedStore.failures["bucket"] = error
    for source in ("counted://bucket", "counted://bucket/a.jpg", "counted://bucket/*.jpg", "counted://bucket/z.zip"):
        with pytest.raises(StoreError, match=rf"counted://bucket.* {says}"):
            list_items(source)


@pytest.mark.parametrize(("error", "says"), FAILURES)
def test_one_picture_that_fails_stops_no_other(error: Exception, says: str, tmp_path: Path) -> None:
    listed = tmp_path / "l.txt"
    listed.write_text("counted://bucket/a.jpg\ncounted://bucket/b.jpg\n")
    CountedStore.failures["a.jpg"] = error
    for source in (listed, ["counted://bucket/a.jpg", "counted://bucket/b.jpg"], "counted://bucket"):
        first, second = list_items(source)
        with Reader() as reader:
            with pytest.raises(StoreError, match=rf"counted://bucket/a\.jpg .*{says}"):
                reader.read(first)
            assert reader.read(second) == b"b.jpg"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nosuch://bucket/a.jpg", r'nosuch://bucket/a\.jpg begins with "nosuch://", which is not known. Known are s3'),
        ("zip://a.jpg", r"zip://a\.jpg "),
    ],
)
def test_protocols_that_nobody_reads_are_refused_alone(url: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=says):
        list_items(url)
    listed = tmp_path / "l.txt"
    listed.write_text(f"{url}\ncounted://bucket/b.jpg\n")
    first, second = list_items(listed)
    with Reader() as reader:
        with pytest.raises(CamappError, match=says):
            reader.read(first)
        assert reader.read(second) == b"b.jpg"


def test_a_package_that_is_missing_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"class": "no_such_package_at_all.FileSystem", "err": "Install it"}
    for protocol, package in (("oss", "ossfs"), ("tosfs", "a package that reads tosfs://")):
        monkeypatch.setitem(known_implementations, protocol, missing)
        with pytest.raises(StoreError, match=rf"{protocol}://b/x needs a package .*[Ii]nstall {package}"):
            list_items(f"{protocol}://b/x")


def test_messages_show_no_password_and_no_signature() -> None:
    assert shown("sftp://me:word@host/a.jpg") == "sftp://host/a.jpg"
    assert shown("https://host/a.jpg?X-Amz-Signature=abc") == "https://host/a.jpg?..."
    CountedStore.failures["a.jpg"] = RuntimeError("500 for counted://bucket/a.jpg?sig=abc and https://u:p@h/x?sig=abc")
    with pytest.raises(StoreError) as caught:
        list_items("counted://bucket/a.jpg?sig=abc")
    assert "abc" not in str(caught.value)
    assert "u:p" not in str(caught.value)
