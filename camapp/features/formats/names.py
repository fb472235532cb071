"""What files call the layers, and the columns of their values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from camapp.files import unused_stem


def stored_names(
    layers: Iterable[str], allowed: Callable[[str], str] = str, taken: Iterable[str] = ()
) -> dict[str, str]:
    """A name in the file for each layer, by layer: its own where the format allows that and nobody has it.

    Args:
        layers: the layers.
        allowed: makes a name that the format allows.
        taken: names that the format uses itself. Names that differ by case alone count as one: file systems, SQL
            and some readers of Parquet do not tell them apart.
    """
    used = {name.casefold() for name in taken}
    return {layer: unused_stem(allowed(layer) or "layer", used) for layer in layers}


def value_columns(layer: str, size: tuple[int, ...]) -> list[str]:
    """A name for each value, in the order of C: ``layer4[0]``, ``layer4[1]``; in a map ``layer4[0][2][3]``."""
    ranges = [range(extent) for extent in size]
    return [layer + "".join(f"[{index}]" for index in place) for place in itertools.product(*ranges)]
