"""Class activation maps: every method, what they explain, and what their maps are worth."""

from __future__ import annotations

from camapp.cam import targets
from camapp.cam.compare import compare
from camapp.cam.factorization import Factorization, factorize
from camapp.cam.methods import METHODS, find_method
from camapp.cam.methods.ablationcam import AblationCAM
from camapp.cam.methods.cam import CAM
from camapp.cam.methods.eigen import KPCACAM, EigenCAM, EigenGradCAM
from camapp.cam.methods.fem import FEM
from camapp.cam.methods.finercam import FinerCAM
from camapp.cam.methods.fullgrad import FullGrad
from camapp.cam.methods.fused import Fused
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.methods.guided import GuidedBackprop, GuidedGradCAM
from camapp.cam.methods.legrad import LeGrad
from camapp.cam.methods.plusplus import GradCAMPlusPlus, SmoothGradCAMPlusPlus
from camapp.cam.methods.principal import PrincipalComponent
from camapp.cam.methods.products import ElementWise, HiResCAM, LayerCAM
from camapp.cam.methods.randomcam import RandomCAM
from camapp.cam.methods.refinecam import RefineCAM
from camapp.cam.methods.rollout import AttentionRollout
from camapp.cam.methods.scorecam import ScoreCAM
from camapp.cam.methods.sess import SESS
from camapp.cam.methods.shapleycam import ShapleyCAM
from camapp.cam.methods.smooth import Smooth
from camapp.cam.methods.smoothscore import ISCAM, SSCAM
from camapp.cam.methods.xgradcam import XGradCAM
from camapp.cam.result import CamResult
from camapp.cam.targets import TopClasses

__all__ = [
    "CAM",
    "FEM",
    "ISCAM",
    "KPCACAM",
    "METHODS",
    "SESS",
    "SSCAM",
    "AblationCAM",
    "AttentionRollout",
    "CamResult",
    "EigenCAM",
    "EigenGradCAM",
    "ElementWise",
    "Factorization",
    "FinerCAM",
    "FullGrad",
    "Fused",
    "GradCAM",
    "GradCAMPlusPlus",
    "GuidedBackprop",
    "GuidedGradCAM",
    "HiResCAM",
    "LayerCAM",
    "LeGrad",
    "PrincipalComponent",
    "RandomCAM",
    "RefineCAM",
    "ScoreCAM",
    "ShapleyCAM",
    "Smooth",
    "SmoothGradCAMPlusPlus",
    "TopClasses",
    "XGradCAM",
    "compare",
    "factorize",
    "find_method",
    "targets",
]
