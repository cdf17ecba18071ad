"""Features sampled by their row norm: the paper's single-round variant, without its sketch."""

from __future__ import annotations

from typing import Any, ClassVar

from kernelsieve.engine.scores import Selector, row_norm_selector
from kernelsieve.features.adaptive import SampledFeatures
from kernelsieve.paper.selectors import single_round_selector
from kernelsieve.sources.base import Source


class RowNormFeatures(SampledFeatures):
    """Products of coordinates, sampled in proportion to their squared norm on the data.

    Distinct features with exactly unbiased weights: E[Z Z^T] = K.

    Parameters
    ----------
    n_components : int or "auto", default 1000
        The number of features. If fewer exist, all of them are used and Z Z^T = K. "auto" doubles
        the number until the spectral error on held-out rows is below ``eps``.
    kernel : Kernel or str, default "gaussian"
        A kernel with a Taylor series, a `Product` of one-dimensional kernels (on dense data), the
        name of one, or "learned" for the product kernel that explains the target best. With
        a `Product`, NaN stands for a missing value.
    gamma : "scale", "auto" or float, default "scale"
        Of a kernel given by name: "scale" is 1 / (d var(X)), and "auto" is 1 / d.
    degree : int, default 3
        The degree of kernel="poly".
    coef0 : float, default 1.0
        The constant of kernel="poly".
    alpha : float, default None
        The ridge that the features are for. None takes that of the model, or 1. Only the truncation
        of the Taylor series and n_components="auto" depend on it.
    eps : float, default 0.5
        The spectral error to aim at.
    sampler : "exact" or "paper"
        "exact" draws distinct features from the exact distribution. "paper" is one round of the
        published sampler, with its sketch and independent draws, for comparison: slower and less
        accurate. It uses products of columns only, no Mercer basis.
    center : "auto", True or False
        Whether to subtract the column means. "auto" does so for the Gaussian on dense data.
    rotate : "auto", True or False
        Whether to use products of principal components instead of columns. "auto" compares both
        on dense data.
    basis : "auto", "monomial" or "mercer"
        Powers of the coordinates, or functions adapted to their distributions (for the Gaussian and
        product kernels on dense data). "auto" compares both where both are possible.
    categorical_features : sequence of int, str or bool, optional
        Numbers or names of columns that hold codes of categories, or a mask of all columns. They
        get the family "categorical" of ``kernels.Product``: 1 where two codes are equal, else
        exp(-rate). For kernel="gaussian" and "laplacian" that rate is the exponent of two columns
        at their typical distance, if they have variance 1.
    random_state : int, RandomState, Generator or None, default None
        Seed of all random choices; None draws a new one for every fit.
    n_jobs : int, optional
        Number of threads; None uses all cores.

    Attributes
    ----------
    monomials_ : list of tuple
        The multiset of coordinates of every feature: (0, 0, 3) is x_0^2 x_3.
    weights_ : ndarray of shape (n_components,)
        Factor of every feature: 1 / sqrt(its inclusion probability).
    capped_columns_ : ndarray
        Coordinates with so many values that their functions lose some of them, also in training.
    features_ : ProductFeatures
        The weighted products, as they are evaluated.
    kernel_ : Kernel
        The kernel that was used.
    n_components_ : int
        The number of features; fewer than ``n_components`` if no more exist.
    basis_ : "monomial" or "mercer"
        The basis that was used.
    rotate_ : bool
        Whether the coordinates are principal components.
    truncation_degree_ : int or None
        The degree of the truncated Taylor series; None for the Mercer basis.
    statistical_dimension_ : Estimate
        The statistical dimension of the kernel at alpha, estimated on held-out rows on first use.
    spectral_epsilon_ : Estimate
        The spectral error of the features at alpha, estimated on held-out rows on first use.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (d,)
        Names of the columns, if X had names.

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
        categorical_features: Any = None,
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
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _selector(self, rows: Source, alpha: float) -> Selector:
        if self.sampler == "paper":
            return single_round_selector(rows, alpha, self.n_jobs)
        return row_norm_selector("sampler='exact'", self.n_jobs)
