"""run.json: what an export was asked for and on what, while it runs and when it is done."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from camapp.errors import UsageError
from camapp.files import write_atomically

RUN_FILE = "run.json"


@dataclass(frozen=True)
class RunState:
    """What is known of a run while it is going on.

    Args:
        settings: that the outputs depend on, as JSON holds them.
        shard_size: inputs a shard.
        fingerprint: of the source.
        total: inputs of the source.
        versions: of the libraries, at the first start.
        started: the first start, in ISO 8601, UTC.
        session: this start, in seconds since 1970.
        seconds: that earlier starts took, up to their last finished shard.
        other_versions: of later starts, where they were others.
    """

    settings: dict[str, Any]
    shard_size: int
    fingerprint: str
    total: int
    versions: dict[str, str]
    started: str
    session: float
    seconds: float = 0.0
    other_versions: tuple[dict[str, str], ...] = ()

    def save(self, path: Path) -> None:
        """Write the state, whole or not at all."""
        write_atomically(path, json_bytes(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> RunState:
        """Read what ``save`` wrote.

        Raises:
            UsageError: the file is damaged.
        """
        try:
            fields = json.loads(path.read_bytes())
            return cls(**{**fields, "other_versions": tuple(fields["other_versions"])})
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{path}, which says how to go on with the export, is damaged ({error}). Start anew: --overwrite "
                "(overwrite=True)."
            ) from error


def read_run(out: str | os.PathLike[str]) -> dict[str, Any]:
    """What run.json says of a finished export: versions, settings, facts, source, counts, times.

    Args:
        out: the export's folder.

    Raises:
        UsageError: there is no such file in the folder.
    """
    try:
        return json.loads((Path(out) / RUN_FILE).read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{out} holds no finished export: there is no {RUN_FILE} in it.") from None


def checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON gives them back, so that those of two runs can be compared.

    Raises:
        UsageError: they hold what JSON cannot.
    """
    try:
        return json.loads(json.dumps(dict(settings), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"The settings {dict(settings)!r} cannot be written as JSON: {error}. Give texts, finite numbers, lists "
            "and dictionaries of these."
        ) from error


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two settings, one text each: ``method was "gradcam" and is now "layercam"``."""
    old, new = _flat(before), _flat(now)
    return [
        f"{name} was {_shown(old, name)} and is now {_shown(new, name)}"
        for name in dict.fromkeys([*old, *new])
        if _shown(old, name) != _shown(new, name)
    ]


def json_bytes(content: Any) -> bytes:
    """Strict JSON in UTF-8, keys in the order given; what JSON cannot hold is null (NaN) or text."""
    text = json.dumps(_plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode("utf-8", "backslashreplace")  # half pairs become JSON's own \udcff


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _shown(settings: dict[str, Any], name: str) -> str:
    if name not in settings:
        return "not set"
    text = json.dumps(settings[name], ensure_ascii=False, sort_keys=True)
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    return _plain(value.item()) if hasattr(value, "item") else str(value)
