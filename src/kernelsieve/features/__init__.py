"""Feature maps: scikit-learn transformers Z with Z Z^T close to K."""

from kernelsieve.features._base import FeatureMap
from kernelsieve.features.fourier import FourierFeatures

__all__ = ["FeatureMap", "FourierFeatures"]
