"""From a file of weights to a model that has them: no code of the file is run, and every tensor fits or is named."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from camapp.backbones.cards import ModelCard
from camapp.backbones.renames import RENAMINGS
from camapp.errors import ModelError, WeightsError, did_you_mean

StateDict = Mapping[str, torch.Tensor]

_WRAPPERS = ("state_dict", "model_state_dict", "model")
_PREFIXES = ("module.", "_orig_mod.", "model.")  # of DataParallel, of torch.compile, of the usual training loops
_SHOWN = 3


def read_state_dict(path: Path) -> StateDict:
    """Read the tensors of a checkpoint; never runs code from it.

    A dict around the state dict (``{"state_dict": ...}`` and the like) and prefixes that all keys share (``module.``
    and the like) are taken off.

    Args:
        path: a ``.safetensors``, ``.pth`` or ``.pt`` file.

    Raises:
        WeightsError: the file is damaged, or holds something else than a plain state dict.
    """
    content = _read_safetensors(path) if path.suffix.lower() == ".safetensors" else _read_pickle(path)
    return _without_prefixes(_unwrap(content, path))


def fill(module: nn.Module, state: StateDict, card: ModelCard, path: Path) -> None:
    """Load a state dict into a module, every tensor of both.

    Args:
        module: the architecture of the card.
        state: what ``read_state_dict`` gave.
        card: says how keys are renamed.
        path: where the state dict comes from, for the error.

    Raises:
        WeightsError: keys are missing or unexpected, or shapes differ.
    """
    state = _in_the_architectures_names(module, state, card)
    own = module.state_dict()
    reshaped = [key for key in own.keys() & state.keys() if own[key].shape != state[key].shape]
    if reshaped:
        missing, unexpected = sorted(own.keys() - state.keys()), sorted(state.keys() - own.keys())
    else:
        # Some modules accept older layouts of their own while loading, so only the outcome counts.
        missing, unexpected = module.load_state_dict(state, strict=False)
    if not (missing or unexpected or reshaped):
        return
    shapes = [
        f"{key} (file {_shape(state[key])}, model {_shape(own[key])})" for key in own if key in set(reshaped)
    ]  # in the order of the model
    faults = [_listed("missing from the file", missing), _listed("unknown to the model", unexpected)]
    faults.append(_listed("of another shape", shapes))
    problem = "; ".join(fault for fault in faults if fault)
    raise WeightsError(f"{path} does not fit {card.architecture}: {problem}.{_hint(own, state, reshaped, card)}")


def _read_safetensors(path: Path) -> object:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is damaged or not a safetensors file: {_first_line(error)}") from error


def _read_pickle(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # its parsers pass on whatever they meet in damaged bytes: struct.error, KeyError, ...
        raise WeightsError(f"{path} {_why_refused(error)}") from error


def _why_refused(error: Exception) -> str:
    """In camapp's words: torch's own advise to read the file without ``weights_only``, that is, to run its code."""
    if "TorchScript" in str(error):
        return "is not a plain state dict but a TorchScript archive. Save model.state_dict() alone."
    if not isinstance(error, pickle.UnpicklingError):
        return f"is damaged or not a PyTorch checkpoint: {_first_line(error)}"
    wanted = re.search(r"GLOBAL (\S+)", str(error))
    if wanted is None:
        return "is damaged or not a PyTorch checkpoint."
    return (
        f"is not a plain state dict: to read it, Python would have to run {wanted[1]}, which camapp never does for a "
        "file of weights. Save model.state_dict() alone, best as .safetensors."
    )


def _unwrap(content: object, path: Path) -> StateDict:
    while isinstance(content, Mapping):
        inner = next((content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    if not isinstance(content, Mapping):
        raise WeightsError(f"{path} is not a state dict but a {type(content).__name__}. Save model.state_dict().")
    odd = next((key for key, value in content.items() if not isinstance(value, torch.Tensor)), None)
    if odd is not None:
        kind = type(content[odd]).__name__
        raise WeightsError(f'{path} is not a plain state dict: "{odd}" is a {kind}, not a tensor.')
    if not content:
        raise WeightsError(f"{path} is an empty state dict.")
    return content


def _without_prefixes(state: StateDict) -> StateDict:
    for prefix in _PREFIXES:
        if all(key.startswith(prefix) for key in state):
            return _without_prefixes({key.removeprefix(prefix): value for key, value in state.items()})
    return state


def _in_the_architectures_names(module: nn.Module, state: StateDict, card: ModelCard) -> StateDict:
    if card.weights.rename:
        if card.weights.rename not in RENAMINGS:
            raise ModelError(
                f'The model card {card.path or card.name} is wrong: weights.rename = "{card.weights.rename}", expected '
                f"one of {', '.join(RENAMINGS)}.{did_you_mean(card.weights.rename, RENAMINGS)}"
            )
        names = RENAMINGS[card.weights.rename](state)
        return {names[key]: value for key, value in state.items()}
    convert = getattr(sys.modules[type(module).__module__], "checkpoint_filter_fn", None)
    if card.weights.kind != "timm" or convert is None or state.keys() == module.state_dict().keys():
        return state
    try:  # some files that timm publishes are in older layouts; the architecture's own source knows how to convert them
        return convert(dict(state), module)
    except (LookupError, AttributeError, RuntimeError, AssertionError):
        return state  # another model's weights: the comparison of the keys says it best


def _listed(what: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {'tensor is' if len(names) == 1 else 'tensors are'} {what}: {', '.join(names[:_SHOWN])}{more}"


def _hint(own: StateDict, state: StateDict, reshaped: Sequence[str], card: ModelCard) -> str:
    """What the head says where its class count is the difference."""
    count = card.labels.count
    for key in reshaped:
        expected, given = own[key].shape, state[key].shape
        if len(expected) == len(given) and expected[:1] == (count,) and expected[1:] == given[1:]:
            return f" The file's head has {given[0]} classes, the card says labels.count = {count}."
    return ""


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "scalar"


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".") + "."
