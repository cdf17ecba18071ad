"""Feature maps: scikit-learn transformers Z with Z Z^T close to K."""

from kernelsieve.features.adaptive import AdaptiveFeatures
from kernelsieve.features.auto import AutoFeatures
from kernelsieve.features.base import FeatureMap
from kernelsieve.features.binning import BinningFeatures
from kernelsieve.features.fourier import FourierFeatures
from kernelsieve.features.gegenbauer import GegenbauerFeatures
from kernelsieve.features.maclaurin import MaclaurinFeatures
from kernelsieve.features.network import NetworkFeatures
from kernelsieve.features.nystrom import NystromFeatures
from kernelsieve.features.oblivious import ObliviousFeatures
from kernelsieve.features.residual import ResidualFeatures
from kernelsieve.features.row_norm import RowNormFeatures
from kernelsieve.features.tensor_sketch import TensorSketchFeatures

__all__ = [
    "AdaptiveFeatures",
    "AutoFeatures",
    "BinningFeatures",
    "FeatureMap",
    "FourierFeatures",
    "GegenbauerFeatures",
    "MaclaurinFeatures",
    "NetworkFeatures",
    "NystromFeatures",
    "ObliviousFeatures",
    "ResidualFeatures",
    "RowNormFeatures",
    "TensorSketchFeatures",
]
