"""Exports of many pictures: EfficientNet-Lite0, 640 x 480 JPEGs, beside their own stages and beside plain loops.

What a picture costs is taken from two runs, one of twice as many pictures as the other: what starting costs (processes,
imports, models) is in both, and falls out.
"""

from __future__ import annotations

import io
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.models._features_fx import create_feature_extractor  # torchvision's cannot trace same padding
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

import camapp
from benchmarks.measure import Row
from benchmarks.stages import cpu_seconds, make_pictures, spend
from camapp.batch import RunOptions, export_features, export_heatmaps
from camapp.batch.jobs.features import FeatureJob
from camapp.batch.jobs.heatmaps import HeatmapJob
from camapp.batch.jobs.job import Job, ModelChoice, at_precision
from camapp.resources import resource_folder

MODEL, WORKERS = "efficientnet_lite0", 2
FEW, STAGED = 120, 48


@dataclass(frozen=True)
class Cost:
    """What one picture costs.

    Args:
        cpu: seconds of processors.
        wall: seconds on the clock.
    """

    cpu: float
    wall: float


def run(rounds: int) -> Iterator[Row]:
    """The rows; ``rounds`` is not heeded, since each is a run of its own."""
    folder = Path(tempfile.mkdtemp(prefix="export-"))
    try:
        few, many = folder / "few", folder / "many"
        make_pictures(few, FEW)
        make_pictures(many, 2 * FEW)
        yield from _heatmaps(folder, few, many)
        yield from _features(folder, few, many)
        yield from _options()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _heatmaps(folder: Path, few: Path, many: Path) -> Iterator[Row]:
    def export(source: Path, out: Path) -> None:
        export_heatmaps(MODEL, source, out, outputs=("overlay",), shard_size=20, run=RunOptions(workers=WORKERS))

    stages = _stages(HeatmapJob(ModelChoice(MODEL), outputs=("overlay",)), few, folder / "staged")
    cost = _cost(export, few, many, folder)
    peer = _cost(_grad_cam_loop, few, many, folder)
    yield from _rows("heatmaps with overlays", stages, cost)
    yield Row("heatmaps: a plain loop over grad-cam / export", peer.wall / cost.wall, ">= 3", _figures(peer, cost))


def _features(folder: Path, few: Path, many: Path) -> Iterator[Row]:
    def export(source: Path, out: Path) -> None:
        export_features(MODEL, source, out, shard_size=20, run=RunOptions(workers=WORKERS))

    stages = _stages(FeatureJob(ModelChoice(MODEL)), few, folder / "staged")
    cost = _cost(export, few, many, folder)
    peer = _cost(_loader_loop, few, many, folder)
    yield from _rows("features", stages, cost)
    yield Row("features: DataLoader and FX loop / export", peer.wall / cost.wall, ">= 1.3", _figures(peer, cost))


def _options() -> Iterator[Row]:
    """What drafts and lower precision win and change: the sample pictures, enlarged to 12 megapixels."""
    model = camapp.load_model(MODEL, device="cpu")
    extractor, gradcam = camapp.FeatureExtractor(model, dtype="float32"), camapp.GradCAM(model)
    spent: dict[str, list[float]] = {"whole": [], "draft": []}
    alike: dict[str, list[float]] = {"draft": [], "bfloat16": []}

    def compare(name: str, whole: torch.Tensor, other: torch.Tensor, target: int) -> None:
        with at_precision("bfloat16" if name == "bfloat16" else "float32", model.device):
            feature, heat = extractor(other)["penultimate"], gradcam(other, target).raw
        cosine = torch.cosine_similarity(extractor(whole)["penultimate"], feature).item()
        correlation = torch.corrcoef(torch.stack([gradcam(whole, target).raw.flatten(), heat.flatten()]))[0, 1].item()
        alike[name].append(min(cosine, correlation))

    for path in sorted(resource_folder("assets").glob("*.jpg")):
        buffer = io.BytesIO()
        Image.open(path).convert("RGB").resize((4000, 3000), Image.Resampling.BICUBIC).save(buffer, "jpeg", quality=92)
        inputs = {}
        for name, sides in (("whole", None), ("draft", model.sides_for_draft())):
            begun = time.process_time()
            placed = model.place(camapp.decode(buffer.getvalue(), at_least=sides))
            spent[name].append(time.process_time() - begun)
            inputs[name] = model.inputs([placed])
        target = int(extractor.backbone(inputs["whole"]).argmax())
        compare("draft", inputs["whole"], inputs["draft"], target)
        compare("bfloat16", inputs["whole"], inputs["whole"], target)
    whole, draft = (median(spent[name]) for name in ("whole", "draft"))
    figures = f"{whole * 1e3:.0f} ms, {draft * 1e3:.0f} ms"
    yield Row("12 megapixels: decoded whole / as a draft", whole / draft, None, figures)
    for name, values in alike.items():
        yield Row(f"{name}: features and maps like the usual ones, at least", min(values), None, "cosine, correlation")


