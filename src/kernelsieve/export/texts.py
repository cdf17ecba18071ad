"""Texts that are compared as tables compare them: without the spaces around them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernelsieve.export.graph import Graph
from kernelsieve.tables.cells import SPACES
from kernelsieve.tables.texts import MISSING

LONGEST_PATTERN = 4_000  # characters: longer ones take much memory, and then much time
OPERATORS = frozenset(r"\.+*?()|[]{}^$")


def missing_texts(graph: Graph, texts: str) -> str:
    """Where texts (n, 1) mean "no value": True or False."""
    return _matches(graph, texts, sorted(MISSING), "(?i)")


def numbers_of_texts(graph: Graph, texts: str, numbers: Mapping[str, int]) -> str:
    """The numbers above 0 of known texts, 0 for others: (n, 1) both, in float64.

    There is no operator that removes spaces, and an expression for each text would be slow. So
    each expression matches the texts whose number has a certain binary digit.
    """
    flags, weights = [], []
    for bit in range(max(numbers.values()).bit_length()):
        marked = [text for text, number in numbers.items() if number >> bit & 1]
        for some in _bunches(marked):
            flags.append(graph.flags(_matches(graph, texts, some)))
            weights.append(float(1 << bit))
    return graph.op("MatMul", graph.join(flags), np.array(weights)[:, None])


def _bunches(texts: list[str]) -> list[list[str]]:
    """The texts in bunches whose expressions are short."""
    found: list[list[str]] = []
    size = LONGEST_PATTERN
    for text in texts:
        size += len(text) + 1
        if size > LONGEST_PATTERN:
            found.append([])
            size = len(text)
        found[-1].append(text)
    return found


def _matches(graph: Graph, texts: str, wanted: list[str], mode: str = "") -> str:
    """Where texts are one of those that are wanted, with or without spaces around them."""
    spaces = "[" + "".join(f"\\x{{{ord(space):x}}}" for space in SPACES) + "]*"
    pattern = f"{mode}{spaces}(?:{'|'.join(map(_literal, wanted))}){spaces}"
    return graph.op("RegexFullMatch", texts, pattern=pattern)


def _literal(text: str) -> str:
    """An expression for a text."""
    return "".join(f"\\{c}" if c in OPERATORS else "\\x{0}" if c == "\0" else c for c in text)
