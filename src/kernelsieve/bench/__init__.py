"""Comparisons of kernel methods by the protocol of the paper: error, training time, and s."""

from kernelsieve.bench.methods import METHODS, PAPER_METHODS, Method, Settings
from kernelsieve.bench.records import Comparison, Result, Store, Summary
from kernelsieve.bench.runner import Plan, run

__all__ = [
    "METHODS",
    "PAPER_METHODS",
    "Comparison",
    "Method",
    "Plan",
    "Result",
    "Settings",
    "Store",
    "Summary",
    "run",
]
