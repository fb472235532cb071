"""``python -m benchmarks.families``: every family of networks, its recommended layer, and whether its map is right.

One network of each timm module, each torchvision family and each torchvision video network, with random weights.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from rich.console import Console
from rich.table import Table
from torch import nn

from camapp.backbones.layouts import find_layout
from camapp.backbones.recommend import recommended_layer, stages
from camapp.cam import GradCAM
from camapp.errors import CamappError
from camapp.hooks.as_found import as_found
from camapp.hooks.capture import Capture

# The smallest member of each timm module, but for those that take no single picture of one size.
TIMM = """
    beit_base_patch16_224 halonet26t mobileone_s0 gernet_s bat_resnext26ts eca_resnext26ts cait_xxs24_224
    coat_tiny coat_lite_tiny convit_tiny convmixer_768_32 convnext_atto convnextv2_atto cpubone_nano
    crossvit_tiny_240 csatv2 cs3darknet_s darknet53 cspresnet50 cspnext_tiny davit_tiny
    deit_tiny_distilled_patch16_224 deit3_small_patch16_224 densenet121 dla46x_c dpn48b edgenext_xx_small
    efficientformer_l1 efficientformerv2_s0 mnasnet_small mixnet_s tf_efficientnet_lite0 efficientvim_m1
    efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224 fasternet_t0 fastvit_t8 focalnet_tiny_srf
    gcvit_xxtiny ghostnet_050 hardcorenas_b hgnetv2_b0 hiera_tiny_224 hrnet_w18_small iformer_t
    inception_next_atto inception_resnet_v2 inception_v3 inception_v4 lcnet_050 lcnetv2_small levit_128s
    levit_conv_128s lowformer_b0 mambaout_femto maxvit_pico_rw_256 coatnet_pico_rw_224 poolformer_s12
    caformer_s18 mixer_s32_224 resmlp_12_224 gmlp_ti16_224 mobilenetv3_small_050 mobilenetv4_conv_small
    mobilevit_xxs mobilevitv2_050 mvitv2_tiny nest_tiny nextvit_small nf_regnet_b0 dm_nfnet_f0 nasnetalarge
    pit_ti_224 pit_ti_distilled_224 pnasnet5large pvt_v2_b0 rdnet_tiny regnetx_002 repghostnet_050 repvgg_a0
    repvit_m1 res2net50_26w_4s resnest14d resnet10t resnetv2_18 rexnet_100 selecsls42 legacy_seresnet18
    sequencer2d_s shvit_s1 skresnet18 starnet_s050 swiftformer_xs swin_tiny_patch4_window7_224
    swinv2_tiny_window8_256 swinv2_cr_tiny_224 tiny_vit_5m_224 tnt_s_patch16_224 tresnet_m twins_svt_small
    twins_pcpvt_small vgg11_bn visformer_tiny vit_tiny_patch16_224 vit_small_patch32_224 vit_small_patch8_224
    vit_small_patch14_reg4_dinov2 vit_little_patch16_reg4_gap_256 vit_tiny_r_s16_p8_224
    vit_srelpos_small_patch16_224 vit_relpos_small_patch16_224 samvit_base_patch16_224 vitamin_small_224
    volo_d1_224 ese_vovnet19b_slim_dw xception xception41p xcit_nano_12_p8_224
"""
TORCHVISION = """
    alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5
    mobilenet_v2 mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnet50 resnext50_32x4d shufflenet_v2_x0_5
    squeezenet1_1 swin_t swin_v2_t vgg11 vit_b_16 wide_resnet50_2
