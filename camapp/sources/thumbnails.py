"""read_thumbnails: the pictures of a source, small, for a page that shows all of them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from camapp.errors import CamappError
from camapp.images.decode import decode
from camapp.images.sprite import SIDE, thumbnail
from camapp.sources.batches import default_workers
from camapp.sources.pictures import PictureFile


def read_thumbnails(
    pictures: Sequence[PictureFile], *, side: int = SIDE, workers: int | None = None
) -> list[np.ndarray | None]:
    """A thumbnail of each picture, large JPEGs decoded at a fraction of their size.

    Args:
        pictures: from ``find_pictures``.
        side: of the square that each is centred on, in pixels.
        workers: threads that decode; one a processor by default.

    Returns:
        (side, side, 3) uint8 each; None for a picture that cannot be read.
    """

    def read(picture: PictureFile) -> np.ndarray | None:
        try:
            return thumbnail(decode(picture.path, at_least=(1, 2 * side)).rgb, side)
        except CamappError:
            return None

    with ThreadPoolExecutor(workers or default_workers(), thread_name_prefix="thumbnail") as pool:
        return list(pool.map(read, pictures))
