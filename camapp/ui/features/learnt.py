"""Learnt: a classifier that a visitor trained, as it is kept: without the pictures and features that it came of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from camapp.features.saved import SUFFIX
from camapp.transfer import TrainedProbe
from camapp.ui.frame.models import ModelPool


@dataclass(eq=False)
class Learnt:
    """A classifier, and under which name the page offers it once somebody opened it.

    Args:
        trained: the classifier, with its report.
        model: the name of its backbone.
        stem: what its files are called.
    """

    trained: TrainedProbe
    model: str
    stem: str
    _name: str = field(default="", init=False)

    @property
    def bytes(self) -> int:
        """How much memory it takes beside its backbone."""
        report = self.trained.report
        held = sum(tensor.nbytes for tensor in self.trained.probe.tensors().values())
        return held + (0 if report is None else report.confusion.nbytes)

    def offered(self, pool: ModelPool, owner: str) -> str:
        """The name of the model that it is, offered by ``pool`` from the first time on that somebody asks."""
        if not pool.is_loaded(self._name):
            # on the twin of the quick lane, so that explaining does not wait for an extraction
            quick = replace(self.trained, backbone=pool.load(self.model))
            model, file = quick.model(f"{self.stem} classifier"), f"{self.stem}{SUFFIX}"
            self._name = pool.add(model, file, owner, size=self.bytes)
        return self._name
