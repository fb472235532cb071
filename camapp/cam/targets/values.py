"""Targets of regressions and embeddings: a value of the output, and the likeness of a picture to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from camapp.cam.targets.output import How, pick_output
from camapp.cam.targets.target import Target, described
from camapp.errors import TargetError
from camapp.hooks.as_found import as_found
from camapp.hooks.layers import unwrap


@dataclass(frozen=True)
class OutputValue(Target):
    """One value of the output as it is: of a regression, a depth map, any tensor.

    Args:
        place: the index within one picture's output, one number an axis; () for the mean of all.
        sign: -1 explains what lowers the value.
    """

    place: tuple[int, ...] | int = ()
    sign: float = 1.0

    def score(self, row: Any) -> torch.Tensor:
        """The value, or the mean where no place is named."""
        if not isinstance(row, torch.Tensor):
            raise TargetError(f"OutputValue reads a tensor; the model returned {described(row)} for one picture.")
        place = self.place if isinstance(self.place, tuple) else (self.place,)
        try:
            value = row.mean() if place == () else row[place]
        except IndexError as error:
            raise TargetError(f"The output {tuple(row.shape)} of one picture has no place {place}.") from error
        if value.dim():
            raise TargetError(
                f"Place {place} of the output {tuple(row.shape)} of one picture is {tuple(value.shape)}, not one value."
            )
        return self.sign * value

    def __repr__(self) -> str:
        return f"{'minus ' if self.sign < 0 else ''}the output{f' at {self.place}' if self.place != () else ''}"


@dataclass(frozen=True, eq=False)
class EmbeddingSimilarity(Target):
    """The cosine similarity of a picture's embedding to a given one, -1 to 1: what makes the two alike.

    Args:
        vector: (D,), of another picture, a text, a class prototype.

    Example:
        >>> like = EmbeddingSimilarity.to_picture(encoder, other)
        >>> camapp.GradCAM(encoder)(inputs, like).maps
    """

    vector: torch.Tensor

    @classmethod
    def to_picture(cls, model: nn.Module, inputs: torch.Tensor, output: How = None) -> EmbeddingSimilarity:
        """The similarity to another picture, as the model embeds it.

        Args:
            model: the encoder.
            inputs: (1, C, H, W), the other picture.
            output: which part of what the model returns is the embedding, as for the methods.

        Raises:
            TargetError: not one picture, or an output that is no vector.
        """
        network = unwrap(model)
        if len(inputs) != 1:
            raise TargetError(f"One picture (1, C, H, W) is compared with; given are {len(inputs)}.")
        with as_found(network), torch.no_grad():
            embedding = pick_output(network(inputs.clone()), 1, output)
        if not isinstance(embedding, torch.Tensor):
            raise TargetError(f"The model returned {described(embedding)}, no embedding.")
        return cls(embedding[0].detach())

    def score(self, row: Any) -> torch.Tensor:
        """The cosine of the angle between the two."""
        wanted = self.vector.reshape(-1)
        if not isinstance(row, torch.Tensor) or row.shape != wanted.shape:
            raise TargetError(
                f"The model returned {described(row)} for one picture; the vector to compare with has {len(wanted)} "
                "values. Say by output=... which part of the output is the embedding."
            )
        return F.cosine_similarity(row.float(), wanted.to(row.device).float(), dim=0)

    def __repr__(self) -> str:
        return f"similarity to a vector of {self.vector.numel()}"
