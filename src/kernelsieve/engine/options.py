"""Every constant of the engine, in one value that callers may replace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EngineOptions:
    """The sizes and shares of the engine. All values are safe: weights stay exactly unbiased.

    Examples
    --------
    >>> EngineOptions(trial_rows=200).pool_factor
    12
    """

    # --- rows that a fit looks at one by one ---
    # Rows kept to judge the choice on. They are not anchors where there are enough others.
    held_out_rows: int = 1500
    # Rows on which the candidate spaces (bases and rotations) are compared.
    trial_rows: int = 1024
    # Rows that show the principal directions: any rotation is right, these suffice for a good one.
    rotation_rows: int = 8192
    # Dense rows that features are drawn from.
    proposal_rows: int = 8192
    # Stored entries of the sparse rows that features are drawn from: mostly all rows.
    sparse_proposal_entries: int = 2**24
    # Numbers in the tables of a proposal over one-dimensional functions (rows times orders).
    table_proposal_entries: int = 2**22
    # Rows of the smallest such proposal, however many orders there are.
    fewest_table_rows: int = 1024
    # Rows whose histograms are made at once.
    histogram_rows: int = 8192

    # --- the candidate spaces ---
    # The share of its allowance that the truncation of a series uses. Theorem 2 gives half of eps
    # to it; a higher degree costs nothing here.
    truncation: float = 1e-3
    # A rotation must miss less than this share of the trace that columns miss: columns have names,
    # and targets that depend on few of them or on their products are lost on principal components.
    # Data without principal directions show ratios of 0.96 to 1.04, those that gain 0.6 to 0.85.
    rotation_gain: float = 0.9
    # Features that each candidate space draws in the trial, at most.
    trial_components: int = 500
    # The trial draws at most this many times as many features as it keeps.
    trial_draws: float = 40.0
    # Columns; beyond, "auto" does not look for principal directions.
    largest_rotation: int = 2048
    # Columns; beyond, "auto" stays with monomials: hardly worse, and quicker to make.
    largest_mercer: int = 256

    # --- draws ---
    # Draws made by one random stream: fixed, so that threads do not change them.
    batch: int = 4096
    # Draws of a pool at most (the expected number).
    max_draws: int = 2_000_000
    # The share of the draws for what hardly shows on the proposal rows.
    spread_share: float = 0.02
    # Total orders of one-dimensional functions that may be taken whole; higher ones are drawn.
    max_whole_order: int = 12
    # Products looked at when sparse rows are searched for all nonzero ones.
    max_listed: int = 10**8

    # --- scores ---
    # Features in the pool for each one that is kept.
    pool_factor: int = 12
    # Anchor rows at least and at most, where there are more rows than the latter. On wine,
    # insurance and uji test errors with 1,000, 1,500 and 3,000 anchors are the same.
    n_anchors: tuple[int, int] = (1500, 3000)
    # The cost n_0^3 of the anchors, as a share of the n s^2 of a ridge regression on the features.
    anchor_cost: float = 0.1
    # Anchors on which the statistical dimension is estimated.
    dimension_rows: int = 1000
    # Random vectors that estimate leverages on the anchors.
    n_vectors: int = 32
    # Heaviest directions of a kernel of inner products, and pairs of them for which the sum over
    # the kept features is that over the pool.
    n_directions: int = 25
    n_balanced: int = 80


DEFAULTS = EngineOptions()
