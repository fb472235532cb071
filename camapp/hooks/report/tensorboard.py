"""TensorBoard: snapshots as scalars of TensorBoard, a chart a figure and layer."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any

import torch

from camapp.errors import UsageError
from camapp.hooks.report.measured import Measured
from camapp.hooks.report.rows import subject
from camapp.hooks.report.writer import scalars

# TensorBoard's files hold scalars as float32.
_LARGEST = torch.finfo(torch.float32).max


class TensorBoard:
    """Writes the figures of snapshots for TensorBoard, under the tags of ``writer.scalars``, verdicts as text.

    Args:
        log_dir: a folder, or a ``torch.utils.tensorboard.SummaryWriter`` of yours, which ``close`` leaves open.
        prefix: put before every tag, for a writer that has a "loss" of its own: ``"inspector/"``.

    Raises:
        UsageError: ``tensorboard`` is not installed.

    Example:
        >>> with camapp.Inspector(model, writers=[TensorBoard("runs/1")]) as inspector:
        ...     train()
    """

    def __init__(self, log_dir: str | os.PathLike[str] | Any, *, prefix: str = "") -> None:
        self._owned = isinstance(log_dir, str | os.PathLike)
        self._writer: Any = _opened(log_dir) if self._owned else log_dir
        if not callable(getattr(self._writer, "add_scalar", None)):
            raise UsageError(f"log_dir is a {type(log_dir).__name__}; give a folder or a SummaryWriter.")
        self._prefix = prefix
        self._closed = False

    def write(self, snapshot: Measured) -> None:
        """Add one point to each chart, and see to it that it is on the disk.

        Raises:
            UsageError: the writer is closed.
        """
        if self._closed:
            raise UsageError("This TensorBoard writer is closed. Make another one to go on.")
        for tag, value in scalars(snapshot).items():
            self._writer.add_scalar(self._prefix + tag, max(-_LARGEST, min(value, _LARGEST)), snapshot.step)
        if snapshot.verdicts:
            lines = [f"- **{one.what}** {subject(snapshot, one)}: {one.why}" for one in snapshot.verdicts]
            self._writer.add_text(f"{self._prefix}verdicts", "\n".join(lines), snapshot.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file, unless the ``SummaryWriter`` is yours; closing twice does no harm."""
        if not self._closed and self._owned:
            self._writer.close()
        self._closed = True

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _opened(log_dir: str | os.PathLike[str]) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UsageError(
            'TensorBoard is not installed, so nothing can be written for it: pip install "camapp[tensorboard]".'
        ) from error
    return SummaryWriter(os.fspath(log_dir))
