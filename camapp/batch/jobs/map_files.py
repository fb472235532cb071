"""The files of a picture's maps: overlay and heatmap of each class, and the raw maps, as bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from camapp.errors import UsageError, did_you_mean
from camapp.explanation import Explanation
from camapp.images.render import ALPHA, heatmap_16bit, png_bytes

Output: TypeAlias = Literal["overlay", "heatmap", "raw"]
OUTPUTS: tuple[Output, ...] = ("overlay", "heatmap", "raw")
FORMATS = {"png": ".png", "jpeg": ".jpg", "webp": ".webp"}
# A side of a picture, by what the formats can count.
_MOST_PIXELS = {"jpeg": 65_500, "webp": 16_383}


@dataclass(frozen=True)
class MapFiles:
    """Which files are made of an explanation, and how overlays are painted.

    Args:
        outputs: of ``OUTPUTS``.
        overlay_format: of ``FORMATS``.
        quality: of JPEG and WebP, 1 to 100.
        alpha: opacity where a map is hottest.
        colormap: one of ``camapp.images.render.COLORMAPS``.
        hide_below: leave the picture as it is where the map is below this.
    """

    outputs: Sequence[Output] = OUTPUTS
    overlay_format: str = "jpeg"
    quality: int = 90
    alpha: float = ALPHA
    colormap: str = "viridis"
    hide_below: float = 0.0

    def of(self, result: Explanation, stem: str) -> Iterator[tuple[str, bytes]]:
        """Each file's name and content, made when it is asked for.

        Args:
            result: K classes of a picture.
            stem: how the names begin, with the folders that they lie in; of several classes each file bears its number.

        Yields:
            ``overlays/STEM.jpg``; ``heatmaps/STEM.png``, (H, W) 16-bit, 1 being 65535; ``raw/STEM.npy``,
            (K, h', w') float32 at the layer's size.

        Raises:
            UsageError: an overlay that is too large for its format.
        """
        for k in range(len(result)):
            # All are numbered or none is: the second of "one" must not meet the first of "one-2".
            own = stem if len(result) == 1 else f"{stem}-{k + 1}"
            if "overlay" in self.outputs:
                yield f"overlays/{own}{FORMATS[self.overlay_format]}", self._overlay(result, k)
            if "heatmap" in self.outputs:
                yield f"heatmaps/{own}.png", png_bytes(heatmap_16bit(result.heatmap(k)))
        if "raw" in self.outputs:
            buffer = io.BytesIO()
            np.save(buffer, result.raw.astype(np.float32), allow_pickle=False)
            yield f"raw/{stem}.npy", buffer.getvalue()

    def _overlay(self, result: Explanation, k: int) -> bytes:
        image = result.overlay(k, alpha=self.alpha, colormap=self.colormap, hide_below=self.hide_below)
        if self.overlay_format == "png":
            return png_bytes(np.asarray(image))
        most = _MOST_PIXELS[self.overlay_format]
        if max(image.size) > most:
            raise UsageError(
                f"An overlay of {image.width} x {image.height} is too large for {self.overlay_format}, which holds "
                f"{most} pixels a side. Choose png, or a max_side."
            )
        buffer = io.BytesIO()
        image.save(buffer, self.overlay_format, quality=self.quality)
        return buffer.getvalue()


def check_outputs(outputs: Sequence[str]) -> None:
    """Raise a UsageError for no output, and for one that is none of ``OUTPUTS``."""
    unknown = [one for one in outputs if one not in OUTPUTS]
    if unknown or not outputs:
        hint = did_you_mean(str(unknown[0]), OUTPUTS) if unknown else ""
        raise UsageError(f"outputs are one or more of {', '.join(OUTPUTS)}, not {outputs}.{hint}")
