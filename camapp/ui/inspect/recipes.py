"""The same looks as library code and as a command, to be copied; and the address of a look."""

from __future__ import annotations

import shlex
from pathlib import Path

from camapp.channels import ChannelMaps
from camapp.inspection import Inspection
from camapp.ui.frame.calls import CalledModel, here
from camapp.ui.frame.samples import is_sample
from camapp.ui.inspect.choices import Choices

Copies = list[list[str]]


def copies_of_channels(maps: ChannelMaps, choices: Choices, target: int | None) -> Copies:
    """A program that takes the same channels, and a command that saves them."""
    options = f", ranking={maps.ranking!r}" if maps.ranking != "mean" else ""
    if maps.ranking == "gradient" and target is not None:
        options += f", target={target}"
    scale = f", scale={choices.scale!r}" if choices.scale != "channel" else ""
    model = CalledModel(maps.model, maps.random_weights)
    imports = "import camapp\n" if maps.random_weights else ""
    program = (
        f"{model.hint}{imports}from camapp.channels import channel_maps\n\n"
        f"maps = channel_maps({model.python}, {maps.picture.name!r}, {maps.layer!r}{options})\n"
        f"print(maps.top(5), len(maps.dead), 'dead')\n"
        f"maps.save('channels', most={choices.most}{scale})\n"
    )
    words = ["camapp", "channels", here(maps.picture.name), maps.layer]
    words += [*CalledModel(maps.model, maps.random_weights).words, "--ranking", maps.ranking]
    words += ["--target", str(target)] if maps.ranking == "gradient" and target is not None else []
    words += ["--most", str(choices.most), "--scale", choices.scale, "--out", "channels"]
    return [["Copy Python", program], ["Copy command", shlex.join(words)]]


def address_of(choices: Choices, layer: str, *, recommended: bool) -> dict[str, str]:
    """What the page's address says of a look: everything but an uploaded picture; "" for what is as usual."""
    usual = Choices(None, choices.model)
    picture = choices.picture if is_sample(choices.picture) else None
    return {
        "model": choices.model,
        "layer": "" if recommended else layer,
        "class": "" if choices.top else str(choices.target),
        "rank": "" if choices.ranking == usual.ranking else choices.ranking,
        "channels": "" if choices.most == usual.most else str(choices.most),
        "scale": "" if choices.scale == usual.scale else choices.scale,
        "sample": Path(picture).name if picture else "",
    }


def copies_of_inspection(inspection: Inspection, target: int | None) -> Copies:
    """A program and a command that make the same inspection."""
    (picture,) = inspection.pictures
    chosen = "" if target is None else f", target={target}"
    model = CalledModel(inspection.model, inspection.random_weights)
    program = (
        f"{model.hint}import camapp\n\n"
        f"inspection = camapp.inspect_pictures({model.python}, {picture.name!r}{chosen})\n"
        "print(inspection)\n"
        "inspection.save('inspection')\n"
    )
    words = ["camapp", "inspect", here(picture.name)]
    words += [*CalledModel(inspection.model, inspection.random_weights).words, "--out", "inspection"]
    words += [] if target is None else ["--target", str(target)]
    return [["Copy Python", program], ["Copy command", shlex.join(words)]]
