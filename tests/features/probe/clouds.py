"""Features made on the spot: a cloud of points for each class."""

from __future__ import annotations

import numpy as np


def clouds(
    classes: int = 3, each: int = 12, size: int = 6, apart: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, list[str]]:
    """Features (classes * each, size) float32 of unlike spread and mean, labelled "class 0", "class 1" ... in turn."""
    random = np.random.default_rng(seed)
    targets = np.arange(classes * each) % classes
    centres = apart * random.normal(size=(classes, size))
    points = centres[targets] + random.normal(size=(len(targets), size))
    features = points * random.uniform(0.1, 10, size) + random.uniform(-20, 20, size)
    return features.astype(np.float32), [f"class {target}" for target in targets]
