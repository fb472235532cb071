"""The methods that read one layer, and small networks on which their maps can be known."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from camapp.cam.engine import Method
from camapp.cam.methods.cam import CAM
from camapp.cam.methods.eigen import KPCACAM, EigenCAM, EigenGradCAM
from camapp.cam.methods.fem import FEM
from camapp.cam.methods.gradcam import GradCAM
from camapp.cam.methods.plusplus import GradCAMPlusPlus, SmoothGradCAMPlusPlus
from camapp.cam.methods.products import ElementWise, HiResCAM, LayerCAM
from camapp.cam.methods.randomcam import RandomCAM
from camapp.cam.methods.shapleycam import ShapleyCAM
from camapp.cam.methods.xgradcam import XGradCAM

# Those that compute a map from an activation and perhaps its gradient alone.
PLAIN: tuple[type[Method], ...] = (
    GradCAM,
    GradCAMPlusPlus,
    XGradCAM,
    HiResCAM,
    ElementWise,
    LayerCAM,
    EigenGradCAM,
    EigenCAM,
    KPCACAM,
    FEM,
)
EVERY: tuple[type[Method], ...] = (*PLAIN, CAM, ShapleyCAM, SmoothGradCAMPlusPlus, RandomCAM)


class OneConv(nn.Module):
    """captum's BasicModel_ConvNet_One_Conv, whose numbers can be worked out on paper.

    For the input 0 to 15, conv1 gives [[-5, 4], [31, 40]] and [[-30, -21], [6, 15]]; the gradient of class 0 there is
    [[0, 1], [1, 1]] and [[0, 0], [-1, -1]].
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.relu1 = nn.ReLU(inplace)
        self.fc1 = nn.Linear(8, 4)
        with torch.no_grad():
            self.conv1.weight.fill_(1.0)
            self.conv1.bias.copy_(torch.tensor([-50.0, -75.0]))
            self.fc1.weight.copy_(torch.tensor([1.0] * 5 + [-1.0] * 3).expand(4, 8))
            self.fc1.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc1(self.relu1(self.conv1(x)).flatten(1)).relu()


class Rectified(nn.Module):
    """Convolutions, each with a ReLU module of its own, averaged into a linear head; of any rank."""

    def __init__(self, rank: int = 2, classes: int = 5) -> None:
        super().__init__()
        convolution = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[rank]
        self.stem = convolution(3, 6, 3, padding=1, stride=2)
        self.early = nn.ReLU()
        self.last = convolution(6, 8, 3, padding=1, stride=2)
        self.late = nn.ReLU()
        self.head = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.late(self.last(self.early(self.stem(x)))).flatten(2).mean(2))


class Tokens(Rectified):
    """The same, but that its last map is made of tokens (B, L, C), or channels-last (B, h, w, C)."""

    def __init__(self, channels_last: bool = False) -> None:
        super().__init__()
        self.channels_last = channels_last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.last(self.early(self.stem(x))).permute(0, 2, 3, 1)
        x = self.late(x if self.channels_last else x.flatten(1, 2))
        return self.head(x.flatten(1, -2).mean(1))


class Seen(nn.Module):
    """Explains its own input: the layer ``seen`` gives what the network is given."""

    def __init__(self, bias: float = 0.0) -> None:
        super().__init__()
        self.seen = nn.Identity()
        self.head = nn.Linear(3, 4)
        self.bias = bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(self.seen(x) + self.bias).flatten(2).mean(2))
