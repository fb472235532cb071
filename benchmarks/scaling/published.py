"""Figures that were not measured here: published rates of GPUs, and prices, which the reader must replace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedRate:
    """What somebody measured.

    Args:
        rate: forwards a second of EfficientNet-Lite0 at 224 x 224, in half precision (AMP), in large batches.
        source: where it is written.
    """

    rate: float
    source: str


_TIMM = "huggingface/pytorch-image-models, results/benchmark-infer-amp-"

GPU_RATES = {
    "RTX 3090": PublishedRate(9657.18, _TIMM + "nhwc-pt240-cu124-rtx3090.csv (batch 1024, commit 5c33776a)"),
    "RTX 4090": PublishedRate(11509.61, _TIMM + "nhwc-pt240-cu124-rtx4090.csv (batch 512, commit 7479d451)"),
    "RTX 5090": PublishedRate(15306.46, _TIMM + "nchw-pt291-cu130-5090.csv (batch 1024, commit 90cae8c5)"),
}
# The slowest of them.
GPU = "RTX 3090"

# ASSUMPTION. Exports run in float32, which the published rates do not: twice the bytes, so taken as half the rate.
FLOAT32_SLOWER = 2.0

# ASSUMPTION. To a GPU over PCIe 3.0 x16 from memory that is not pinned, in bytes a second; of each GPU.
TO_GPU = 6e9

# ASSUMPTIONS, in dollars an hour, on demand, to be replaced with the prices that you pay. They are round numbers of the
# order that large clouds asked in 2026 for machines of these shapes, looked up nowhere in particular; a laptop is taken
# as free.
PRICES_AS_OF = "2026-11, assumed"
PRICES = {"laptop": 0.0, "16 processors": 0.7, "1 GPU": 1.6, "8 GPUs": 16.0}
