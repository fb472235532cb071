"""Infidelity and Max-Sensitivity: how map and score answer to perturbed pictures."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from camapp.cam.metrics.baselines import picture_generator
from camapp.cam.metrics.metric import Metric
from camapp.cam.metrics.sample import Sample, check_positive, explain_in_chunks
from camapp.cam.metrics.variants import score_variants

Perturb: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]
"""(picture (C, H, W), random numbers of that picture) -> the perturbation (C, H, W)."""


class Infidelity(Metric):
    r"""Infidelity: how badly the map predicts by how much perturbations change the score.

    .. math:: E_I \left[ (\beta \, I^T \Phi - (f_c(x) - f_c(x - I)))^2 \right]

    :math:`\Phi` is the map, the same for all channels. A class activation map has no unit, so by default it is scaled
    by the :math:`\beta` that fits best, :math:`E[I^T\Phi \, \Delta f] / E[(I^T\Phi)^2]`, for each picture.

    Source: Yeh et al., "On the (In)fidelity and Sensitivity of Explanations", NeurIPS 2019, definition 2.1 and section
    2.3 (square removal); the scale as in captum's ``infidelity(normalize=True)``.

    Args:
        perturb: gives one perturbation I of a picture. By default ``remove_square``.
        samples: perturbations a picture.
        normalize: whether the map is scaled.
        batch_size: pictures given to the score at a time.
        seed: of the perturbations, which depend on the picture's number too.
    """

    name = "infidelity"
    title = "Infidelity"
    direction = "lower"

    def __init__(
        self,
        perturb: Perturb | None = None,
        *,
        samples: int = 50,
        normalize: bool = True,
        batch_size: int = 64,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_positive("samples", samples)
        check_positive("batch_size", batch_size)
        self._perturb = perturb or remove_square
        self._samples = samples
        self._normalize = normalize
        self._batch_size = batch_size
        self._seed = seed

    def _judge(self, sample: Sample) -> Tensor:
        predicted = torch.zeros(len(sample), self._samples, dtype=torch.float64, device=sample.inputs.device)
        generators = [picture_generator(self._seed, self.seen + row) for row in range(len(sample))]

        def write(out: Tensor, row: int, first: int, last: int) -> None:
            picture, heat = sample.inputs[row], sample.maps[row].double()
            for index in range(first, last):
                change = self._perturb(picture, generators[row])
                predicted[row, index] = (change.double() * heat).sum()
                torch.sub(picture, change, out=out[index - first])

        scores = score_variants(sample, self._samples, write, self._batch_size)
        dropped = sample.confidence.to(scores)[:, None].double() - scores.double()
        if self._normalize:
            power = predicted.square().mean(1, keepdim=True)
            fits = (predicted * dropped).mean(1, keepdim=True) / power
            predicted = torch.where(power > 0, fits, 0.0) * predicted
        return (predicted - dropped).square().mean(1)


class MaxSensitivity(Metric):
    r"""Max-Sensitivity: by how much the map can change when the picture hardly does.

    :math:`\max_\delta \|\Phi(x + \delta) - \Phi(x)\|_F / \|\Phi(x)\|_F` over random :math:`\delta`, a blank map's norm
    counting as 1.

    Source: Yeh et al., NeurIPS 2019, definition 3.1; divided by the norm, and with the defaults of captum's
    ``sensitivity_max``.

    Args:
        perturb: gives one :math:`\delta` for a picture. By default uniform in [-radius, radius] for each value.
        radius: of the default perturbation, in normalised space.
        samples: perturbations a picture.
        batch_size: pictures explained at a time.
        seed: of the perturbations, which depend on the picture's number too.
    """

    name = "max_sensitivity"
    title = "Max-Sensitivity"
    direction = "lower"
    needs = frozenset({"explain"})

    def __init__(
        self,
        perturb: Perturb | None = None,
        *,
        radius: float = 0.02,
        samples: int = 10,
        batch_size: int = 16,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_positive("samples", samples)
        check_positive("batch_size", batch_size)
        self._perturb = perturb or partial(_uniform, radius=radius)
        self._samples = samples
        self._batch_size = batch_size
        self._seed = seed

    def _judge(self, sample: Sample) -> Tensor:
        assert sample.explain is not None, "Metric.update has looked"
        worst = torch.zeros(len(sample), dtype=torch.float64, device=sample.maps.device)
        generators = [picture_generator(self._seed, self.seen + row) for row in range(len(sample))]
        norms = sample.maps.double().flatten(1).norm(dim=1)
        for _ in range(self._samples):
            changed = torch.stack(
                [x + self._perturb(x, generator) for x, generator in zip(sample.inputs, generators, strict=True)]
            )
            again = explain_in_chunks(sample.explain, changed, sample.targets, self._batch_size)
            distance = (again.double() - sample.maps.double()).flatten(1).norm(dim=1)
            worst = torch.maximum(worst, distance / torch.where(norms > 0, norms, 1.0))
        return worst


def remove_square(picture: Tensor, generator: np.random.Generator, *, share: float = 0.25) -> Tensor:
    """The perturbation that sets a random square to 0, the mean colour.

    Args:
        picture: (C, H, W).
        generator: where the square's place comes from.
        share: of the shorter side.
    """
    height, width = picture.shape[-2:]
    side = max(1, round(share * min(height, width)))
    top, left = (int(generator.integers(0, room + 1)) for room in (height - side, width - side))
    change = torch.zeros_like(picture)
    change[:, top : top + side, left : left + side] = picture[:, top : top + side, left : left + side]
    return change


def _uniform(picture: Tensor, generator: np.random.Generator, *, radius: float) -> Tensor:
    return torch.from_numpy(generator.uniform(-radius, radius, picture.shape)).to(picture)
