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
    from camapp.backbones.load import LoadedModel
    from camapp.backbones.wrap import wrap_model
    from camapp.batch import ExportReport, export_features, export_heatmaps
    from camapp.cam.methods.gradcam import GradCAM
    from camapp.cam.result import CamResult
    from camapp.cam.targets import TopClasses
    from camapp.channels import ChannelMaps, channel_maps
    from camapp.comparison import Comparison, compare_maps
    from camapp.contrast import Contrast
    from camapp.errors import (
        AnnotationError,
        CamappError,
        DecodeError,
        LayerError,
        ModelError,
        OutputError,
        StoppedError,
        StoreError,
        TargetError,
        UsageError,
        WeightsError,
    )
    from camapp.evaluation.report import Report
    from camapp.evaluation.run import evaluate
    from camapp.explainer import explain
    from camapp.explanation import Explanation, Prediction
    from camapp.faithfulness import Faithfulness, check_faithfulness
    from camapp.features import FeatureExtractor, Features
    from camapp.features.activations import ActivationExtractor
    from camapp.features.formats import load_features
    from camapp.features.table import FeatureTable
    from camapp.hooks.debug import DebugHookManager, GradientInspector, register_hooks_for_debug
    from camapp.hooks.inspector import Inspector
    from camapp.hooks.manager import HookManager
    from camapp.hooks.report import Snapshot
    from camapp.images.decode import Limits, Picture, decode
    from camapp.images.saved import SavedFiles
    from camapp.inspection import Inspection, inspect_pictures
    from camapp.loading import load_model
    from camapp.patches import PatchSimilarity, patch_similarity
    from camapp.transfer import TrainedProbe, compare_features, extract_features, train_probe

__version__ = VERSION

# Where each public name lives. Loaded at the first use: torch alone takes seconds to import.
_HOMES = {
    "ActivationExtractor": "camapp.features.activations",
    "AnnotationError": "camapp.errors",
    "CamResult": "camapp.cam.result",
    "CamappError": "camapp.errors",
    "ChannelMaps": "camapp.channels",
    "Comparison": "camapp.comparison",
    "Contrast": "camapp.contrast",
    "DebugHookManager": "camapp.hooks.debug",
    "DecodeError": "camapp.errors",
    "Explanation": "camapp.explanation",
    "ExportReport": "camapp.batch",
    "Faithfulness": "camapp.faithfulness",
    "FeatureExtractor": "camapp.features",
    "FeatureTable": "camapp.features.table",
    "Features": "camapp.features",
    "GradCAM": "camapp.cam.methods.gradcam",
    "GradientInspector": "camapp.hooks.debug",
    "HookManager": "camapp.hooks.manager",
    "Inspection": "camapp.inspection",
    "Inspector": "camapp.hooks.inspector",
    "LayerError": "camapp.errors",
    "LayerInfo": "camapp.backbones.layers",
    "Limits": "camapp.images.decode",
    "LoadedModel": "camapp.backbones.load",
    "ModelCard": "camapp.backbones.cards",
    "ModelError": "camapp.errors",
    "OutputError": "camapp.errors",
    "PatchSimilarity": "camapp.patches",
    "Picture": "camapp.images.decode",
    "Prediction": "camapp.explanation",
    "Report": "camapp.evaluation.report",
    "SavedFiles": "camapp.images.saved",
    "Snapshot": "camapp.hooks.report",
    "StoppedError": "camapp.errors",
    "StoreError": "camapp.errors",
    "TargetError": "camapp.errors",
    "TopClasses": "camapp.cam.targets",
    "TrainedProbe": "camapp.transfer",
    "UsageError": "camapp.errors",
    "WeightsError": "camapp.errors",
    "channel_maps": "camapp.channels",
    "check_faithfulness": "camapp.faithfulness",
    "compare_features": "camapp.transfer",
    "compare_maps": "camapp.comparison",
    "decode": "camapp.images.decode",
    "evaluate": "camapp.evaluation.run",
    "explain": "camapp.explainer",
    "export_features": "camapp.batch",
    "export_heatmaps": "camapp.batch",
    "extract_features": "camapp.transfer",
    "inspect_pictures": "camapp.inspection",
    "list_cards": "camapp.backbones.cards",
    "list_layers": "camapp.backbones.layers",
    "load_features": "camapp.features.formats",
    "load_model": "camapp.loading",
    "patch_similarity": "camapp.patches",
    "register_hooks_for_debug": "camapp.hooks.debug",
    "train_probe": "camapp.transfer",
    "wrap_model": "camapp.backbones.wrap",
}

__all__ = [
    "ActivationExtractor",
    "AnnotationError",
    "CamResult",
    "CamappError",
    "ChannelMaps",
    "Comparison",
    "Contrast",
    "DebugHookManager",
    "DecodeError",
    "Explanation",
    "ExportReport",
    "Faithfulness",
    "FeatureExtractor",
    "FeatureTable",
    "Features",
    "GradCAM",
    "GradientInspector",
    "HookManager",
    "Inspection",
    "Inspector",
    "LayerError",
    "LayerInfo",
    "Limits",
    "LoadedModel",
    "ModelCard",
    "ModelError",
    "OutputError",
    "PatchSimilarity",
    "Picture",
    "Prediction",
    "Report",
    "SavedFiles",
    "Snapshot",
    "StoppedError",
    "StoreError",
    "TargetError",
    "TopClasses",
    "TrainedProbe",
    "UsageError",
    "WeightsError",
    "channel_maps",
    "check_faithfulness",
    "compare_features",
    "compare_maps",
    "decode",
    "evaluate",
    "explain",
    "export_features",
    "export_heatmaps",
    "extract_features",
    "inspect_pictures",
    "list_cards",
    "list_layers",
    "load_features",
    "load_model",
    "patch_similarity",
    "register_hooks_for_debug",
    "train_probe",
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
