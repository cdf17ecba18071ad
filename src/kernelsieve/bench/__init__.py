"""Comparisons of methods: error, training time and number of features; a scoreboard of tables."""

from kernelsieve.bench.methods import METHODS, PAPER_METHODS, PEERS, Method, Settings
from kernelsieve.bench.records import Comparison, Result, Store, Summary
from kernelsieve.bench.runner import Run, run
from kernelsieve.bench.schedule import Plan

__all__ = [
    "METHODS",
    "PAPER_METHODS",
    "PEERS",
    "Comparison",
    "Method",
    "Plan",
    "Result",
    "Run",
    "Settings",
    "Store",
    "Summary",
    "run",
]
