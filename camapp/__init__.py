"""camapp: see where a vision model looks.

>>> import camapp
>>> explanation = camapp.explain("efficientnet_lite0", "cat.jpg", top_k=2)
>>> explanation.overlay(0)
>>> explanation.save("heatmaps")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from camapp.version import VERSION

if TYPE_CHECKING:
    from camapp.backbones.cards import ModelCard, list_cards
    from camapp.backbones.layers import LayerInfo, list_layers
    from camapp.backbones.load import LoadedModel, load_model
    from camapp.backbones.wrap import wrap_model
    from camapp.cam.methods.gradcam import GradCAM
    from camapp.cam.result import CamResult
    from camapp.cam.targets import TopClasses
    from camapp.errors import (
        AnnotationError,
        CamappError,
        DecodeError,
        LayerError,
        ModelError,
        OutputError,
        StoppedError,
        TargetError,
        UsageError,
        WeightsError,
    )
    from camapp.evaluation.report import Report
    from camapp.evaluation.run import evaluate
    from camapp.explainer import explain
    from camapp.explanation import Explanation, Prediction, SavedFiles
    from camapp.images.decode import Limits, Picture, decode

__version__ = VERSION

# Where each public name lives. Loaded at the first use: torch alone takes seconds to import.
_HOMES = {
    "AnnotationError": "camapp.errors",
    "CamResult": "camapp.cam.result",
    "CamappError": "camapp.errors",
    "DecodeError": "camapp.errors",
    "Explanation": "camapp.explanation",
    "GradCAM": "camapp.cam.methods.gradcam",
    "LayerError": "camapp.errors",
    "LayerInfo": "camapp.backbones.layers",
    "Limits": "camapp.images.decode",
    "LoadedModel": "camapp.backbones.load",
    "ModelCard": "camapp.backbones.cards",
    "ModelError": "camapp.errors",
    "OutputError": "camapp.errors",
    "Picture": "camapp.images.decode",
    "Prediction": "camapp.explanation",
    "Report": "camapp.evaluation.report",
    "SavedFiles": "camapp.explanation",
    "StoppedError": "camapp.errors",
    "TargetError": "camapp.errors",
    "TopClasses": "camapp.cam.targets",
    "UsageError": "camapp.errors",
    "WeightsError": "camapp.errors",
    "decode": "camapp.images.decode",
    "evaluate": "camapp.evaluation.run",
    "explain": "camapp.explainer",
    "list_cards": "camapp.backbones.cards",
    "list_layers": "camapp.backbones.layers",
    "load_model": "camapp.backbones.load",
    "wrap_model": "camapp.backbones.wrap",
}

__all__ = [
    "AnnotationError",
    "CamResult",
    "CamappError",
    "DecodeError",
    "Explanation",
    "GradCAM",
    "LayerError",
    "LayerInfo",
    "Limits",
    "LoadedModel",
    "ModelCard",
    "ModelError",
    "OutputError",
    "Picture",
    "Prediction",
    "Report",
    "SavedFiles",
    "StoppedError",
    "TargetError",
    "TopClasses",
    "UsageError",
    "WeightsError",
    "decode",
    "evaluate",
    "explain",
    "list_cards",
    "list_layers",
    "load_model",
    "wrap_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module camapp has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
