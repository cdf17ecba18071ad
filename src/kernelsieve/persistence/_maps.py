"""The other feature maps in model files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._native.lanes import LANES
from kernelsieve._random import stream
from kernelsieve.features import (
    AutoFeatures,
    FeatureMap,
    FourierFeatures,
    MaclaurinFeatures,
    NystromFeatures,
    ObliviousFeatures,
    TensorSketchFeatures,
)
from kernelsieve.features.auto import Trial
from kernelsieve.features.frequencies import StructuredFrequencies
from kernelsieve.features.oblivious import SampledGaussianMatrix
from kernelsieve.features.power_tree import LEAF_SPARSITY
from kernelsieve.features.series import Block, SeriesFeatures, monomial_count
from kernelsieve.kernels import Kernel
from kernelsieve.kernels.base import Series
from kernelsieve.persistence._estimators import Estimator, fitted, same_columns
from kernelsieve.persistence._nodes import FLOATS, Fields, check_array, wrong
from kernelsieve.persistence._sampled import (
    FLOAT64,
    INT64,
    LARGEST_SCALE,
    SMALLEST_SCALE,
    read_coefficients,
)
from kernelsieve.sketches.base import power_of_two
from kernelsieve.sketches.osnap import SampledOSNAP
from kernelsieve.sketches.srht import SampledSRHT
from kernelsieve.sketches.tensor_sketch import SampledTensorSketch

# Maps that are given by few numbers: what these may ask for is bounded, as a file is not longer
# for it. Columns of Z, and columns times degrees.
MOST_COMPONENTS = 2**20
MOST_FACTORS = 2**22


class _Fourier(Estimator):
    cls = FourierFeatures
    attributes = ("kernel_", "n_components_", "frequencies_", "weights_", "phases_")

    def state(self, estimator: FourierFeatures, where: str) -> dict[str, Any]:
        frequencies = estimator.frequencies_
        return {
            "kernel": estimator.kernel_,
            "weights": estimator.weights_,
            "phases": estimator.phases_,
            **(
                {"rotations": _pack_structured(frequencies)}
                if isinstance(frequencies, StructuredFrequencies)
                else {"frequencies": frequencies}
            ),
        }

    def restore(self, estimator: FourierFeatures, read: Fields) -> None:
        estimator.kernel_ = read.thing("kernel", Kernel)
        estimator.weights_ = read.array("weights", FLOAT64, (None,))
        estimator.phases_ = read.array("phases", FLOAT64, (None,))
        count, d = len(estimator.weights_), estimator.n_features_in_
        # Every frequency has a cosine, and a sine or a phase.
        estimator.n_components_ = 2 * count - len(estimator.phases_)
        if not 0 <= len(estimator.phases_) <= count or count == 0:
            wrong(read.where, f"has {len(estimator.phases_)} phases for {count} frequencies")
        if read.has("frequencies"):
            estimator.frequencies_ = read.array("frequencies", FLOATS, (d, count))
        else:
            estimator.frequencies_ = _read_structured(read.part("rotations"), d, count)


def _pack_structured(frequencies: StructuredFrequencies) -> dict[str, Any]:
    return {name: getattr(frequencies, name) for name in ("signs", "fine", "coarse", "lengths")}


def _read_structured(read: Fields, n_features: int, count: int) -> StructuredFrequencies:
    lengths = read.array("lengths", FLOATS, (None, None), order="C")
    kind = (lengths.dtype.type,)
    n_blocks, width = lengths.shape
    if not (
        width == power_of_two(width)
        and width >= max(LANES, n_features)
        and (n_blocks - 1) * width < count <= n_blocks * width
    ):
        wrong(read.where, f"has {n_blocks} blocks of {width} for {count} frequencies")
    signs = read.array("signs", kind, (n_blocks, n_features), order="C")
    fine_size = 2 * (LANES.bit_length() - 1) * width
    fine = read.array("fine", kind, (n_blocks, fine_size), order="C")
    coarse = read.array("coarse", kind, (n_blocks, width // LANES - 1, 2), order="C")
    read.close()
    return StructuredFrequencies(n_features, count, signs, fine, coarse, lengths)


class _Nystrom(Estimator):
    cls = NystromFeatures
    attributes = ("kernel_", "n_components_", "landmarks_", "landmark_indices_", "whitening_")

    def state(self, estimator: NystromFeatures, where: str) -> dict[str, Any]:
        return {
            "kernel": estimator.kernel_,
            "landmarks": estimator.landmarks_,
            "indices": estimator.landmark_indices_,
            "whitening": estimator.whitening_,
        }

    def restore(self, estimator: NystromFeatures, read: Fields) -> None:
        estimator.kernel_ = read.thing("kernel", Kernel)
        estimator.landmarks_ = read.rows("landmarks", estimator.n_features_in_)
        size = estimator.landmarks_.shape[0]
        if size == 0:
            wrong(read.where, "has no landmarks")
        estimator.landmark_indices_ = (
            read.array("indices", INT64, (size,), low=0) if read.given("indices") else None
        )
        estimator.whitening_ = read.array("whitening", FLOATS, (size, size))
        estimator.n_components_ = size


class _TensorSketch(Estimator):
    cls = TensorSketchFeatures
    attributes = ("kernel_", "n_components_", "sketch_")

    def state(self, estimator: TensorSketchFeatures, where: str) -> dict[str, Any]:
        sketch = estimator.sketch_
        return {
            "kernel": estimator.kernel_,
            "size": int(sketch.size),
            "scale": float(sketch.scale),
            "constant": float(sketch.constant),
            "codes": np.stack([leaf.codes[:, 0] for leaf in sketch.leaves]),
        }

    def restore(self, estimator: TensorSketchFeatures, read: Fields) -> None:
        estimator.kernel_ = read.thing("kernel", Kernel)
        size = estimator.n_components_ = read.integer("size", 1, MOST_COMPONENTS)
        scale = read.number("scale", SMALLEST_SCALE, LARGEST_SCALE)
        constant = read.number("constant", 0.0, LARGEST_SCALE)
        n_features = estimator.n_features_in_
        n_codes = n_features + (constant != 0.0)
        codes = read.array("codes", (np.int32,), (None, n_codes), order="C")
        degree = len(codes)
        if degree == 0 or (degree + 1) * size > MOST_FACTORS:
            wrong(read.where, f"sketches {degree} factors to {size} columns each")
        _check_codes(codes, size, read.where)
        leaves = [SampledOSNAP(n_codes, size, line.reshape(-1, 1)) for line in codes]
        estimator.sketch_ = SampledTensorSketch(
            n_features, size, degree, leaves, scale, constant
        )  # fmt: skip


def _check_codes(codes: NDArray[np.int32], size: int, where: str) -> None:
    """A code is a bucket or its complement."""
    if codes.size and not (codes.max() < size and ~codes.min() < size):
        wrong(where, f"has a code for a bucket beyond {size}")


# --- sketches of a series ------------------------------------------------------------------------


class _OfSeries(Estimator):
    attributes: tuple[str, ...] = (
        "kernel_", "n_components_", "truncation_degree_", "_series", "_blocks", "_monomials",
    )  # fmt: skip

    def state(self, estimator: SeriesFeatures, where: str) -> dict[str, Any]:
        series = estimator._series
        return {
            "kernel": estimator.kernel_,
            "series": {
                "scale": float(series.scale),
                "center": series.center,
                "damped": bool(series.damped),
                "log_coefficients": series.log_coefficients,
                "tail": float(series.tail),
            },
            "blocks": [
                {
                    "degree": int(block.degree),
                    "width": int(block.width),
                    "weight": float(block.weight),
                    "exact": bool(block.exact),
                }
                for block in estimator._blocks
            ],
        }

    def restore(self, estimator: SeriesFeatures, read: Fields) -> None:
        estimator.kernel_ = read.thing("kernel", Kernel)
        n_features = estimator.n_features_in_
        estimator._series = _read_series(read.part("series"), n_features)
        estimator.truncation_degree_ = estimator._series.degree
        estimator._blocks = _read_blocks(read, estimator._series.degree, n_features)
        estimator._list_monomials(n_features)


def _read_series(read: Fields, n_features: int) -> Series:
    scale = read.number("scale", SMALLEST_SCALE, LARGEST_SCALE)
    center = read.array("center", FLOAT64, (n_features,)) if read.given("center") else None
    series = Series(scale, center, *read_coefficients(read))
    read.close()
    return series


def _read_blocks(read: Fields, highest: int, n_features: int) -> tuple[Block, ...]:
    """Columns that follow each other, one block for a degree."""
    blocks: list[Block] = []
    start = 0
    for part in read.parts("blocks"):
        degree = part.integer("degree", 0, highest)
        width = part.integer("width", 1, MOST_COMPONENTS)
        weight, exact = part.number("weight", SMALLEST_SCALE, LARGEST_SCALE), part.flag("exact")
        part.close()
        if exact and width != monomial_count(n_features, degree):
            wrong(part.where, f"has {width} columns for all monomials of degree {degree}")
        if not exact and degree == 0:
            wrong(part.where, "has random features of degree 0")
        blocks.append(Block(degree, start, start + width, weight, exact))
        start += width
    if len({block.degree for block in blocks}) < len(blocks) or not blocks:
        wrong(read.where, "has no blocks, or two of one degree")
    factors = sum(block.width * max(1, block.degree) for block in blocks)
    if start > MOST_COMPONENTS or factors > MOST_FACTORS:
        wrong(read.where, f"has {start} columns with {factors} factors")
    return tuple(blocks)


class _Maclaurin(_OfSeries):
    cls = MaclaurinFeatures
    attributes = (*_OfSeries.attributes, "_seed")

    def state(self, estimator: MaclaurinFeatures, where: str) -> dict[str, Any]:
        return {
            **super().state(estimator, where),
            "seed": int(estimator._seed),
            "first_draws": _first_draws(estimator._seed),
        }

    def restore(self, estimator: MaclaurinFeatures, read: Fields) -> None:
        super().restore(estimator, read)
        estimator._seed = read.integer("seed", 0, 2**128)
        if read.text("first_draws") != _first_draws(estimator._seed):
            wrong(
                read.where,
                f"was drawn by another random generator than that of numpy {np.__version__}: "
                "use the version of numpy that wrote it",
            )


def _first_draws(seed: int) -> str:
    """What numpy draws for this seed: its generators may change some day."""
    return stream(seed, "signs", 1, 0, 0).bytes(16).hex()


class _Oblivious(_OfSeries):
    cls = ObliviousFeatures
    attributes = (*_OfSeries.attributes, "_sizes", "_tree", "_compressions")

    def state(self, estimator: ObliviousFeatures, where: str) -> dict[str, Any]:
        random = bool(estimator._sizes)
        compressions = estimator._compressions.values() if random else ()
        return {
            **super().state(estimator, where),
            "tree": estimator._tree.arrays() if random else [],
            "compressions": [array for each in compressions for array in _compression_arrays(each)],
        }

    def restore(self, estimator: ObliviousFeatures, read: Fields) -> None:
        super().restore(estimator, read)
        stored = StoredDraws(read.arrays("tree"), read.where)
        compressions = StoredDraws(read.arrays("compressions"), read.where)
        estimator._sizes = {}
        blocks = [block for block in estimator._blocks if not block.exact]
        if blocks:
            estimator._grow(blocks, estimator.n_features_in_, stored)
            estimator._compressions = {
                block.degree: compressions.compression(estimator._sizes[block.degree], block.width)
                for block in blocks
            }
        stored.close()
        compressions.close()


def _compression_arrays(compression: Any) -> list[NDArray[Any]]:
    if isinstance(compression, SampledGaussianMatrix):
        return [compression.matrices[np.dtype(np.float64)]]
    return [compression.signs, compression.places]


class StoredDraws:
    """Draws of a tree that were stored: each has the shape and the range that it would have."""

    def __init__(self, arrays: list[NDArray[Any]], where: str) -> None:
        self._left, self._where = arrays[::-1], where

    def _next(self) -> NDArray[Any]:
        if not self._left:
            wrong(self._where, "has too few draws")
        return self._left.pop()

    def close(self) -> None:
        """None is left."""
        if self._left:
            wrong(self._where, "has too many draws")

    def _integers(self, kind: Any, size: int, low: int, high: int) -> NDArray[Any]:
        array = self._next()
        check_array(array, self._where, (kind,), (size,), True, low, high)
        return array

    def osnap(self, n_features: int, width: int, *keys: str | int) -> SampledOSNAP:
        """The sketch of a leaf."""
        codes = self._next()
        shape = (n_features, min(LEAF_SPARSITY, width))
        check_array(codes, self._where, (np.int32,), shape, order="C")
        _check_codes(codes, width, self._where)
        return SampledOSNAP(n_features, width, codes)

    def signs(self, count: int, *keys: str | int) -> NDArray[np.int8]:
        """Signs."""
        return self._integers(np.int8, count, -1, 1)

    def pairs(
        self, n_left: int, n_right: int, size: int, *keys: str | int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of coordinates."""
        count = min(size, n_left * n_right)
        left = self._integers(np.int64, count, 0, n_left - 1)
        return left, self._integers(np.int64, count, 0, n_right - 1)

    def compression(self, n_features: int, size: int) -> Any:
        """A sampled Hadamard transform, or a Gaussian matrix."""
        if self._left and self._left[-1].dtype == np.float64:
            matrix = self._next()
            check_array(matrix, self._where, (np.float64,), (n_features, size))
            return SampledGaussianMatrix({matrix.dtype: matrix})
        signs = self.signs(n_features)
        places = self._integers(np.int64, size, 0, power_of_two(n_features) - 1)
        return SampledSRHT(n_features, size, signs, places)


