"""Transfer learning on pictures: features of folders of them, classifiers on those, and which backbone serves best."""

from camapp.transfer.comparison import compare_features
from camapp.transfer.extraction import extract_features
from camapp.transfer.training import TrainedProbe, train_probe

__all__ = ["TrainedProbe", "compare_features", "extract_features", "train_probe"]
