"""Watches a model in training, or once: figures of activations and gradients, and what is wrong with them."""

from camapp.hooks.inspector.inspector import Inspector
from camapp.hooks.inspector.judging import Thresholds, verdicts
from camapp.hooks.inspector.once import inspect_once

__all__ = ["Inspector", "Thresholds", "inspect_once", "verdicts"]