def _rows(what: str, stages: dict[str, float], cost: Cost) -> Iterator[Row]:
    total = sum(stages.values())
    parts = ", ".join(f"{name} {seconds * 1e3:.1f} ms" for name, seconds in stages.items())
    yield Row(f"{what}: CPU of the export / sum of its stages", cost.cpu / total, "<= 1.15", parts)
    yield Row(f"{what}: wall of the export / sum of its stages", cost.wall / total, "<= 0.62", _figures(cost))


def _figures(*costs: Cost) -> str:
    return ", ".join(f"{cost.wall * 1e3:.1f} ms wall, {cost.cpu * 1e3:.1f} ms CPU" for cost in costs)


def _stages(job: Job, source: Path, out: Path) -> dict[str, float]:
    """Seconds of processors a picture, of each stage alone, in one thread."""
    spent = spend(job, sorted(source.iterdir())[:STAGED], out)
    return {
        "decode": spent.read + spent.decode,
        "model": spent.model,
        "write": spent.write + spent.end / STAGED,
    }


def _cost(export: Callable[[Path, Path], None], few: Path, many: Path, folder: Path) -> Cost:
    """What a picture more costs."""
    costs = []
    for source in (few, many):
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        cpu, wall = cpu_seconds(), time.perf_counter()
        export(source, out)
        costs.append(Cost(cpu_seconds() - cpu, time.perf_counter() - wall))
    return Cost((costs[1].cpu - costs[0].cpu) / FEW, (costs[1].wall - costs[0].wall) / FEW)


def _grad_cam_loop(source: Path, out: Path) -> None:
    """What a user of grad-cam writes: one picture after the other, the overlay at the picture's size, as JPEG."""
    from pytorch_grad_cam import GradCAM
    from pytorch_grad_cam.utils.image import show_cam_on_image

    loaded = camapp.load_model(MODEL, device="cpu")
    prepare = _transforms(loaded)
    out.mkdir()
    layer = loaded.module.get_submodule("bn2")
    with GradCAM(model=loaded.module, target_layers=[layer]) as cam:
        for path in sorted(source.iterdir()):
            image = Image.open(path).convert("RGB")
            heatmap = cam(input_tensor=prepare(image)[None], targets=None)[0]
            heatmap = np.asarray(Image.fromarray(heatmap).resize(image.size, Image.Resampling.BILINEAR))
            painted = show_cam_on_image(np.asarray(image, np.float32) / 255, heatmap, use_rgb=True)
            Image.fromarray(painted).save(out / path.name, quality=90)


class _Pictures(Dataset[Any]):
    """A folder of pictures, as tutorials write it."""

    def __init__(self, folder: Path, prepare: Callable[[Image.Image], torch.Tensor]) -> None:
        self._paths = sorted(folder.iterdir())
        self._prepare = prepare

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        return self._prepare(Image.open(self._paths[number]).convert("RGB"))


def _loader_loop(source: Path, out: Path) -> None:
    """What a user of torchvision writes: a DataLoader with workers, a truncated FX graph, one file."""
    loaded = camapp.load_model(MODEL, device="cpu")
    graph = create_feature_extractor(loaded.module, ["global_pool.flatten"])
    out.mkdir()
    loader = DataLoader(_Pictures(source, _transforms(loaded)), batch_size=32, num_workers=WORKERS)
    with torch.inference_mode():
        features = [graph(batch)["global_pool.flatten"] for batch in loader]
    np.save(out / "features.npy", torch.cat(features).numpy())


def _transforms(loaded: camapp.LoadedModel) -> Callable[[Image.Image], torch.Tensor]:
    how = loaded.card.input
    return v2.Compose(
        [
            v2.Resize(how.resize, interpolation=v2.InterpolationMode.BICUBIC),
            v2.CenterCrop(how.size),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(how.mean, how.std),
        ]
    )
