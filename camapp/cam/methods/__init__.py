"""The methods by name; each is a small class on top of the engine."""

from __future__ import annotations

import re

from camapp.cam.engine import Method
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
from camapp.errors import UsageError, did_you_mean

# In the order in which people are offered them: the default, what is sharper, then by kind.
METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        *(GradCAM, Fused),
        *(CAM, GradCAMPlusPlus, SmoothGradCAMPlusPlus, XGradCAM, HiResCAM, ElementWise, LayerCAM, ShapleyCAM),
        *(EigenCAM, EigenGradCAM, KPCACAM, FEM, RandomCAM),
        *(AblationCAM, ScoreCAM, SSCAM, ISCAM),
        *(FullGrad, GuidedBackprop, GuidedGradCAM, LeGrad, AttentionRollout),
        *(FinerCAM, RefineCAM, SESS, Smooth, PrincipalComponent),
    )
}


def find_method(name: str) -> type[Method]:
    """The method called ``name``, in any case and with or without dashes: ``GradCAM++``, ``gradcam-pp``, ``score_cam``.

    Raises:
        UsageError: there is none; the message names those that are.
    """
    method = {_plain(known): kind for known, kind in METHODS.items()}.get(_plain(name))
    if method is None:
        raise UsageError(f'No method "{name}".{did_you_mean(str(name), METHODS)} Methods: {", ".join(METHODS)}.')
    return method


def _plain(name: object) -> str:
    return re.sub(r"[-_ ]", "", str(name).lower()).replace("++", "pp").replace("plusplus", "pp")
