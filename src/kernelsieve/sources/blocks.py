"""Blocks of rows, cut and joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from kernelsieve.sources.base import Block, Source


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


def targets_of(rows: Source) -> Block:
    """The targets and weights of all rows; the block has no columns if rows are not in memory."""
    if rows.resident:
        return rows.take(np.arange(rows.shape[0]))
    parts = list(rows.map(_targets_of_block))
    y = np.concatenate([part[0] for part in parts])
    weights = None if parts[0][1] is None else np.concatenate([part[1] for part in parts])
    return Block(np.empty((len(y), 0)), y, weights)


def _targets_of_block(block: Block) -> tuple[Any, Any]:
    return block.y, block.weights
