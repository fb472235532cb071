"""The package as a whole: floors, public names, quick start, and a wheel that works without the tree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import camapp

ROOT = Path(__file__).resolve().parent.parent


def test_every_file_imports_only_from_floors_below_its_own() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 kept, 0 broken" in done.stdout


def test_every_public_name_exists_and_is_documented() -> None:
    for name in camapp.__all__:
        assert (getattr(camapp, name).__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="no attribute 'GradCam'"):
        camapp.GradCam  # noqa: B018


def test_no_public_name_is_hidden_by_a_module_of_the_same_name() -> None:
    """Python binds an imported submodule to its package: camapp.explain would become a module for who comes later."""
    modules = {path.stem for path in (ROOT / "camapp").iterdir()}
    assert not modules & set(camapp.__all__)


@pytest.mark.parametrize(
    "command", [["-c", "import camapp"], ["-m", "camapp", "--help"], ["-m", "camapp", "--version"]]
)
def test_starting_does_not_load_the_heavy_libraries(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert not loaded & {"torch", "torchvision", "timm", "gradio", "cv2", "numpy"}


def test_the_version_is_the_same_everywhere() -> None:
    assert f'version = "{camapp.__version__}"' in (ROOT / "pyproject.toml").read_text()
    assert f"## {camapp.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
    )
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_cards_samples_and_page_files(wheel: Path) -> None:
    names = set(ZipFile(wheel).namelist())
    for path in [*(ROOT / "models").iterdir(), *(ROOT / "assets").iterdir()]:
        assert f"camapp/{path.parent.name}/{path.name}" in names
    for path in (ROOT / "camapp").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyi":
            assert path.relative_to(ROOT).as_posix() in names
    assert not [name for name in names if re.match(r"(tests|benchmarks|docs)/", name)]


def test_the_wheel_alone_explains_a_picture(wheel: Path, tmp_path: Path) -> None:
    """Unpacked in an empty folder and run from there, with nothing of the tree on the path."""
    site = tmp_path / "site"
    ZipFile(wheel).extractall(site)
    program = (
        f"import sys; sys.path[:] = [p for p in sys.path if p != {str(ROOT)!r}]; sys.path.insert(0, {str(site)!r});"
        f"import camapp, camapp.resources as r; assert camapp.__file__.startswith({str(site)!r}), camapp.__file__;"
        "e = camapp.explain('efficientnet_lite0', r.resource_folder('assets') / 'chelsea.jpg');"
        "print(e.predictions[0].index)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program] if sys.version_info >= (3, 11) else [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) in {281, 282, 285}
