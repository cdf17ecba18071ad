"""One search of gamma and alpha, one judgement on rows set apart, one registry of methods."""

from kernelsieve.tuning.grid import SearchResult
from kernelsieve.tuning.judge import Judge, Split
from kernelsieve.tuning.search import SearchOptions, choose_gamma_alpha, search

__all__ = ["Judge", "SearchOptions", "SearchResult", "Split", "choose_gamma_alpha", "search"]
