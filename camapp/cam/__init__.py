"""Class activation maps."""

from __future__ import annotations

from camapp.cam import targets
from camapp.cam.compare import compare
from camapp.cam.methods import METHODS, find_method
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.result import CamResult
from camapp.cam.targets import TopClasses

__all__ = ["METHODS", "CamResult", "GradCAM", "TopClasses", "compare", "find_method", "targets"]
