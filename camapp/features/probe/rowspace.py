"""Standardised features in as few coordinates as they span, and the way back to weights of the features as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# A feature that varies by less counts as constant: a weight divided by its spread would leave float32.
_LEAST_SPREAD = 1e-30
# So does one that varies by less than this part of what features usually do: a channel that is all but dead in a few
# training pictures would, standardised, decide the class of any other picture in which it is not.
_LEAST_SHARE = 1e-4


@dataclass(frozen=True, eq=False)
class RowSpace:
    r"""Coordinates in which a linear classifier with an L2 penalty has the same optimum, and fewer weights.

    Features :math:`x` are standardised, :math:`\tilde x = (x - m) / s`, as scikit-learn's ``StandardScaler`` does it,
    but a constant feature counts for nothing: its :math:`s` is infinite; and so does one that varies by less than
    1e-4 of the median over all features. Where there are fewer pictures than features,
    :math:`N < D`, they are then rotated into the space that the training rows span: with the QR decomposition
    :math:`\tilde X^T = Q R`, :math:`Q^T Q = I`, the coordinates are :math:`z = Q^T \tilde x`, N numbers instead of D.

    Nothing is lost. Take any weights :math:`w = Q a + w_\perp` with :math:`Q^T w_\perp = 0`. On the training rows,
    which are :math:`\tilde X = R^T Q^T`, the score is :math:`\tilde X w = R^T a = Z a`: the loss does not depend on
    :math:`w_\perp`. The penalty :math:`\lVert w \rVert^2 = \lVert a \rVert^2 + \lVert w_\perp \rVert^2` is least
    where :math:`w_\perp = 0`. So the optimum lies in the span of Q, where loss and penalty are those of :math:`a` on
    :math:`Z`; and a new picture's score is :math:`w^T \tilde x = a^T Q^T \tilde x = a^T z`, without an
    approximation.

    Args:
        mean: (D,) of the training features.
        spread: (D,) their standard deviation; infinite where constant.
        basis: (D, N) Q, or None where the features are not rotated.
    """

    mean: np.ndarray
    spread: np.ndarray
    basis: np.ndarray | None

    @classmethod
    def of(cls, features: np.ndarray) -> RowSpace:
        """The coordinates that training features (N, D) float64 span."""
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler().fit(features)
        deviation = np.sqrt(scaler.var_)
        usual = np.median(deviation[deviation > 0]) if deviation.any() else 0.0
        least = max(_LEAST_SPREAD, _LEAST_SHARE * float(usual))
        constant = (scaler.scale_ != deviation) | (deviation < least)  # scale_ is 1 where there is no variance
        spread = np.where(constant, np.inf, deviation)
        count, size = features.shape
        if count >= size:
            return cls(scaler.mean_, spread, None)
        standardised = (features - scaler.mean_) / spread
        return cls(scaler.mean_, spread, np.linalg.qr(standardised.T)[0])

    def coordinates(self, features: np.ndarray) -> np.ndarray:
        """Features (B, D) as (B, R) coordinates."""
        standardised = (features - self.mean) / self.spread
        return standardised if self.basis is None else standardised @ self.basis

    def folded(self, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""Weights (K, R) and biases (K,) of coordinates as weights (K, D) and biases (K,) of the features, in float32.

        :math:`a^T z + b = (Q a / s)^T x + b - (Q a / s)^T m`. Where the means are many thousand times the spreads, the
        two terms are large and float32 leaves few digits of their sum.
        """
        folded = (weight if self.basis is None else weight @ self.basis.T) / self.spread
        return folded.astype(np.float32), (bias - folded @ self.mean).astype(np.float32)
