"""Sizes of the random matrices in Algorithms 2 and 3."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt, log2

from kernelsieve._validation import check_count, check_positive

MAX_BUCKET_ROWS = 256  # of the practical W_r together: they are dense


@dataclass(frozen=True)
class SamplerParameters:
    """Sizes of the random matrices of a RowSampler.

    Attributes
    ----------
    n_vectors : int
        d', columns of H (line 1).
    sketch_size : int
        m', rows of the sketch Q^q (line 3).
    tree_width : int
        Width of the tree inside Q^q (its Lemma).
    n_buckets : int
        s', buckets of the coordinates (line 8).
    bucket_rows : int
        n', rows of the matrices G_r (line 10).

    Examples
    --------
    >>> SamplerParameters.practical(n_features=50, degree=3).n_vectors
    24
    """

    n_vectors: int
    sketch_size: int
    tree_width: int
    n_buckets: int
    bucket_rows: int

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_count(value, name, "it is the size of a random matrix")

    @classmethod
    def paper(
        cls,
        n: int,
        n_features: int,
        degree: int,
        n_components: int,
        eps: float = 0.1,
        *,
        C1: float = 5.0,
        C2: float = 2.0,
        C3: float = 4.0,
        C4: float = 0.02,
    ) -> SamplerParameters:
        """Compute the sizes by the paper's formulas, with the logarithm that its proofs need.

        The union bounds range over all d^q prefixes of paths, for which the printed log n in m' and
        n' is too small. Here it is log(max(n, d)^q), as in d'.

        Parameters
        ----------
        n, n_features, degree, n_components : int
            Rows, columns, q and s.
        eps : float, default 0.1
            Each of the q steps may have a relative error of eps / q; the paper has 1/10.
        C1, C2, C3 : float, default 5, 2 and 4
            Constants of d', m' and n'.
        C4 : float, default 0.02
            Constant of the tree's width, q / eps^2 log^3, which the paper leaves to its Lemma.

        Returns
        -------
        SamplerParameters
        """
        check_positive(eps, "eps", "each of the q steps gets eps / q")
        q = max(1, degree)
        log, steps = q * log2(max(16, n, n_features)), (q / (10.0 * eps)) ** 2
        sketch_size = ceil(C2 * steps * log)
        return cls(
            n_vectors=ceil(C1 * log),
            sketch_size=sketch_size,
            tree_width=max(sketch_size, ceil(C4 * steps * q * log**3)),
            n_buckets=ceil(q**1.5 * n_components),
            bucket_rows=ceil(C3 * steps * log),
        )

    @classmethod
    def practical(cls, n_features: int, degree: int) -> SamplerParameters:
        """Choose small sizes that work well in practice.

        Any sizes give unbiased features, as long as the sketch sends none to zero; small sizes give
        more variance. The sketch may be small at every degree. The buckets may not: every step uses
        the same G_r, so their errors multiply, and n' must grow with q^2. So buckets only pay off
        if there are many more coordinates than q^2.

        Parameters
        ----------
        n_features : int
            Number of columns.
        degree : int
            Degree q of the Taylor series.

        Returns
        -------
        SamplerParameters
        """
        bucket_rows = 4 * max(1, degree) ** 2
        # One pass over the rows of all W_r should cost no more than one inside a bucket.
        n_buckets = min(isqrt(n_features // bucket_rows), MAX_BUCKET_ROWS // bucket_rows)
        return cls(
            n_vectors=24,
            sketch_size=32,
            tree_width=256,
            n_buckets=max(1, n_buckets),
            bucket_rows=bucket_rows,
        )


def sample_size(mu: float, eps: float, n: int, C: float = 4.0) -> int:
    """Number of features that Algorithm 1 asks for: s = C mu / eps^2 log_2 n (line 1).

    Parameters
    ----------
    mu : float
        Bound on the statistical dimension.
    eps : float
        The spectral error to aim at.
    n : int
        Number of rows.
    C : float, default 4
        The proof's constants give 64.

    Returns
    -------
    int
    """
    for name, value in (("mu", mu), ("eps", eps), ("C", C)):
        check_positive(value, name, "the sample size is C mu / eps^2 log_2 n")
    return ceil(C * mu / eps**2 * log2(max(2, n)))
