"""Feature maps: scikit-learn transformers Z with Z Z^T close to K."""

from kernelsieve.features._base import FeatureMap
from kernelsieve.features.adaptive import AdaptiveFeatures
from kernelsieve.features.fourier import FourierFeatures
from kernelsieve.features.row_norm import RowNormFeatures

__all__ = ["AdaptiveFeatures", "FeatureMap", "FourierFeatures", "RowNormFeatures"]
