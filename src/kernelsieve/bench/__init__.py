"""Comparisons of kernel methods by the protocol of the paper: error, training time, and s."""

from kernelsieve.bench.methods import METHODS, Method, Settings
from kernelsieve.bench.records import Result, Summary, summarise
from kernelsieve.bench.runner import Plan, run

__all__ = ["METHODS", "Method", "Plan", "Result", "Settings", "Summary", "run", "summarise"]
