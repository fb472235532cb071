"""Storage: what a layer gives for a whole data set, in one tensor that is allocated once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from camapp.errors import UsageError


class Storage:
    """One tensor with a row for each item of a data set; batches are written by index as they come.

    Args:
        rows: how many rows there will be.
        reduce: what to keep of a batch, its first axis kept; all by default.
        device: where the tensor lies.
        dtype: its dtype; that of the first batch by default.

    Raises:
        UsageError: no whole number of rows from 1.

    Attributes:
        next_rows: where the rows of the next batch go; behind the last ones by default. Used once.
    """

    def __init__(
        self,
        rows: int,
        reduce: Callable[[torch.Tensor], torch.Tensor] | None = None,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise UsageError(f"rows is a whole number from 1, not {rows!r}.")
        self.next_rows: Sequence[int] | torch.Tensor | None = None
        self._rows = rows
        self._reduce = reduce
        self._device = device
        self._dtype = dtype
        self._end = 0
        self._all: torch.Tensor | None = None

    @property
    def tensor(self) -> torch.Tensor:
        """The rows up to the last one written, a view; rows that were passed over are 0.

        Raises:
            UsageError: nothing was written yet.
        """
        if self._all is None:
            raise UsageError("Nothing has been written yet: the layer has not run.")
        return self._all[: self._end]

    def __repr__(self) -> str:
        shape = "" if self._all is None else f" of shape {tuple(self._all.shape[1:])}"
        return f"Storage({self._end} of {self._rows} rows{shape})"

    def __len__(self) -> int:
        return self._end

    def write(self, batch: torch.Tensor) -> None:
        """Write the rows of a batch of shape ``(B, ...)``.

        Raises:
            UsageError: more rows than there is room for, rows of another shape, or indices that do not fit the batch.
        """
        kept = batch.detach() if self._reduce is None else self._reduce(batch.detach())
        if self._all is None:
            dtype = self._dtype or kept.dtype
            with torch.inference_mode(False):  # its rows shall be of use in a training
                self._all = torch.zeros((self._rows, *kept.shape[1:]), dtype=dtype, device=self._device)
        if kept.shape[1:] != self._all.shape[1:]:
            raise UsageError(
                f"Rows of shape {tuple(kept.shape[1:])} do not fit a storage of rows {tuple(self._all.shape[1:])}. "
                "Pool them, or give inputs of one size."
            )
        rows = self._next(len(kept))
        with torch.no_grad():
            self._all[rows] = kept.to(self._all)
        self._end = max(self._end, int(rows.max()) + 1 if len(rows) else 0)

    def _next(self, count: int) -> torch.Tensor:
        given, self.next_rows = self.next_rows, None
        rows = torch.arange(self._end, self._end + count) if given is None else torch.as_tensor(given, dtype=torch.long)
        if len(rows) != count:
            raise UsageError(f"next_rows names {len(rows)} rows for a batch of {count}.")
        if count and (int(rows.min()) < 0 or int(rows.max()) >= self._rows):
            raise UsageError(
                f"Rows {int(rows.min())} to {int(rows.max())} do not lie within a storage of {self._rows} rows. Ask "
                "for more rows, or say where they go (next_rows)."
            )
        return rows.to(self._device)
