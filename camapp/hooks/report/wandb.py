"""WandB: snapshots as figures of a run of Weights & Biases."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from camapp.errors import UsageError
from camapp.hooks.report.measured import Measured
from camapp.hooks.report.writer import scalars

_STEP = "inspector/step"


class WandB:
    """Logs the figures of snapshots into a run of Weights & Biases, under the tags of ``writer.scalars``.

    Each snapshot is one ``run.log``. It gives no ``step=``, with which a run drops what comes out of order and moves
    the steps of your own logging; the training step is logged beside the figures, as ``inspector/step``, and the charts
    of the groups ``grad``, ``activation`` and ``param`` run along it.

    Args:
        run: what ``wandb.init`` returned; by default the run that is going on.
        prefix: put before every tag, for a run that has a "loss" of its own.

    Raises:
        UsageError: ``wandb`` is not installed, or no run is going on.

    Example:
        >>> with wandb.init() as run, camapp.Inspector(model, writers=[WandB(run)]) as inspector:
        ...     train()
    """

    def __init__(self, run: Any = None, *, prefix: str = "") -> None:
        self._run = _current_run() if run is None else run
        if not callable(getattr(self._run, "log", None)):
            raise UsageError(f"run is a {type(run).__name__}; give what wandb.init() returned.")
        self._prefix = prefix
        self._open = True
        self._run.define_metric(_STEP, hidden=True)
        for group in ("grad", "activation", "param"):
            self._run.define_metric(f"{prefix}{group}/*", step_metric=_STEP)

    def write(self, snapshot: Measured) -> None:
        """Log one snapshot."""
        if not self._open:
            raise UsageError("This writer has been closed. Make a new one to go on logging.")
        figures = {self._prefix + tag: value for tag, value in scalars(snapshot).items()}
        self._run.log({**figures, _STEP: snapshot.step})

    def close(self) -> None:
        """Log no more; the run is yours to finish."""
        self._open = False

    def __enter__(self) -> WandB:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _current_run() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise UsageError(
            'Weights & Biases is not installed, so nothing can be logged there: pip install "camapp[wandb]".'
        ) from error
    if wandb.run is None:
        raise UsageError(
            "No run of Weights & Biases is going on. Call wandb.init() first, or give the run it returned."
        )
    return wandb.run
