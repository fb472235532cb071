"""Snapshots of several kinds, made by hand: what an inspection of some network might have found."""

from __future__ import annotations

import math
from typing import Any

from camapp.hooks.report.records import Of, Snapshot, TensorStatistics, Verdict

NAN, INF = math.nan, math.inf


def statistics(name: str, of: Of = "gradient", *, norm: float = 1.0, **figures: Any) -> TensorStatistics:
    """Figures of one tensor, as a normal distribution of that norm would have them."""
    size = math.prod(figures.get("shape", (8, 16, 32, 32)))
    spread = norm / math.sqrt(size) if size else NAN
    return TensorStatistics(
        **{
            "name": name,
            "of": of,
            "kind": "Conv2d",
            "shape": (8, 16, 32, 32),
            "norm": norm,
            "mean": 0.0,
            "abs_max": 4 * spread,
            "zero_share": 0.0,
            "nonfinite": 0,
            "p50": 0.674 * spread,
            "p95": 1.96 * spread,
            "p99": 2.58 * spread,
            **figures,
        }
    )


def ordinary(step: int = 50, loss: float | None = 0.3127) -> Snapshot:
    """A small residual network that learns well."""
    layers = [
        ("conv1", "Conv2d"),
        ("bn1", "BatchNorm2d"),
        ("relu", "ReLU"),
        ("layer1.0.conv1", "Conv2d"),
        ("fc", "Linear"),
    ]
    found = []
    for depth, (name, kind) in enumerate(layers):
        shape = (8, 10) if name == "fc" else (8, 16, 32, 32)
        silent = {"zero_share": 0.5, "dead_units": 0.0} if kind == "ReLU" else {}
        found.append(statistics(name, "activation", kind=kind, shape=shape, norm=400 / (depth + 1), **silent))
        found.append(statistics(name, kind=kind, shape=shape, norm=0.02 * 1.5**depth / (1 + step / 100)))
    for name, shape in {
        "conv1.weight": (16, 3, 3, 3),
        "bn1.weight": (16,),
        "fc.weight": (10, 16),
        "fc.bias": (10,),
    }.items():
        kind = dict(layers)[name.split(".")[0]]
        found.append(
            statistics(
                name, "parameter gradient", kind=kind, shape=shape, norm=0.3 + len(name) / 50, update_ratio=1.2e-3
            )
        )
    return Snapshot(step, loss, tuple(found))


def sick(step: int = 100) -> Snapshot:
    """One layer overflows, one is dead, one gets no gradient to speak of, one none at all."""
    found = (
        statistics("stem.conv", "activation", norm=120.0),
        statistics("stem.conv", norm=0.0, p50=0.0, p95=0.0, p99=0.0, abs_max=0.0, zero_share=1.0),
        statistics(
            "stem.relu", "activation", kind="ReLU", norm=0.0, zero_share=1.0, dead_units=1.0, p50=0.0, p95=0.0, p99=0.0
        ),
        statistics("stem.relu", kind="ReLU", norm=2e-12),
        statistics("body.0.softmax@1", "activation", kind="Softmax", norm=INF, abs_max=INF, nonfinite=3, mean=INF),
        statistics(
            "body.0.softmax@1",
            kind="Softmax",
            norm=NAN,
            abs_max=NAN,
            mean=NAN,
            nonfinite=131072,
            p50=NAN,
            p95=NAN,
            p99=NAN,
        ),
        statistics("body.0.gate", "activation", kind="Sigmoid", norm=3.5, saturated=0.9997),
        statistics("body.0.gate", kind="Sigmoid", norm=4.5e6),
        statistics("frozen", "activation", kind="Identity", norm=3.5),
        statistics(
            "head.weight", "parameter gradient", kind="Linear", shape=(10, 64), norm=NAN, nonfinite=7, zero_share=0.25
        ),
    )
    verdicts = (
        Verdict("body.0.softmax@1", "gradient", "non-finite", "131,072 of 131,072 elements are NaN or infinite."),
        Verdict("body.0.softmax@1", "activation", "non-finite", "3 of 131,072 elements are NaN or infinite."),
        Verdict("head.weight", "parameter gradient", "non-finite", "7 of 640 elements are NaN or infinite."),
        Verdict("body.0.gate", "gradient", "exploding", "The norm is 4.5e+06, 9,000 times its median so far."),
        Verdict("stem.relu", "activation", "dead", "100% of the units are 0 for the whole batch."),
        Verdict("stem.conv", "gradient", "vanishing", "p99 is 0."),
        Verdict("body.0.gate", "activation", "saturated", "99.97% of the elements lie at a limit."),
    )
    return Snapshot(step, NAN, found, verdicts, ("frozen", "frozen.bias"))


def empty() -> Snapshot:
    """A step at which nothing was measured."""
    return Snapshot(0, None, ())


def deep(layers: int = 300, step: int = 0, *, lost: int = 200, silent: int = 20) -> Snapshot:
    """A long network whose gradient fades towards its beginning, with one non-finite layer and one without gradient."""
    found = []
    verdicts = []
    for depth in range(layers):
        kind = ("norm1", "relu1", "conv1", "conv2")[depth % 4]
        name = f"features.denseblock{depth // 100}.denselayer{depth // 4 % 25}.{kind}"
        wave = 1 + 0.3 * math.sin(depth)
        found.append(statistics(name, "activation", norm=300 * wave, kind="Conv2d"))
        norm = 1e-9 * 10 ** (8 * depth / layers) * wave / (1 + step / 200)
        if depth == lost:
            found.append(statistics(name, norm=NAN, nonfinite=17))
            verdicts.append(Verdict(name, "gradient", "non-finite", "17 of 131,072 elements are NaN or infinite."))
        elif depth == silent:
            found.append(statistics(name, norm=0.0, p50=0.0, p95=0.0, p99=0.0))
        else:
            found.append(statistics(name, norm=norm))
        if depth < silent:
            verdicts.append(Verdict(name, "gradient", "vanishing", f"The norm is {norm:.2g}."))
    return Snapshot(step, 2.0, tuple(found), tuple(verdicts))
