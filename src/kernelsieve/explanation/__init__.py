"""What a model says: effects of columns, their interactions, Shapley values."""

from kernelsieve.explanation.entry import explain
from kernelsieve.explanation.explanation import Effect, Explanation, Part, ShapleyValues
from kernelsieve.explanation.probing import Probe

__all__ = ["Effect", "Explanation", "Part", "Probe", "ShapleyValues", "explain"]