"""
VIDEO = ("mc3_18", "mvit_v1_b", "mvit_v2_s", "r2plus1d_18", "r3d_18", "s3d", "swin3d_t")
FRAMES = 16


@dataclass(frozen=True)
class Family:
    """What one network of a family gave.

    Args:
        name: the network, ``timm/NAME``, ``torchvision/NAME`` or ``video/NAME``.
        inputs: the extent of its inputs.
        layer: the recommended layer; empty where there is none.
        grid: the extent of that layer's map.
        map: ``"shown"``, or why there is none.
        in_place: of the four corners of the picture, how many change their own corner of the map the most when marked.
        fused: the coarse and the fine layer, or why there are none.
        seconds: for building, the dry run and the map.
    """

    name: str
    inputs: str
    layer: str
    grid: str
    map: str
    in_place: int | None
    fused: str
    seconds: float


def main() -> None:
    """Sweep the families; exit code 0 whatever the maps are, for the table is the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.families", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a network")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--only", default="", help="only the networks whose name matches this pattern")
    parser.add_argument("--threads", type=int, default=2, help="torch threads (default 2)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    rows: list[Family] = []
    for name in names():
        if not re.search(options.only, name):
            continue
        rows.append(sweep(name))
        if options.json:
            print(json.dumps(asdict(rows[-1])), flush=True)
    if not options.json:
        Console(width=220).print(_table(rows))
    if options.markdown:
        options.markdown.write_text(_markdown(rows), encoding="utf-8")


def names() -> list[str]:
    """All networks of the sweep."""
    timms = [f"timm/{name}" for name in TIMM.split() if timm.is_model(name)]
    return [*timms, *(f"torchvision/{name}" for name in TORCHVISION.split()), *(f"video/{name}" for name in VIDEO)]


def sweep(name: str) -> Family:
    """Build one network, explain one picture with it, and look where a marked corner shows."""
    torch.manual_seed(0)
    start = time.perf_counter()
    layer, grid, fused, corners = "", "", "", None
    size: tuple[int, ...] = ()
    try:
        model, size = build(name)
        inputs = blobs(size)
        layer = recommended_layer(model, inputs)
        shown, grid = _explained(model, inputs)
        seconds = time.perf_counter() - start
        corners = corners_in_place(model, layer, size)
        fused = _fused(model, inputs)
    except CamappError as error:
        seconds = time.perf_counter() - start
        shown = str(error)
    except Exception as error:
        seconds = time.perf_counter() - start
        shown = f"{type(error).__name__}: {error}"
    gc.collect()
    return Family(name, _text(size), layer, grid, " ".join(shown.split()), corners, fused, round(seconds, 2))


def build(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A network with random weights, no weight of its head zero, and the extent of its inputs."""
    kind, _, plain = name.partition("/")
    if kind == "timm":
        options: dict[str, Any] = {"img_size": 224} if plain.endswith("dinov2") else {}  # 518 is slow, and no other map
        model = timm.create_model(plain, pretrained=False, **options)
        default: Any = model.default_cfg
        size = (224, 224) if options else tuple(default["input_size"][1:])
    elif kind == "video":
        model = torchvision.models.get_model(plain, weights=None)
        size = (FRAMES, 112, 112) if plain.endswith("18") else (FRAMES, 224, 224)
    else:
        extra = {"init_weights": False} if plain in ("googlenet", "inception_v3") else {}
        model = torchvision.models.get_model(plain, weights=None, **extra)
        size = (299, 299) if plain == "inception_v3" else (224, 224)
    wake(model)
    return model.eval(), size


@torch.no_grad()
def wake(model: nn.Module) -> None:
    """Give weight matrices that a network begins with at zero random values: zeros let no gradient through."""
    for parameter in model.parameters():
        if parameter.dim() > 1 and not parameter.any():
            nn.init.normal_(parameter, std=0.02)


def blobs(size: tuple[int, ...]) -> torch.Tensor:
    """A picture, clip or volume of that size (1, 3, ...), of smooth random blobs with a little noise."""
    modes = {1: "linear", 2: "bilinear", 3: "trilinear"}
    coarse = torch.randn(1, 3, *(min(8, extent) for extent in size))
    smooth = nn.functional.interpolate(coarse, size=size, mode=modes[len(size)], align_corners=False)
    return smooth + 0.1 * torch.randn(1, 3, *size)


@torch.no_grad()
def corners_in_place(model: nn.Module, layer: str, size: tuple[int, ...]) -> int:
    """Of the four corners of a map, how many change the most when that corner of the picture is marked.

    Each corner in turn gets a bright patch on the same picture. A map in the wrong order, or with its axes swapped,
    moves elsewhere. Means over the corners, so that what a mark moves everywhere does not count.
    """
    picture = 0.2 * blobs(size)
    plain = _maps(model, layer, picture)
    corners = list(product((0, 1), repeat=2))
    moved = []
    for corner in corners:
        marked = picture.clone()
        marked[_corner(marked, corner, 4)] += 2.0
        moved.append((_maps(model, layer, marked) - plain).pow(2).sum(1, keepdim=True))
    shares = torch.stack(moved)
    shares = shares / shares.flatten(1).sum(1).view(-1, *(1,) * (shares.dim() - 1))
    found = 0
    for index, corner in enumerate(corners):
        here = torch.stack([share[_corner(share, corner, 2)].mean() for share in shares])
        found += int(here.argmax()) == index
    return found


def _maps(model: nn.Module, layer: str, inputs: torch.Tensor) -> torch.Tensor:
    with as_found(model), Capture(model, [layer]) as capture:
        model(inputs.clone())
    activation = capture[layer].activation
    return find_layout(model, layer, activation.shape, inputs.shape).to_maps(activation).double()


def _corner(maps: torch.Tensor, corner: tuple[int, ...], parts: int) -> tuple[Any, ...]:
    """The part of one corner of the last two axes, a ``parts``-th of each."""
    spans = []
    for extent, end in zip(maps.shape[-2:], corner, strict=True):
        length = max(1, extent // parts)
        spans.append(slice(extent - length, extent) if end else slice(0, length))
    return (..., *spans)


def _explained(model: nn.Module, inputs: torch.Tensor) -> tuple[str, str]:
    result = GradCAM(model)(inputs)
    grid = _text(tuple(result.raw.shape[1:]))
    if not torch.isfinite(result.maps).all():
        return "not finite", grid
    return (str(result.reasons[0]) if result.reasons[0] else "shown"), grid


def _fused(model: nn.Module, inputs: torch.Tensor) -> str:
    try:
        found = stages(model, inputs)
    except CamappError:
        return "none"
    return f"{found.coarse}, {found.fine}"


def _text(extents: tuple[int, ...]) -> str:
    return "x".join(map(str, extents))


def _cells(rows: list[Family]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        corners = "" if row.in_place is None else f"{row.in_place} of 4"
        yield row.name, row.inputs, row.layer, row.grid, row.map, corners, row.fused, f"{row.seconds:.1f}"


COLUMNS = ("network", "input", "recommended layer", "map", "Grad-CAM", "corners", "coarse, fine", "seconds")


def _table(rows: list[Family]) -> Table:
    table = Table(title="families", title_justify="left", box=None, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="right" if column == "seconds" else "left")
    for cells in _cells(rows):
        table.add_row(*cells)
    return table


def _markdown(rows: list[Family]) -> str:
    shown = sum(row.map == "shown" for row in rows)
    placed = sum(row.in_place == 4 for row in rows)
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "torchvision", "timm"))
    lines = [
        "# Families",
        "",
        "Made by `python -m benchmarks.families --markdown docs/families.md`.",
        "",
        f"{len(rows)} networks with random weights ({packages}): {shown} show a Grad-CAM map at the layer that is",
        f"recommended; {placed} change each corner of that map the most when that corner of the picture is marked.",
        "",
        '"No positive evidence" is what Grad-CAM finds about the top class of these random weights, and no fault of',
        "the layer. Fewer corners than four need not be a fault either: random weights may spread a mark over all of",
        "a small last map. `coarse, fine` are the layers that the method `fused` takes beside the recommended one.",
        "Seconds are of building and explaining on the machine that made the table: compare them roughly.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + " --- |" * len(COLUMNS),
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in _cells(rows)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
