"""Where the model cards and the sample pictures lie: inside the installed package, or at the top of the source tree."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_folder(name: str) -> Path:
    """The folder of shipped files ``name`` (``"models"`` or ``"assets"``).

    Raises:
        FileNotFoundError: neither the package nor the source tree holds it (a broken installation).
    """
    for folder in (_PACKAGE / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"camapp's {name} folder is missing from the installation; reinstall camapp")
