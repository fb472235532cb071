"""Explanation: what a model saw in one picture, at the picture's own size; paints, saves and shows itself."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from camapp.cautions import cautions
from camapp.errors import UsageError
from camapp.files import safe_name, safe_stem, write_atomically
from camapp.images.decode import Picture
from camapp.images.geometry import Geometry
from camapp.images.render import ALPHA, checked_paint, overlay, png_bytes, stamp
from camapp.images.saved import SavedFiles, checked_stem, save_map
from camapp.version import versions

RANDOM_WEIGHTS = "RANDOM WEIGHTS"


@dataclass(frozen=True)
class Prediction:
    """One class as the model scores it, or another target explained.

    Args:
        index: class index; -1 for a target that is no class.
        label: class name, or the target in words.
        probability: softmax over all classes, 0-1; NaN for a target that is no plain class.
        logit: the raw score.
    """

    index: int
    label: str
    probability: float
    logit: float

    def __str__(self) -> str:
        return self.label if np.isnan(self.probability) else f"{self.label} {self.probability:.1%}"


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a model saw in one picture, for K classes.

    Args:
        picture: the picture explained.
        model: the model's name.
        weights: where its weights come from, their SHA-256, and whether they are random.
        method: the method's name.
        layer: the layer explained, several joined by " + "; "" for a method that looks at the whole network.
        classes: the K classes explained, in the order asked for.
        predictions: the five likeliest classes, best first.
        reasons: per explained class, why its map is blank, or None.
        model_maps: (K, h, w) float32 in [0, 1], at the size of the model's input.
        raw: (K, h', w') float32, the method's signed values at the layer's size.
        geometry: how the model's input lies in the picture.
        notes: what was done to the picture, and what to know about the maps.
        seconds: time from picture to maps.
        sign: "positive" where the maps show what supports a class, "negative" where they show what speaks against it.
    """

    picture: Picture
    model: str
    weights: dict[str, Any]
    method: str
    layer: str
    classes: tuple[Prediction, ...]
    predictions: tuple[Prediction, ...]
    reasons: tuple[str | None, ...]
    model_maps: np.ndarray
    raw: np.ndarray
    geometry: Geometry
    notes: tuple[str, ...]
    seconds: float
    sign: str = "positive"

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def random_weights(self) -> bool:
        """Whether the model's weights are random, so that nothing here means anything."""
        return bool(self.weights["random"])

    @property
    def cautions(self) -> tuple[str, ...]:
        """What to keep in mind before believing the maps; see ``camapp.cautions``. Blank maps have their reasons."""
        shown = [one for one, reason in zip(self.classes, self.reasons, strict=True) if reason is None]
        return cautions(self.method, self.layer, shown, self.raw.shape[1:], self.picture.size)

    @cached_property
    def maps(self) -> np.ndarray:
        """(K, H, W) float32 in [0, 1], at the picture's own size and place; 0 where the model saw nothing."""
        return np.stack([self.heatmap(k) for k in range(len(self))])

    def heatmap(self, k: int = 0) -> np.ndarray:
        """The map of the ``k``-th class: (H, W) float32 in [0, 1], at the picture's own size and place; read-only."""
        heatmap = self._last_heatmap.get(self._checked(k))
        if heatmap is None:
            heatmap = self.geometry.to_original(self.model_maps[k])
            heatmap.setflags(write=False)
            self._last_heatmap.clear()  # one is kept: at 24 megapixels each takes half a second and 100 MB
            self._last_heatmap[k] = heatmap
        return heatmap

    @cached_property
    def _last_heatmap(self) -> dict[int, np.ndarray]:
        return {}

    @cached_property
    def _peaks(self) -> dict[int, tuple[int, int]]:
        return {}

    def no_larger_than(self, side: int) -> Explanation:
        """The same for the picture made smaller, its longer side at most ``side`` pixels: for previews."""
        picture = self.picture.no_larger_than(side)
        return replace(self, picture=picture, geometry=self.geometry.scaled_to(picture.size))

    def peak(self, k: int = 0) -> tuple[int, int] | None:
        """X and y of the hottest pixel of the picture; None for a blank map."""
        if self.reasons[self._checked(k)]:
            return None
        if k not in self._peaks:
            heatmap = self.heatmap(k)
            y, x = np.unravel_index(int(heatmap.argmax()), heatmap.shape)
            self._peaks[k] = int(x), int(y)
        return self._peaks[k]

    def overlay(
        self,
        k: int = 0,
        *,
        alpha: float = ALPHA,
        colormap: str = "viridis",
        hide_below: float = 0.0,
        frame: bool = True,
    ) -> Image.Image:
        """The picture with the ``k``-th class's heatmap on it, at the picture's own size.

        A blank map is not painted: the picture stays as it is, and ``reasons`` says why.

        Args:
            k: which of the explained classes.
            alpha: opacity where the map is hottest; cooler parts show more of the picture. 0 shows only the picture, 1
                only the heatmap.
            colormap: one of ``camapp.images.render.COLORMAPS``.
            hide_below: leave the picture as it is where the map is below this value, 0-1.
            frame: outline what the model saw, where that is not the whole picture.

        Raises:
            UsageError: no such class, alpha, threshold or colour map.
        """
        checked_paint(alpha, colormap, hide_below)
        painted = overlay(
            self.picture.rgb,
            self.heatmap(k),
            self.geometry,
            alpha=0.0 if self.reasons[k] else alpha,
            colormap=colormap,
            hide_below=hide_below,
            frame=frame,
        )
        return Image.fromarray(stamp(painted, RANDOM_WEIGHTS) if self.random_weights else painted)

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        stem: str | None = None,
        alpha: float = ALPHA,
        colormap: str = "viridis",
        hide_below: float = 0.0,
    ) -> list[SavedFiles]:
        """Write overlay (PNG), heatmap (16-bit PNG, 1 = 65535) and values (.npy, float32) of each class, and one JSON.

        Args:
            folder: made if missing.
            stem: how the files' names begin; the picture's name by default.
            alpha: as in ``overlay``.
            colormap: as in ``overlay``.
            hide_below: as in ``overlay``.

        Returns:
            The files, in the order of ``classes``; the JSON lies beside them as ``STEM.json``.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        stem = safe_stem(self.picture.name) if stem is None else checked_stem(stem)
        saved = []
        for k, explained in enumerate(self.classes):
            base = f"{stem}-{k + 1}-{safe_name(explained.label)[:40]}"
            heatmap = self.heatmap(k)
            self.peak(k)  # while the heatmap is at hand: the JSON wants it
            painted = self.overlay(k, alpha=alpha, colormap=colormap, hide_below=hide_below)
            saved.append(save_map(folder, base, painted, heatmap, heatmap))
        text = json.dumps(self.to_dict(saved), indent=2, ensure_ascii=False)
        write_atomically(folder / f"{stem}.json", text.encode())
        return saved

    def to_dict(self, saved: Sequence[SavedFiles] = ()) -> dict[str, Any]:
        """Everything but the pixels, ready for JSON: what is needed to judge the maps and to make them again."""
        return {
            "input": self.picture.name,
            "size": list(self.picture.size),
            "model": self.model,
            "weights": self.weights,
            "method": self.method,
            "layer": self.layer,
            "sign": self.sign,
            "predictions": [_prediction_dict(prediction) for prediction in self.predictions],
            "maps": [
                {
                    "target": explained.index,
                    "label": explained.label,
                    "probability": _finite(explained.probability),
                    "logit": _finite(explained.logit),
                    "raw_range": [_finite(self.raw[k].min()), _finite(self.raw[k].max())],
                    "raw_size": list(self.raw[k].shape),
                    "peak": list(peak) if (peak := self.peak(k)) else None,
                    "reason": self.reasons[k],
                    **({} if not saved else {name: path.name for name, path in vars(saved[k]).items()}),
                }
                for k, explained in enumerate(self.classes)
            ],
            "crop": {
                "fit": self.geometry.fit,
                "seen": [round(edge, 3) for edge in self.geometry.seen],
                "input": list(self.geometry.model),
            },
            "notes": list(self.notes),
            "cautions": list(self.cautions),
            "seconds": round(self.seconds, 4),
            "versions": versions(),
        }

    def __repr__(self) -> str:
        labels = ", ".join(map(str, self.classes))
        warning = f" {RANDOM_WEIGHTS}" if self.random_weights else ""
        return f"Explanation({self.picture.name}: {labels}; {self._where} of {self.model}{warning})"

    def _repr_html_(self) -> str:
        """Overlays side by side, as a notebook shows them."""
        cells = []
        for k, explained in enumerate(self.classes):
            data = base64.b64encode(png_bytes(np.asarray(self.overlay(k)))).decode()
            caption = html.escape(str(explained))
            reason = f"<br><small>{html.escape(self.reasons[k] or '')}</small>" if self.reasons[k] else ""
            cells.append(
                f'<figure style="margin:0"><img alt="Heatmap of {caption}" style="max-width:360px" '
                f'src="data:image/png;base64,{data}"><figcaption>{caption}{reason}</figcaption></figure>'
            )
        facts = html.escape(f"{self.model}, {self._where}" + "".join(f"; {note}" for note in self.notes))
        return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{"".join(cells)}</div><small>{facts}</small>'

    @property
    def _where(self) -> str:
        return f'{self.method} at "{self.layer}"' if self.layer else self.method

    def _checked(self, k: int) -> int:
        if not 0 <= k < len(self):
            raise UsageError(f"k = {k} is out of range: {len(self)} class(es) were explained, 0 to {len(self) - 1}.")
        return k


def _prediction_dict(prediction: Prediction) -> dict[str, Any]:
    return {"index": prediction.index, "label": prediction.label, "probability": _finite(prediction.probability)}


def _finite(number: float) -> float | None:
    """A number that JSON can hold: it has no NaN and no infinity."""
    return float(number) if np.isfinite(number) else None
