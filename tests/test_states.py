"""States that no fitted object can have are refused, and the refusal names the field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from support import small_models

from kernelsieve import (
    FourierFeatures,
    KernelRidge,
    KernelRidgeCV,
    NystromFeatures,
    RowNormFeatures,
    TableModel,
)
from kernelsieve._state import InvalidStateError
from kernelsieve.kernels import Gaussian, Product
from kernelsieve.learning.neighbours import LocalCorrection, LocalMetric
from kernelsieve.linalg.posterior import Posterior
from kernelsieve.models.jackknife import Jackknife
from kernelsieve.products.adapted_basis import Cells, column_basis
from kernelsieve.products.local_basis import FIRST_TENT, LocalTables
from kernelsieve.products.multisets import LARGEST_ORDER, Multisets
from kernelsieve.products.product_features import Frame
from kernelsieve.products.product_frame import ProductFrame
from kernelsieve.products.sparse_basis import SparseBasis
from kernelsieve.sources.marginals import Marginals
from kernelsieve.tables.categories import MOST_LEVELS, Category
from kernelsieve.tables.columns import Time

Change = Callable[[dict[str, Any]], dict[str, Any]]

built = cache(small_models.build)


def other_posterior() -> Any:
    X = small_models.rows()
    ridge = KernelRidge(RowNormFeatures(9, random_state=0)).fit(X, small_models.target(X))
    return ridge._posterior


def gaussian_landmarks() -> Any:
    X = small_models.rows()
    return NystromFeatures(12, random_state=0).fit(X, small_models.target(X))


def chosen_by_folds() -> Any:
    X = small_models.rows()
    features = FourierFeatures(12, gamma=0.2, random_state=0)
    return KernelRidgeCV(features, alphas=[1.0]).fit(X, small_models.target(X))


def fewer(jackknife: Jackknife) -> Jackknife:
    return replace(jackknife, pulls=jackknife.pulls[1:], feature_mean=jackknife.feature_mean[1:])


def two_outputs(local: LocalCorrection) -> LocalCorrection:
    values = np.ascontiguousarray(np.repeat(local.values, 2, axis=1))
    return replace(local, values=values, levels=None, variances=np.ones(2))


def further(local: LocalCorrection) -> LocalCorrection:
    return replace(local, metric=replace(local.metric, columns=local.metric.columns + 9))


def warped(local: LocalCorrection) -> LocalCorrection:
    return replace(local, metric=replace(local.metric, warped=True))


NEIGHBOURS = "ridge, corrected by neighbours"
GEGENBAUER = "Gegenbauer, zonal, float32"
NAN, INFINITE = np.full((10, 4), np.nan), np.full((10, 4), np.inf)

ESTIMATORS: dict[str, tuple[str, Change, str]] = {
    "rows without coefficients": (
        "ridge, refined",
        lambda found: {"dual_coef_": None},
        "dual_coef_ and X_fit_ must be given together",
    ),
    "an intercept too many": (
        "ridge",
        lambda found: {"intercept_": np.zeros(1)},
        "another number of outputs than the other coefficients",
    ),
    "the posterior of other features": (
        "ridge",
        lambda found: {"_posterior": other_posterior()},
        r"_posterior is for \(features, outputs\) = \(9, 1\) instead of \(12, 1\)",
    ),
    "neighbours of an exact model": (
        NEIGHBOURS,
        lambda found: {"X_fit_": small_models.rows(), "dual_coef_": np.zeros(60)},
        "local_ and dual_coef_ exclude each other",
    ),
    "neighbours of two outputs": (
        NEIGHBOURS,
        lambda found: {"local_": two_outputs(found["local_"])},
        "local_ has another number of outputs than coef_",
    ),
    "neighbours in columns that are not there": (
        NEIGHBOURS,
        lambda found: {"local_": further(found["local_"])},
        "local_.metric has a column 12 of 4",
    ),
    "neighbours in the columns of a kernel without any": (
        NEIGHBOURS,
        lambda found: {"local_": warped(found["local_"]), "features_": gaussian_landmarks()},
        "needs a product kernel in which its columns count",
    ),
    "a jackknife of a search": (
        "intervals, jackknife",
        lambda found: {"model_": chosen_by_folds()},
        "jackknife_ is for a KernelRidge",
    ),
    "a jackknife of other features": (
        "intervals, jackknife",
        lambda found: {"jackknife_": fewer(found["jackknife_"])},
        "jackknife_ is for 11 features",
    ),
    "coefficients of no landmarks": (
        "residual",
        lambda found: {"coefficients_": found["coefficients_"][1:]},
        "coefficients_ are for . features of landmarks",
    ),
    "signs of fewer features": (
        "residual",
        lambda found: {"_signs": found["_signs"][1:]},
        "_signs are not for .* random features",
    ),
    "signs without places": (
        "residual",
        lambda found: {"_signs": None},
        "coefficients_ are for .* of .* random features",
    ),
    "a series for a kernel of the angle": (
        GEGENBAUER,
        lambda found: {"series_": built("Gegenbauer").series_},
        "series_ is there for a kernel of the angle, or missing",
    ),
    "a centre of other columns": (
        "Gegenbauer",
        lambda found: {"series_": replace(found["series_"], center=np.zeros(3))},
        "series_ is centred in 3 columns instead of 4",
    ),
    "signs of fewer terms": (
        "Gegenbauer",
        lambda found: {"signs_": found["signs_"][1:]},
        "signs_ are for .* terms",
    ),
    "a sketch with a centre of other columns": (
        "Maclaurin",
        lambda found: {"series_": replace(found["series_"], center=np.zeros(3))},
        "series_ is centred in 3 columns instead of 4",
    ),
    "more grids than columns": (
        "binning",
        lambda found: {"n_components_": found["n_grids_"] - 1},
        "n_grids_ are 3, more than 2 columns",
    ),
    "more grids than were drawn": (
        "binning",
        lambda found: {"n_grids_": found["n_grids_"] + 1},
        r"widths has the shape \(4, 3\) instead of \(4, 4\)",
    ),
    "grids without cells": (
        "binning",
        lambda found: {"_drawn": found["_drawn"] | {"widths": -found["_drawn"]["widths"]}},
        "widths are not all positive",
    ),
    "cells of fewer columns": (
        "binning",
        lambda found: {
            "_drawn": found["_drawn"] | {"multipliers": found["_drawn"]["multipliers"][1:]}
        },
        "multipliers are for 3 columns",
    ),
    "grids of a kernel without": (
        "binning",
        lambda found: {"kernel_": Gaussian(1.0)},
        "is not Laplacian along every column",
    ),
    "a network of a kernel without": (
        "network, sketched",
        lambda found: {"kernel_": Gaussian(1.0)},
        "is a Gaussian, not ArcCosine or NeuralTangent",
    ),
    "a layer of other columns": (
        "network, layer",
        lambda found: {"_draws": [found["_draws"][0][1:]]},
        r"draws has the shape \(3, 7\) instead of \(4, 7\)",
    ),
    "a network with a layer too many": (
        "network, tangents",
        lambda found: {"_draws": [*found["_draws"], found["_draws"][-1]]},
        "draws are too many",
    ),
    "a kernel of other columns": (
        "Nystrom",
        lambda found: {"kernel_": Product([1.0, 2.0])},
        "kernel_ is not for 4 columns",
    ),
    "landmarks with missing values": (
        "Nystrom",
        lambda found: {"landmarks_": NAN},
        "landmarks_ has missing values, which the kernel does not compare",
    ),
    "landmarks at infinity": (
        "Nystrom",
        lambda found: {"landmarks_": INFINITE},
        "landmarks_ has an infinite value",
    ),
    "more features than landmarks": (
        "Nystrom",
        lambda found: {"whitening_": np.ones((10, 11))},
        "whitening_ has more columns than landmarks",
    ),
    "a matrix that is a vector": (
        "Nystrom",
        lambda found: {"whitening_": np.ones(10)},
        r"whitening_ has the shape \(10,\) instead of \(10, \?\)",
    ),
    "no clusters": (
        "k-means",
        lambda found: {
            "cluster_centers_": found["cluster_centers_"][:0],
            "labels_": found["labels_"][:0],
        },
        "cluster_centers_ is empty",
    ),
    "planes of two classes for three": (
        "svc, three",
        lambda found: {"_planes": {name: part[:2] for name, part in found["_planes"].items()}},
        "_planes are 2 for 3 classes",
    ),
    "planes in a list": (
        "svc, three",
        lambda found: {"_planes": list(found["_planes"].values())},
        "_planes is a list, not a dict",
    ),
}


@pytest.mark.parametrize("case", ESTIMATORS)
def test_a_state_that_no_estimator_has(case: str) -> None:
    name, change, message = ESTIMATORS[case]
    state = built(name).get_state()
    type(built(name)).from_state(state)  # it was right before the change
    spoilt = {**state, "fitted": {**state["fitted"], **change(state["fitted"])}}
    with pytest.raises(InvalidStateError, match=message):
        type(built(name)).from_state(spoilt)


def basis_tables(family: str = "laplacian", align: str = "zero") -> LocalTables:
    values = np.random.default_rng(0).normal(size=40).round(1)
    basis = column_basis(family, Cells.of_values(values), tol=1e-6, align=align)
    return LocalTables([basis], [np.arange(basis.n_functions)])


def local_state() -> dict[str, Any]:
    return built(NEIGHBOURS).local_.get_state()


def nowhere() -> dict[str, Any]:
    empty = np.empty(0)
    metric = LocalMetric(np.empty(0, dtype=np.int64), empty, empty, False)
    return {"metric": metric, "points": np.empty((60, 0), dtype=np.float32)}


def tent_too_far() -> dict[str, Any]:
    state = basis_tables("gaussian").get_state()  # only Laplacian columns have tents
    orders = np.append(state["orders"], FIRST_TENT)
    return state | {"orders": orders, "n_orders": state["n_orders"] + 1}


def order_too_many() -> dict[str, Any]:
    state = basis_tables().get_state()
    orders = np.append(state["orders"], state["orders"][-1] + 1)
    return state | {"orders": orders, "n_orders": state["n_orders"] + 1}


TIME = Time("t", 0.0, 0.0, 1.0).get_state()
LEVELS = Category("town", ("Ulm", "Bonn"), "Ulm").get_state()
MARGINALS = Marginals.of_rows(np.array([[1.0, 5.0], [3.0, 5.0]])).get_state()

PARTS: dict[str, tuple[Any, Callable[[], dict[str, Any]], str]] = {
    "the time since nothing": (
        Time,
        lambda: TIME | {"part": "since"},
        "other is '' for the part 'since'",
    ),
    "a time that no calendar has": (
        Time,
        lambda: TIME | {"fill": 1e15},
        "fill is 1e.15 seconds since 1970, beyond the calendar",
    ),
    "too many levels": (
        Category,
        lambda: LEVELS | {"levels": ("Ulm", *map(str, range(MOST_LEVELS + 2)))},
        "levels are .*, more than",
    ),
    "a fill that is no level": (
        Category,
        lambda: LEVELS | {"fill": "Rom"},
        "fill is not one of the levels",
    ),
    "a mean for one level": (
        Category,
        lambda: LEVELS | {"means": ((0.5,),)},
        "means are 1 for 2 levels",
    ),
    "means of other lengths": (
        Category,
        lambda: LEVELS | {"means": ((0.5,), (0.5, 0.1))},
        "means have different lengths",
    ),
    "values of no column": (
        Marginals,
        lambda: MARGINALS | {"ends": np.array([2, 2])},
        "ends do not divide the values into columns",
    ),
    "a value of no rows": (
        Marginals,
        lambda: MARGINALS | {"weights": 0.0 * MARGINALS["weights"]},
        "weights are not positive",
    ),
    "more neighbours than rows": (
        LocalCorrection,
        lambda: local_state() | {"n_neighbours": 60},
        "n_neighbours is 60, with 60 rows",
    ),
    "neighbours without coordinates": (
        LocalCorrection,
        lambda: local_state() | nowhere(),
        "points have no coordinates",
    ),
    "rows without noise": (
        LocalCorrection,
        lambda: local_state() | {"noises": np.zeros(60, dtype=np.float32)},
        "noises are not all above 0",
    ),
    "a jackknife of no rows": (
        Jackknife,
        lambda: Jackknife(np.empty(0), np.empty((2, 0)), np.zeros(2), 1.0).get_state(),
        "residuals are of no rows",
    ),
    "half a triangle": (
        Posterior,
        lambda: {**(state := built("ridge")._posterior.get_state()), "factor": state["factor"][3:]},
        "factor has 75 entries, not a triangle of 12 lines",
    ),
    "a centre of other columns": (
        Frame,
        lambda: Frame(1.0, np.zeros(3), np.eye(3), np.ones(3)).get_state()
        | {"rotation": None, "spread": np.ones(2)},
        "center has 3 columns instead of 2",
    ),
    "rates of other columns": (
        ProductFrame,
        lambda: ProductFrame(Product([1.0, 2.0]), 3).get_state(),
        "kernel has 2 columns, not 3",
    ),
    "orders that have no number": (
        Multisets,
        lambda: Multisets(
            np.array([1]), np.array([2**40]), np.array([LARGEST_ORDER])
        ).get_state(),
        "orders of up to .* are too high for as many coordinates",
    ),
    "families of fewer columns": (
        LocalTables,
        lambda: basis_tables().get_state() | {"families": []},
        "families are 0 for 1 columns",
    ),
    "an order too many": (LocalTables, order_too_many, "orders are not those of .* functions"),
    "a tent too far": (LocalTables, tent_too_far, "orders have a tent that the column does not"),
    "a basis that is not there": (
        SparseBasis,
        lambda: {"tables": basis_tables(), "groups": np.array([0, 1])},
        "groups name a basis that is not there",
    ),
    "functions that are not sparse": (
        SparseBasis,
        lambda: {"tables": basis_tables(align="mean"), "groups": np.array([0, 0])},
        "tables have functions that are not 0 at 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PARTS)
def test_a_state_that_no_part_of_a_model_has(case: str) -> None:
    cls, state, message = PARTS[case]
    with pytest.raises(InvalidStateError, match=message):
        cls.from_state(state())


def test_names_of_columns_come_in_any_container() -> None:
    numbers = np.arange(24.0).tolist()
    table = {"a": numbers, "b": ["x", "y"] * 12, "y": numbers}
    options: Any = {"n_components": 5, "gamma": 0.1, "alpha": 0.1, "baselines": False}
    for drop in (np.array(["b"]), {"b": None}.keys(), frozenset(["b"])):
        state = TableModel("y", drop=drop, **options).fit(table).get_state()
        assert state["parameters"]["drop"] == ["b"]
        assert TableModel.from_state(state).predict(table).shape == (24,)