# --- the automatic choice ------------------------------------------------------------------------


class _Auto(Estimator):
    cls = AutoFeatures
    attributes = ("kernel_", "n_components_", "map_", "reason_", "trials_")

    def state(self, estimator: AutoFeatures, where: str) -> dict[str, Any]:
        return {
            "kernel": estimator.kernel_,
            "map": estimator.map_,
            "reason": estimator.reason_,
            "trials": [
                {"name": t.name, "error": float(t.error), "seconds": float(t.seconds)}
                for t in estimator.trials_
            ],
        }

    def restore(self, estimator: AutoFeatures, read: Fields) -> None:
        estimator.kernel_ = read.thing("kernel", Kernel)
        estimator.map_ = fitted(read, "map", FeatureMap)
        same_columns(estimator, estimator.map_, read)
        estimator.n_components_ = estimator.map_.n_components_
        estimator.reason_ = read.text("reason")
        estimator.trials_ = [_read_trial(part) for part in read.parts("trials")]


def _read_trial(read: Fields) -> Trial:
    trial = Trial(read.text("name"), read.number("error"), read.number("seconds"))
    read.close()
    return trial


def add_maps() -> None:
    """Register all of them."""
    for form in (_Fourier, _Nystrom, _TensorSketch, _Maclaurin, _Oblivious, _Auto):
        form().register()
