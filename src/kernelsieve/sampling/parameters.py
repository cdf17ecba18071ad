"""How large the random matrices of Algorithms 2 and 3 are."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from kernelsieve._validation import check_count, check_positive


@dataclass(frozen=True)
class SamplerParameters:
    """The sizes in a RowSampler.

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
        C1: float = 4.0,
        C2: float = 2.0,
        C3: float = 1.0,
        C4: float = 0.05,
    ) -> SamplerParameters:
        """The paper's formulas.

        Its logarithms of n assume that d is at most a power of n; they are of max(n, d) here,
        because the bad events range over the coordinates, too.

        Parameters
        ----------
        n, n_features, degree, n_components : int
            Rows, columns, q and s.
        eps : float
            Each of the q steps may err by eps / q; the paper has 1/10.
        C1, C2, C3 : float
            The constants of d', m' and n'.
        C4 : float
            That of the tree's width, q^3 log^3, which the paper leaves to its Lemma.
        """
        check_positive(eps, "eps", "it is divided by the degree for each step")
        q, log = max(1, degree), log2(max(2, n, n_features))
        steps = (0.1 * q / eps) ** 2
        sketch_size = ceil(C2 * steps * log)
        return cls(
            n_vectors=ceil(C1 * q * log),
            sketch_size=sketch_size,
            tree_width=max(sketch_size, ceil(C4 * steps * q * log**3)),
            n_buckets=ceil(q**1.5 * n_components),
            bucket_rows=ceil(C3 * steps * log),
        )

    @classmethod
    def practical(cls, n_features: int, degree: int) -> SamplerParameters:
        """Small sizes, chosen by measurement: any sizes are unbiased, these are fast."""
        return cls(
            n_vectors=24,
            sketch_size=32,
            tree_width=256,
            # One pass over the buckets and one inside a bucket should cost about the same.
            n_buckets=max(1, min(64, n_features // 8)),
            bucket_rows=4,
        )


def sample_size(mu: float, eps: float, n: int, C: float = 4.0) -> int:
    """Alg. 1 line 1: s = C mu / eps^2 log_2 n. The proof's constants give C = 64."""
    for name, value in (("mu", mu), ("eps", eps), ("C", C)):
        check_positive(value, name, "the sample size is C mu / eps^2 log_2 n")
    return ceil(C * mu / eps**2 * log2(max(2, n)))
