"""Where the first non-finite value of a training step is born, and a fast check whether there is one."""

from camapp.hooks.nonfinite.check import nonfinite_flag
from camapp.hooks.nonfinite.finding import Finding, ModuleCall, TensorFacts
from camapp.hooks.nonfinite.held import RandomState
from camapp.hooks.nonfinite.locating import locate

__all__ = ["Finding", "ModuleCall", "RandomState", "TensorFacts", "locate", "nonfinite_flag"]
