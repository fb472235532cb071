"""Contrast: what speaks for one class rather than for another, as a signed map on the picture."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from camapp.cam.result import normalised_maps
from camapp.errors import UsageError
from camapp.explanation import RANDOM_WEIGHTS, Explanation
from camapp.files import safe_stem
from camapp.images.render import ALPHA, checked_paint, overlay, stamp
from camapp.images.saved import SavedFiles, checked_stem, save_map


@dataclass(frozen=True, eq=False)
class Contrast:
    """The difference of two classes of an explanation: its raw maps subtracted, then stretched to [-1, 1].

    For methods whose raw map is linear in the score (Grad-CAM, HiResCAM, CAM and others) this is the map of the
    difference of the two logits.

    Args:
        explanation: of two classes or more.
        a: which of its classes is positive.
        b: which is negative.

    Raises:
        UsageError: no such classes, or twice the same.

    Example:
        >>> explanation = camapp.explain("efficientnet_lite0", "cat.jpg", targets=["tabby", "Egyptian cat"])
        >>> camapp.Contrast(explanation).overlay().show()
    """

    explanation: Explanation
    a: int = 0
    b: int = 1

    def __post_init__(self) -> None:
        count = len(self.explanation)
        if not (0 <= self.a < count and 0 <= self.b < count) or self.a == self.b:
            raise UsageError(
                f"a = {self.a}, b = {self.b}: needed are two of the {count} class(es) explained, 0 to {count - 1}. "
                "Explain two classes: targets=[A, B]."
            )

    @property
    def label(self) -> str:
        """The two classes, in words."""
        return f"{self.explanation.classes[self.a].label} − {self.explanation.classes[self.b].label}"

    @property
    def reason(self) -> str | None:
        """Why the map is blank, or None."""
        if np.any(self.model_map):
            return None
        return "both classes have the same map: nothing at this layer speaks for one rather than for the other"

    @cached_property
    def model_map(self) -> np.ndarray:
        """(h, w) float32 in [-1, 1], at the size of the model's input; zero stays zero."""
        raw = torch.from_numpy(self.explanation.raw[self.a] - self.explanation.raw[self.b])[None]
        height, width = self.explanation.model_maps.shape[1:]
        maps, _ = normalised_maps(raw, (height, width), "both", "max")
        return np.asarray(maps[0].numpy())

    def heatmap(self) -> np.ndarray:
        """(H, W) float32 in [-1, 1], at the picture's own size and place; 0 where the model saw nothing."""
        return self.explanation.geometry.to_original(self.model_map)

    def overlay(self, *, alpha: float = ALPHA, hide_below: float = 0.0, frame: bool = True) -> Image.Image:
        """The picture with the map on it: orange for ``a``, blue for ``b``; see ``Explanation.overlay``.

        Raises:
            UsageError: an alpha or a threshold outside 0-1.
        """
        checked_paint(alpha, "viridis", hide_below)
        painted = overlay(
            self.explanation.picture.rgb,
            self.heatmap(),
            self.explanation.geometry,
            alpha=0.0 if self.reason else alpha,
            hide_below=hide_below,
            frame=frame,
            signed=True,
        )
        return Image.fromarray(stamp(painted, RANDOM_WEIGHTS) if self.explanation.random_weights else painted)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        stem: str | None = None,
        alpha: float = ALPHA,
        hide_below: float = 0.0,
    ) -> SavedFiles:
        """Write overlay (PNG), heatmap (16-bit PNG, -1 = 0, 0 = 32768, 1 = 65535) and values (.npy, float32).

        Args:
            folder: made if missing.
            stem: how the files' names begin, before ``-difference``; the picture's name by default.
            alpha: as in ``overlay``.
            hide_below: as in ``overlay``.

        Raises:
            UsageError: a stem with a folder in it; an alpha or a threshold outside 0-1.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        stem = safe_stem(self.explanation.picture.name) if stem is None else checked_stem(stem)
        values = self.heatmap()
        painted = self.overlay(alpha=alpha, hide_below=hide_below)
        return save_map(folder, f"{stem}-difference", painted, values, (values + 1) / 2)
