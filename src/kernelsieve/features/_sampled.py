"""What the sampled maps share: the choice of a space, evaluation, names."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from kernelsieve._parallel import map_row_blocks
from kernelsieve._validation import check_choice, check_positive
from kernelsieve.features._base import FeatureMap
from kernelsieve.kernels import Gaussian, SeriesKernel
from kernelsieve.sampling.anchors import keyed_rows
from kernelsieve.sampling.frame import Frame
from kernelsieve.sampling.product_features import ProductFeatures
from kernelsieve.sampling.space import MercerSpace, MonomialSpace, Space

TRIAL_ROWS = 2048
TRIAL_COMPONENTS = 1000
LARGEST_ROTATION = 2048  # columns; beyond, "auto" does not look for principal directions
SPARSE_BLOCK_ROWS = 2048


class SampledFeatures(FeatureMap):
    """Base of the maps whose features are sampled products of coordinates."""

    unbiased: ClassVar[bool] = True

    alpha: float | None
    eps: float
    degree: int
    coef0: float
    center: Any
    rotate: Any
    basis: str

    features_: ProductFeatures
    truncation_degree_: int | None

    @abstractmethod
    def _choose(self, space: Space, X: Any, y: Any, seed: int) -> ProductFeatures:
        """Weighted features of this space."""

    def _fit(self, X: Any, y: Any, seed: int) -> None:
        check_choice(self.rotate, "rotate", ("auto", True, False))
        check_choice(self.basis, "basis", ("auto", "monomial", "mercer"))
        check_choice(self.center, "center", ("auto", True, False))
        self._alpha = 1.0 if self.alpha is None else check_positive(
            self.alpha, "alpha", "it is added to the kernel's diagonal"
        )
        check_positive(self.eps, "eps", "it is the spectral error to aim at")
        if not isinstance(self.kernel_, SeriesKernel):
            raise ValueError(
                f"{self.kernel_!r} has no Taylor series to sample from: use NystromFeatures"
            )
        space = self._choose_space(X, seed)
        self.features_ = self._choose(space, X, y, seed)
        self.n_components_ = len(self.features_)

    def _choose_space(self, X: Any, seed: int) -> Space:
        """The candidate space whose features hold most of the kernel's trace, on a subsample."""
        candidates = self._candidates(X)
        if len(candidates) > 1:
            trial_rows = X[keyed_rows(X.shape[0], TRIAL_ROWS, seed, "trial")]
            size = min(self._trial_components(), TRIAL_COMPONENTS)
            traces = [
                self._space(trial_rows, basis, rotate, seed).captured_trace(size, seed, self.n_jobs)
                for basis, rotate in candidates
            ]
            candidates = [candidates[int(np.argmax(traces))]]
        (basis, rotate), = candidates
        self.basis_, self.rotate_ = basis, rotate
        space = self._space(X, basis, rotate, seed)
        self.truncation_degree_ = space.series.degree if isinstance(space, MonomialSpace) else None
        return space

    def _candidates(self, X: Any) -> list[tuple[str, bool]]:
        dense = not sp.issparse(X)
        gaussian = isinstance(self.kernel_, Gaussian)
        if self.basis == "mercer" and not (dense and gaussian):
            raise ValueError(
                "basis='mercer' is for the Gaussian kernel on dense data: use basis='monomial'"
            )
        if self.rotate is True and not dense:
            raise ValueError("rotate=True would fill a sparse X: densify it, or rotate='auto'")
        rotations = [self.rotate] if self.rotate != "auto" else (
            [False, True] if dense and 1 < X.shape[1] <= LARGEST_ROTATION else [False]
        )
        bases = [self.basis] if self.basis != "auto" else (
            ["monomial", "mercer"] if dense and gaussian else ["monomial"]
        )
        return [(basis, rotate) for basis in bases for rotate in rotations]

    def _space(self, X: Any, basis: str, rotate: bool, seed: int) -> Space:
        tol = 0.5 * self.eps * self._alpha  # half of eps is the truncation's (Theorem 2's proof)
        kernel = self.kernel_
        assert isinstance(kernel, SeriesKernel)
        if basis == "mercer":
            frame = Frame.of_gaussian(kernel.gamma, X, self.center)
            frame = frame.rotated(X) if rotate else frame
            return MercerSpace(frame, X, tol / X.size, seed)
        series = kernel.series(X, tol, center=self.center)
        frame = Frame.of_series(series, X)
        return MonomialSpace(series, frame.rotated(X) if rotate else frame, X, seed)

    def _trial_components(self) -> int:
        return int(self.n_components)

    def _fill(self, X: Any, out: NDArray[Any]) -> None:
        self.features_.fill(X, out)

    def _transform_block(self, X: Any) -> Any:
        if sp.issparse(X):
            return self.features_.csr(X)
        return super()._transform_block(X)

    def _transform(self, X: Any) -> Any:
        if not sp.issparse(X):
            return super()._transform(X)
        blocks = map_row_blocks(
            lambda rows: self.features_.csr(X[rows]), X.shape[0], SPARSE_BLOCK_ROWS, self.n_jobs
        )
        return sp.vstack(blocks, format="csr")

    @property
    def monomials_(self) -> list[tuple[int, ...]]:
        """The multiset of coordinates of every feature."""
        return self.features_.multisets.tuples()

    @property
    def weights_(self) -> NDArray[np.float64]:
        """What every feature is multiplied by: 1 / sqrt(its inclusion probability)."""
        return self.features_.weights

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names such as "alcohol^2 pH": products of scaled, centred columns.

        For the Gaussian kernel each is also times exp(-|x'|^2 / 2). In a rotated frame the columns
        are principal components, pc0, pc1, ...; in the Mercer basis x(k) is the k-th adapted
        function of column x.
        """
        check_is_fitted(self)
        columns = _check_feature_names_in(self, input_features)
        if self.rotate_:
            columns = [f"pc{i}" for i in range(self.features_.frame.n_coordinates)]
        pattern = "{}({})" if self.basis_ == "mercer" else "{}^{}"
        multisets = self.features_.multisets
        atoms = [
            str(columns[i]) if k == 1 and self.basis_ == "monomial" else pattern.format(columns[i], k)
            for i, k in zip(multisets.coordinates.tolist(), multisets.orders.tolist(), strict=True)
        ]
        bounds = zip(multisets.starts.tolist(), multisets.ends.tolist(), strict=True)
        return np.array([" ".join(atoms[a:b]) or "1" for a, b in bounds], dtype=object)
