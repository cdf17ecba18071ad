"""Blocks of rows, cut and joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import scipy.sparse as sp

from kernelsieve.sources.base import Block


def joined(blocks: list[Block]) -> Block:
    """Join consecutive blocks into one."""
    first = blocks[0]
    if len(blocks) == 1:
        return first
    stack = partial(sp.vstack, format="csr") if sp.issparse(first.X) else np.concatenate
    return Block(
        stack([block.X for block in blocks]),
        None if first.y is None else np.concatenate([block.y for block in blocks]),
        None if first.weights is None else np.concatenate([block.weights for block in blocks]),
        first.start,
    )


def aligned(blocks: Iterable[Block], size: int) -> Iterator[Block]:
    """Cut and join blocks so that all have ``size`` rows; the last one may be shorter."""
    waiting: list[Block] = []
    room = size
    for block in blocks:
        place = 0
        while len(block) - place >= room:
            waiting.append(block.part(place, place + room))
            place += room
            yield joined(waiting)
            waiting, room = [], size
        if place < len(block):
            waiting.append(block.part(place, len(block)))
            room -= len(block) - place
    if waiting:
        yield joined(waiting)
