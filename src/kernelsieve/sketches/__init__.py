"""Random projections of rows and of their tensor powers, which are never formed.

A class here is a distribution; ``sample(random_state)`` draws an operator from it, and the
operator's ``apply(X)`` sketches the rows of X. The same seed gives the same operator everywhere.
"""

from kernelsieve.sketches.osnap import OSNAP
from kernelsieve.sketches.poly_sketch import PolySketch
from kernelsieve.sketches.srht import SRHT
from kernelsieve.sketches.tensor_sketch import TensorSketch
from kernelsieve.sketches.tensor_srht import TensorSRHT

__all__ = ["OSNAP", "SRHT", "PolySketch", "TensorSRHT", "TensorSketch"]
