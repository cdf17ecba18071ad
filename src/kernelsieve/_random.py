"""Named random streams: one seed in, one independent generator per purpose.

A stream is keyed by what it is for (and by a block or feature index), never by the order in which
streams are asked for, so results do not depend on threads, chunks or workers.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from sklearn.utils import check_random_state


def root_seed(random_state: Any) -> int:
    """The one integer that all streams of a fit derive from."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def key_word(key: str | int) -> int:
    """A 64-bit word for a key, the same in every process (unlike ``hash``)."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def stream(seed: int, *keys: str | int) -> np.random.Generator:
    """The generator named by ``keys`` under ``seed``.

    Examples
    --------
    >>> a, b = stream(0, "anchors"), stream(0, "anchors")
    >>> bool(a.random() == b.random())
    True
    """
    words = [key_word(key) for key in keys]
    spawn_key = [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=spawn_key)))
