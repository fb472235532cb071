"""Features: what one forward gave for a batch, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from camapp.errors import LayerError, did_you_mean
from camapp.features.info import FeatureInfo


class Features(Mapping[str, torch.Tensor]):
    """The features of a batch of B pictures: a mapping from names to tensors (B, *size), in the order asked for.

    Args:
        tensors: by name.
        info: by the same names, where each comes from.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], info: Mapping[str, FeatureInfo]) -> None:
        self._tensors = dict(tensors)
        self.info: Mapping[str, FeatureInfo] = MappingProxyType(dict(info))

    def __getitem__(self, name: str) -> torch.Tensor:
        """The features of one name.

        Raises:
            LayerError: there are none of that name.
        """
        if name not in self._tensors:
            raise LayerError(
                f'No features "{name}".{did_you_mean(str(name), self._tensors)} There are {", ".join(self)}.'
            )
        return self._tensors[name]

    __eq__ = object.__eq__  # a mapping would compare its tensors, which have no one answer
    __hash__ = object.__hash__

    def get(self, name: str, default: Any = None) -> Any:
        """The features of one name, or something else where there are none."""
        return self._tensors.get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __repr__(self) -> str:
        parts = (f"{name}: {tuple(tensor.shape)} {self.info[name].pool}" for name, tensor in self._tensors.items())
        return f"Features({', '.join(parts)})"

    def joined(self) -> torch.Tensor:
        """All features one behind the other, (B, D)."""
        return torch.cat([tensor.reshape(len(tensor), -1) for tensor in self._tensors.values()], dim=1)

    def numpy(self) -> dict[str, np.ndarray]:
        """The features as arrays on the host, by name; bfloat16, which NumPy does not have, as float32."""
        host = {name: tensor.detach().cpu() for name, tensor in self._tensors.items()}
        return {
            name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
            for name, tensor in host.items()
        }

    def to(self, device: str | torch.device) -> Features:
        """The same on another device."""
        return Features({name: tensor.to(device) for name, tensor in self._tensors.items()}, self.info)
