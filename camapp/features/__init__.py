"""Features out of backbones, and what to do with them."""

from camapp.backbones.pooling import POOLS
from camapp.features.extractor import FeatureExtractor
from camapp.features.features import Features
from camapp.features.info import FeatureInfo

__all__ = ["POOLS", "FeatureExtractor", "FeatureInfo", "Features"]
