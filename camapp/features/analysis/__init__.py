"""What features say: how alike layers are, which pictures are alike or the same, and how they lie."""

from __future__ import annotations

from camapp.features.analysis.cka import CKAMatrix, MinibatchCKA, cka_matrix, linear_cka
from camapp.features.analysis.duplicates import NearDuplicates, near_duplicates
from camapp.features.analysis.figures import heatmap_png, scatter_png
from camapp.features.analysis.neighbours import Neighbours, nearest
from camapp.features.analysis.projection import Projection, pca
from camapp.features.analysis.projector import save_projector

__all__ = [
    "CKAMatrix",
    "MinibatchCKA",
    "NearDuplicates",
    "Neighbours",
    "Projection",
    "cka_matrix",
    "heatmap_png",
    "linear_cka",
    "near_duplicates",
    "nearest",
    "pca",
    "save_projector",
    "scatter_png",
]
