"""What to fit: the choice of a kernel, a solver and all else, as a plan."""

from kernelsieve.learning.budget import Budget
from kernelsieve.learning.choice import Wanted, choose
from kernelsieve.learning.grid import SearchResult
from kernelsieve.learning.judge import Judge, Split
from kernelsieve.learning.map_search import SearchOptions, choose_gamma_alpha, search
from kernelsieve.learning.options import LearnOptions
from kernelsieve.learning.plan import Plan

__all__ = [
    "Budget",
    "Judge",
    "LearnOptions",
    "Plan",
    "SearchOptions",
    "SearchResult",
    "Split",
    "Wanted",
    "choose",
    "choose_gamma_alpha",
    "search",
]
