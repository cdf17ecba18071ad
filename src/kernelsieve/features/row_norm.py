"""Features sampled by their row norm: the paper's single-round variant, without its sketch."""

from __future__ import annotations

from typing import Any, ClassVar

from kernelsieve.engine.scores import Selector, row_norm_selector
from kernelsieve.features.sampled import SampledFeatures
from kernelsieve.paper.selectors import single_round_selector
from kernelsieve.sources.base import Source


class RowNormFeatures(SampledFeatures):
    """Products of coordinates, sampled in proportion to their squared norm on the data.

    Distinct features with exactly unbiased weights: E[Z Z^T] = K.

    Parameters
    ----------
    n_components : int or "auto", default 1000
        Number of features. When fewer exist, all of them are taken and Z Z^T = K. "auto" doubles
        from the statistical dimension on until held-out rows show a spectral error below eps.
    kernel : Kernel or str, default "gaussian"
    gamma, degree, coef0
        As in scikit-learn; gamma="scale" is 1 / (d var(X)).
    alpha : float, default None
        The ridge that the features will be used with; only the truncation of the Taylor series
        looks at it. None takes the model's, or 1.
    eps : float, default 0.5
    sampler : "exact" or "paper"
        "exact" draws distinct features from the exact distribution. "paper" is one round of the
        published sampler, with its sketch and independent draws, to be compared with: slower, and
        less accurate. It uses products of columns only, no Mercer basis.
    center : "auto", True or False
        Subtract the column means; "auto" does so for the Gaussian on dense data.
    rotate : "auto", True or False
        Products of principal components instead of columns. "auto" tries both on dense data.
    basis : "auto", "monomial" or "mercer"
        Powers of the coordinates, or functions adapted to their distributions (dense, Gaussian).
    random_state : int, RandomState, Generator or None
    n_jobs : int, default all cores

    Attributes
    ----------
    monomials_ : list of tuple
        The multiset of coordinates of every feature.
    weights_ : ndarray of shape (n_components,)
    truncation_degree_ : int or None
        The degree of the truncated Taylor series; None for the Mercer basis.
    statistical_dimension_, spectral_epsilon_ : Estimate
        Of the kernel and of the features at alpha, on held-out rows (computed when asked for).

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import RowNormFeatures
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> features = RowNormFeatures(6, kernel="poly", degree=2, rotate=False, random_state=0)
    >>> features.fit(X).get_feature_names_out().tolist()
    ['1', 'x0', 'x0 x1', 'x0^2', 'x1', 'x1^2']
    """

    samplers: ClassVar = ("exact", "paper")

    def __init__(
        self,
        n_components: int = 1000,
        *,
        kernel: Any = "gaussian",
        gamma: Any = "scale",
        degree: int = 3,
        coef0: float = 1.0,
        alpha: float | None = None,
        eps: float = 0.5,
        sampler: str = "exact",
        center: Any = "auto",
        rotate: Any = "auto",
        basis: str = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.alpha = alpha
        self.eps = eps
        self.sampler = sampler
        self.center = center
        self.rotate = rotate
        self.basis = basis
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _selector(self, rows: Source, alpha: float) -> Selector:
        if self.sampler == "paper":
            return single_round_selector(rows, alpha, self.n_jobs)
        return row_norm_selector("sampler='exact'", self.n_jobs)
