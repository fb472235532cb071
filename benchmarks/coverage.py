"""``python -m benchmarks.coverage``: every method on one network of each kind, with its recommended layer."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from rich.console import Console
from rich.table import Table
from torch import nn

from camapp.backbones.load import wake_silent_layers
from camapp.cam.methods import METHODS
from camapp.errors import CamappError
from camapp.files import write_atomically

Build = Callable[[], nn.Module]

NETWORKS: dict[str, tuple[Build, tuple[int, ...]]] = {
    "resnet18": (lambda: torchvision.models.resnet18(weights=None), (3, 224, 224)),
    "densenet121": (lambda: torchvision.models.densenet121(weights=None), (3, 224, 224)),
    "convnext_tiny": (lambda: torchvision.models.convnext_tiny(weights=None), (3, 224, 224)),
    "mobilenet_v3_small": (lambda: torchvision.models.mobilenet_v3_small(weights=None), (3, 224, 224)),
    "swin_t": (lambda: torchvision.models.swin_t(weights=None), (3, 224, 224)),
    "vit_b_16": (lambda: torchvision.models.vit_b_16(weights=None), (3, 224, 224)),
    "deit distilled": (lambda: timm.create_model("deit_tiny_distilled_patch16_224"), (3, 224, 224)),
    "vit registers": (lambda: timm.create_model("vit_little_patch16_reg4_gap_256"), (3, 256, 256)),
    "3-D r3d_18": (lambda: torchvision.models.video.r3d_18(weights=None), (3, 8, 64, 64)),
}

# Methods that run the network once a channel are cut short here: the table shows whether they work, not their maps.
SHORT: dict[str, dict[str, Any]] = {
    "scorecam": {"top_channels": 8},
    "sscam": {"top_channels": 4, "samples": 2},
    "iscam": {"top_channels": 4, "steps": 2},
    "smoothgradcam++": {"samples": 2},
    "sess": {"scales": 2},
}


@dataclass(frozen=True)
class Cell:
    """How one method did on one network.

    Args:
        network: the network's name.
        method: the method's name.
        outcome: "map", or why there is none.
        layer: the layer explained.
        seconds: how long it took.
    """

    network: str
    method: str
    outcome: str
    layer: str
    seconds: float

    @property
    def works(self) -> bool:
        """Whether there was a finite map that is not blank."""
        return self.outcome == "map"


def cells(networks: list[str], methods: list[str]) -> Iterator[Cell]:
    """Every method on every network, of random weights and a random picture of soft spots."""
    for name in networks:
        build, size = NETWORKS[name]
        torch.manual_seed(0)
        model = build().eval()
        wake_silent_layers(model)
        inputs = _spots(size)
        for method in methods:
            cell = _try(name, model, inputs, method)
            print(f"{name}, {method}: {cell.seconds:.1f} s", file=sys.stderr)
            yield cell


def _try(network: str, model: nn.Module, inputs: torch.Tensor, method: str) -> Cell:
    start = time.perf_counter()
    layer = ""
    try:
        result = METHODS[method](model, **SHORT.get(method, {}))(inputs)
        layer = result.layer
        outcome = str(result.reasons[0]) if result.reasons[0] else "map"
        if outcome == "map" and not (result.maps.isfinite().all() and result.maps.any()):
            outcome = "a map without values"
    except CamappError as error:
        outcome = f"refused: {error}"
    except Exception as error:  # a sweep goes on, and counts it as what it is
        outcome = f"error: {type(error).__name__}: {error}"
    return Cell(network, method, outcome, layer, time.perf_counter() - start)


def _spots(size: tuple[int, ...]) -> torch.Tensor:
    """A picture (1, C, *size) of soft random spots: noise has no places, and a flat picture no evidence."""
    coarse = torch.randn(1, size[0], *(max(2, side // 32) for side in size[1:]))
    mode = {1: "linear", 2: "bilinear", 3: "trilinear"}[len(size) - 1]
    return nn.functional.interpolate(coarse, size=size[1:], mode=mode, align_corners=False)


def main() -> None:
    """Print the table; exit code 1 where a method fails without saying why."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--markdown", type=Path, help="write the table there too")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    torch.set_num_threads(2)
    found = {(cell.network, cell.method): cell for cell in cells(options.networks, options.methods)}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    for network in options.networks:
        table.add_column(network)
    for method in options.methods:
        table.add_row(method, *(_word(found[network, method]) for network in options.networks))
    Console(width=200).print(table)
    notes = _notes(list(found.values()))
    print("\n".join(notes))
    if options.markdown:
        write_atomically(options.markdown, _markdown(options.networks, options.methods, found, notes).encode())
    sys.exit(any(cell.outcome.startswith("error") for cell in found.values()))


def _word(cell: Cell) -> str:
    if cell.works:
        return "yes"
    kind = cell.outcome.partition(":")[0]
    return kind if kind in ("refused", "error") else "blank"


def _notes(found: list[Cell]) -> list[str]:
    """Each reason once, with where it was met."""
    met: dict[str, list[str]] = {}
    for cell in found:
        if not cell.works:
            met.setdefault(f"{cell.method}: {cell.outcome}", []).append(cell.network)
    return [f"- {reason} ({', '.join(networks)})" for reason, networks in met.items()]


def _markdown(networks: list[str], methods: list[str], found: dict[tuple[str, str], Cell], notes: list[str]) -> str:
    lines = [
        "# Methods and networks",
        "",
        "Every method on one network of each kind with its recommended layer, random weights and a random picture:",
        "whether it gives a finite map that is not blank, or refuses. Made by `python -m benchmarks.coverage`.",
        "",
        f"| method | {' | '.join(networks)} |",
        f"| --- |{' --- |' * len(networks)}",
        *(f"| {method} | {' | '.join(_word(found[network, method]) for network in networks)} |" for method in methods),
        "",
        "## Why not",
        "",
        *notes,
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
