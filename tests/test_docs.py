"""The documentation keeps its promises: links lead somewhere, examples compile, what it lists is what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from camapp import errors
from camapp.backbones.cards import read_card

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_and_picture_is_there(page: Path) -> None:
    text = page.read_text()
    for link in [*re.findall(r"\]\(([^)]+)\)", text), *re.findall(r'src="([^"]+)"', text)]:
        if not link.startswith(("http:", "https:", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_example_compiles(page: Path) -> None:
    for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        ast.parse(example)


def test_the_examples_of_hooks_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "hooks.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    for example in examples:
        exec(compile(example, "hooks.md", "exec"), names)
    assert names["hooks"].remaining() == 0
    assert names["storage"].tensor.shape == (8, 8)
    assert names["activations"]["conv"].shape == (4, 8, 14, 14)
    assert str(names["finding"]).startswith("Inf first in the forward of 0 (Linear).")
    assert len(names["snapshots"]) == 3


def test_the_readmes_first_screen_has_exactly_two_commands_and_make_knows_them() -> None:
    first = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert first
    commands = [line.split("#")[0].strip() for line in first[1].splitlines()]
    assert commands == ["make app", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{command.split()[1]}:" in makefile for command in commands)


def test_every_error_class_is_explained() -> None:
    explained = (ROOT / "docs" / "errors.md").read_text()
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.CamappError):
            assert f"`{name}`" in explained or f"camapp.{name}" in explained, name


def test_every_method_and_target_is_described() -> None:
    from camapp.cam import METHODS, targets

    described = (ROOT / "docs" / "methods.md").read_text()
    for name in METHODS:
        assert f"`{name}`" in described, name
    for name in targets.__all__:
        kind = getattr(targets, name)
        if isinstance(kind, type) and issubclass(kind, targets.Target) and name not in ("Target", "CallableTarget"):
            assert f"`{name}" in described, name


def test_the_architecture_names_every_room() -> None:
    described = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "camapp").rglob("*.py"):
        if path.name not in ("__init__.py", "__main__.py") and path.parent.name not in ("ui", "methods"):
            assert path.name in described, path


def test_the_example_card_is_a_card(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL)
    assert example
    text = example[1]
    (tmp_path / "my_birds.toml").write_text(text)
    card = read_card(tmp_path / "my_birds.toml")
    assert card.name == "my_birds"
    assert card.preprocessing.size == (224, 224)
