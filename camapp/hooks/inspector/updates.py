"""How far an update moved parameters, against how large they were."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Weights:
    """Parameters before an update, by name, as copies."""

    copies: dict[str, torch.Tensor]

    @classmethod
    def of(cls, parameters: Mapping[str, torch.Tensor]) -> Weights:
        """Copy parameters; all that are dense."""
        return cls({name: one.detach().clone() for name, one in parameters.items() if one.layout is torch.strided})

    def moved(self, parameters: Mapping[str, torch.Tensor]) -> Moves:
        """How far ``parameters`` are from these copies, which are used up."""
        moves = {}
        for name, before in self.copies.items():
            now = parameters.get(name)
            if now is None or now.shape != before.shape or now.device != before.device or not before.numel():
                continue
            wide = torch.float32 if before.dtype in (torch.float16, torch.bfloat16) else None
            size = torch.linalg.vector_norm(before, dtype=wide)
            moves[name] = (torch.linalg.vector_norm(now.detach() - before, dtype=wide), size)
        self.copies.clear()
        return Moves(moves)


@dataclass(frozen=True)
class Moves:
    """Norms of updates and of the parameters before them, by name, still on their devices."""

    norms: dict[str, tuple[torch.Tensor, torch.Tensor]]

    def scalars(self) -> list[torch.Tensor]:
        """What is to be fetched."""
        return [norm for pair in self.norms.values() for norm in pair]

    def ratios(self, fetched: list[float]) -> dict[str, float]:
        """The ratios by name, from what was fetched; none for parameters that were all 0."""
        pairs = zip(self.norms, fetched[::2], fetched[1::2], strict=True)
        return {name: moved / size for name, moved, size in pairs if size}
