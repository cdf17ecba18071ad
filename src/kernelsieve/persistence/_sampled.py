"""The sampled maps in model files.

Stored are the frame, the names and weights of the products, and the basis. The prefix tree that
compiled code walks is built again, so that no index of it comes from a file.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.diagnostics import Estimate
from kernelsieve.features import AdaptiveFeatures, RowNormFeatures
from kernelsieve.features.sampled import SampledFeatures
from kernelsieve.kernels import Kernel
from kernelsieve.kernels.base import MAX_DEGREE, Series
from kernelsieve.persistence._estimators import Estimator
from kernelsieve.persistence._nodes import Fields, wrong
from kernelsieve.products.frame import Frame
from kernelsieve.products.mercer_basis import MAX_ORDERS, MercerBasis
from kernelsieve.products.monomial_basis import MonomialBasis
from kernelsieve.products.multisets import Multisets
from kernelsieve.products.product_features import ProductFeatures

# The tree is built from a table with a line for each product that is as wide as the longest one.
TABLE_ENTRIES = 2**22
TABLE_FACTOR = 64

SMALLEST_SCALE, LARGEST_SCALE = 1e-165, 1e153
FLOAT64 = (np.float64,)
INT64 = (np.int64,)
ESTIMATES = ("statistical_dimension_", "spectral_epsilon_")


class _Sampled(Estimator):
    attributes: tuple[str, ...] = (
        "kernel_",
        "n_components_",
        "features_",
        "basis_",
        "rotate_",
        "truncation_degree_",
        *ESTIMATES,
    )
    # Rows of the training data, on which the two estimates are made: these are stored instead; and
    # what follows from the products.
    left_out = ("_alpha", "_held_out", "_held_out_alpha", "_log_scale", "_degree")

    def state(self, estimator: SampledFeatures, where: str) -> dict[str, Any]:
        features = estimator.features_
        return {
            "kernel": estimator.kernel_,
            "products": pack_products(features),
            **{name: _pack_estimate(getattr(estimator, name)) for name in ESTIMATES},
        }

    def restore(self, estimator: SampledFeatures, read: Fields) -> None:
        estimator.kernel_ = read.thing("kernel", Kernel)
        features = read_products(read.part("products"), estimator.n_features_in_)
        estimator._adopt(features)
        basis = features.basis
        mercer = isinstance(basis, MercerBasis)
        estimator.basis_ = "mercer" if mercer else "monomial"
        estimator.rotate_ = features.frame.rotation is not None
        estimator.truncation_degree_ = (
            basis.series.degree if isinstance(basis, MonomialBasis) else None
        )
        for name in ESTIMATES:
            estimator.__dict__[name] = _read_estimate(read.part(name))


class _RowNorm(_Sampled):
    cls = RowNormFeatures


class _Adaptive(_Sampled):
    cls = AdaptiveFeatures
    attributes = (*_Sampled.attributes, "missed_leverage_")

    def state(self, estimator: AdaptiveFeatures, where: str) -> dict[str, Any]:
        return {
            **super().state(estimator, where),
            "missed_leverage": float(estimator.missed_leverage_),
        }

    def restore(self, estimator: AdaptiveFeatures, read: Fields) -> None:
        super().restore(estimator, read)
        estimator.missed_leverage_ = read.number("missed_leverage")


def _pack_estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": float(estimate.value),
        "error": float(estimate.error),
        "method": estimate.method,
        "n_rows": int(estimate.n_rows),
    }


def _read_estimate(read: Fields) -> Estimate:
    value, error = read.number("value"), read.number("error")
    estimate = Estimate(value, error, read.text("method"), read.integer("n_rows", 0))
    read.close()
    return estimate


# --- products ------------------------------------------------------------------------------------


def pack_products(features: ProductFeatures) -> dict[str, Any]:
    """The fields of product features."""
    multisets = features.multisets
    return {
        "frame": _pack_frame(features.frame),
        "sparse": bool(features.sparse),
        "ends": multisets.ends,
        "coordinates": multisets.coordinates,
        "orders": multisets.orders,
        "weights": features.weights,
        **_pack_basis(features.basis),
    }


def read_products(read: Fields, n_features: int) -> ProductFeatures:
    """Product features of rows with so many columns."""
    frame = _read_frame(read.part("frame"), n_features)
    sparse = read.flag("sparse")
    multisets = _read_multisets(read, frame.n_coordinates)
    weights = read.array("weights", FLOAT64, (len(multisets),))
    basis: MonomialBasis | MercerBasis
    if read.has("series"):
        basis = MonomialBasis(_read_series(read.part("series"), frame))
        highest = np.full(frame.n_coordinates, basis.series.degree)
        if multisets.degrees().max(initial=0) > basis.series.degree:
            wrong(read.where, "has a product beyond the degree of its series")
    else:
        basis = _read_tables(read.part("tables"), frame.n_coordinates)
        highest = basis.n_orders - 1
    if (multisets.orders > highest[multisets.coordinates]).any():
        wrong(read.where, "has an order that its basis does not have")
    features = ProductFeatures(frame, basis, multisets, weights, sparse=sparse)
    if not (
        np.array_equal(features.trie.order, np.arange(len(multisets)))
        and np.count_nonzero(features.trie.columns >= 0) == len(multisets)
    ):
        wrong(read.where, "has products that are out of order or repeated")
    read.close()
    return features


def _pack_frame(frame: Frame) -> dict[str, Any]:
    return {
        "scale": float(frame.scale),
        "center": frame.center,
        "rotation": frame.rotation,
        "spread": frame.spread,
    }


def _read_frame(read: Fields, n_features: int) -> Frame:
    scale = read.number("scale", SMALLEST_SCALE, LARGEST_SCALE)
    center = rotation = None
    if read.given("center"):
        center = read.array("center", FLOAT64, (n_features,))
    if read.given("rotation"):
        rotation = read.array("rotation", FLOAT64, (n_features, None))
    n_coordinates = n_features if rotation is None else rotation.shape[1]
    spread = read.array("spread", FLOAT64, (n_coordinates,))
    read.close()
    return Frame(scale, center, rotation, spread)


def _read_multisets(read: Fields, n_coordinates: int) -> Multisets:
    """Distinct atoms with rising coordinates in each multiset."""
    ends = read.array("ends", INT64, (None,), low=0)
    coordinates = read.array("coordinates", INT64, (None,), low=0, high=n_coordinates - 1)
    n_atoms = len(coordinates)
    orders = read.array("orders", INT64, (n_atoms,), low=1, high=MAX_ORDERS)
    if (np.diff(ends) < 0).any() or (int(ends[-1]) if len(ends) else 0) != n_atoms:
        wrong(read.where, "has products that do not follow each other")
    multisets = Multisets(ends, coordinates, orders)
    longest = int((ends - multisets.starts).max(initial=0))
    if len(ends) * longest > TABLE_ENTRIES + TABLE_FACTOR * n_atoms:
        wrong(read.where, f"has one product of {longest} factors, far more than the others")
    same = np.diff(multisets.owners) == 0
    if (np.diff(coordinates)[same] <= 0).any():
        wrong(read.where, "has a product whose coordinates do not rise")
    return multisets


def _pack_basis(basis: Any) -> dict[str, Any]:
    if isinstance(basis, MercerBasis):
        return {"tables": basis.tables}
    series = basis.series
    return {
        "series": {
            "damped": bool(series.damped),
            "log_coefficients": series.log_coefficients,
            "tail": float(series.tail),
        }
    }


def _read_series(read: Fields, frame: Frame) -> Series:
    series = Series(frame.scale, frame.center, *read_coefficients(read))
    read.close()
    return series


def read_coefficients(read: Fields) -> tuple[bool, NDArray[np.float64], float]:
    """Damped or not, the logarithms of the coefficients, and the tail of a series."""
    damped = read.flag("damped")
    logs = read.array("log_coefficients", FLOAT64, (None,), finite=False)
    if not 1 <= len(logs) <= MAX_DEGREE + 1 or not (logs < math.inf).all():
        wrong(read.where, "has no valid coefficients")
    return damped, logs, read.number("tail")


def _read_tables(read: Fields, n_coordinates: int) -> MercerBasis:
    line = (n_coordinates,)
    tables = {
        "firsts": read.array("firsts", FLOAT64, line),
        "n_orders": read.array("n_orders", INT64, line, low=1, high=MAX_ORDERS),
        "n_cells": read.array("n_cells", INT64, line, low=MercerBasis.fewest_cells, high=2**32),
        "rotation_sizes": read.array("rotation_sizes", INT64, line, low=1, high=MAX_ORDERS),
    }
    for name, rows in (("grids", tables["n_cells"]), ("rotations", tables["rotation_sizes"])):
        size = sum(a * b for a, b in zip(rows.tolist(), tables["n_orders"].tolist(), strict=True))
        tables[name] = read.array(name, FLOAT64, (size,))
    read.close()
    return MercerBasis.of_tables(tables)


def add_sampled_maps() -> None:
    """Register both."""
    _RowNorm().register()
    _Adaptive().register()
