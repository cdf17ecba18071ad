"""The models in model files."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import LinearSVC

from kernelsieve._state import FLOAT64
from kernelsieve.features import FeatureMap
from kernelsieve.linalg.normal_equations import NormalEquations, Posterior
from kernelsieve.models import (
    KernelCCA,
    KernelKMeans,
    KernelPCA,
    KernelRidge,
    KernelRidgeClassifier,
    KernelRidgeCV,
    KernelSVC,
)
from kernelsieve.persistence._estimators import Estimator, fitted, same_columns
from kernelsieve.persistence._nodes import FLOATS, Fields, wrong

SOLVERS = ("cholesky", "dual", "cg")


class _Model(Estimator):
    """A model on the features of a map."""

    attributes: tuple[str, ...] = ("features_",)

    def state(self, estimator: Any, where: str) -> dict[str, Any]:
        return {"features": estimator.features_}

    def restore(self, estimator: Any, read: Fields) -> None:
        estimator.features_ = fitted(read, "features", FeatureMap)
        same_columns(estimator, estimator.features_, read)


class _Ridge(_Model):
    cls = KernelRidge
    attributes = (
        *_Model.attributes,
        "coef_",
        "intercept_",
        "n_iter_",
        "solver_",
        "X_fit_",
        "dual_coef_",
        "_single_output",
        "_posterior",
        "_equations",
    )

    def state(self, estimator: KernelRidge, where: str) -> dict[str, Any]:
        one, posterior, equations = (
            estimator._single_output, estimator._posterior, estimator._equations
        )  # fmt: skip
        return {
            **super().state(estimator, where),
            # partial_fit goes on with the very map that it was given.
            "given_features": estimator.features_ is estimator.features,
            "single_output": bool(one),
            "coefficients": _as_column(estimator.coef_, one),
            "intercepts": np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64)),
            "solver": estimator.solver_,
            "n_iter": int(estimator.n_iter_),
            "posterior": None if posterior is None else _pack_posterior(posterior),
            "equations": None if equations is None else _pack_equations(equations),
            "exact": {"rows": estimator.X_fit_, "dual": _as_column(estimator.dual_coef_, one)}
            if hasattr(estimator, "dual_coef_")
            else None,
        }

    def restore(self, estimator: KernelRidge, read: Fields) -> None:
        super().restore(estimator, read)
        if read.flag("given_features"):
            estimator.features = estimator.features_
        size = estimator.features_.n_components_
        one = estimator._single_output = read.flag("single_output")
        coefficients = read.array("coefficients", FLOAT64, (size, 1 if one else None))
        outputs = coefficients.shape[1]
        intercepts = read.array("intercepts", FLOAT64, (outputs,))
        estimator._set(coefficients, intercepts)
        estimator.solver_ = read.choice("solver", SOLVERS)
        estimator.n_iter_ = read.integer("n_iter", 0)
        estimator._posterior = estimator._equations = None
        if read.given("posterior"):
            estimator._posterior = _read_posterior(read.part("posterior"), size, outputs)
        if read.given("equations"):
            estimator._equations = _read_equations(read.part("equations"), size, outputs)
        if read.given("exact"):
            _read_exact(estimator, read.part("exact"), outputs)


def _as_column(values: NDArray[Any], one: bool) -> NDArray[Any]:
    """Coefficients of one output as a column."""
    return values[:, None] if one else values


def _read_exact(estimator: KernelRidge, read: Fields, outputs: int) -> None:
    estimator.X_fit_ = read.rows("rows", estimator.n_features_in_)
    n_rows = estimator.X_fit_.shape[0]
    if n_rows == 0:
        wrong(read.where, "has no rows")
    dual = read.array("dual", FLOAT64, (n_rows, outputs))
    estimator.dual_coef_ = dual[:, 0] if estimator._single_output else dual
    read.close()


def _pack_posterior(posterior: Posterior) -> dict[str, Any]:
    return {
        "factor": pack_lower(posterior.factor),
        "by_columns": posterior.factor.flags.f_contiguous,
        "shift": float(posterior.shift),
        "feature_mean": posterior.feature_mean,
        "residual_squares": posterior.residual_squares,
        "weight": float(posterior.weight),
        "n_rows": int(posterior.n_rows),
        "fit_intercept": bool(posterior.fit_intercept),
    }


def _read_posterior(read: Fields, size: int, outputs: int) -> Posterior:
    posterior = Posterior(
        _read_lower(read, size),
        read.number("shift", 0.0, 1e300),
        read.array("feature_mean", FLOAT64, (size,)),
        read.array("residual_squares", FLOAT64, (outputs,)),
        read.number("weight", 1e-300, 1e300),
        read.integer("n_rows", 1),
        read.flag("fit_intercept"),
    )
    read.close()
    return posterior


def pack_lower(factor: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lower triangle, line by line: nobody looks at the rest of a Cholesky factor.

    Examples
    --------
    >>> pack_lower(np.array([[1.0, 0.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    size = len(factor)
    packed = np.empty(size * (size + 1) // 2)
    for i, start in enumerate(_triangle(size)):
        packed[start : start + i + 1] = factor[i, : i + 1]
    return packed


def _read_lower(read: Fields, size: int) -> NDArray[np.float64]:
    packed = read.array("factor", FLOAT64, (size * (size + 1) // 2,))
    factor = np.zeros((size, size), order="F" if read.flag("by_columns") else "C")
    for i, start in enumerate(_triangle(size)):
        factor[i, : i + 1] = packed[start : start + i + 1]
    return factor


def _triangle(size: int) -> list[int]:
    """Where the lines of a packed triangle begin."""
    return [i * (i + 1) // 2 for i in range(size)]


def _pack_equations(equations: NormalEquations) -> dict[str, Any]:
    return {
        "gram": equations.gram,
        "moment": equations.moment,
        "feature_sum": equations.feature_sum,
        "target_sum": equations.target_sum,
        "target_squares": equations.target_squares,
        "weight": float(equations.weight),
        "n_rows": int(equations.n_rows),
    }


def _read_equations(read: Fields, size: int, outputs: int) -> NormalEquations:
    equations = NormalEquations(
        read.array("gram", FLOAT64, (size, size)),
        read.array("moment", FLOAT64, (size, outputs)),
        read.array("feature_sum", FLOAT64, (size,)),
        read.array("target_sum", FLOAT64, (outputs,)),
        read.array("target_squares", FLOAT64, (outputs,)),
        read.number("weight", 0.0, 1e300),
        read.integer("n_rows", 0),
    )
    read.close()
    return equations


class _RidgeCV(Estimator):
    cls = KernelRidgeCV
    attributes = (
        "features_", "coef_", "intercept_", "model_", "alpha_", "gamma_", "best_rmse_",
        "cv_results_",
    )  # fmt: skip

    def state(self, estimator: KernelRidgeCV, where: str) -> dict[str, Any]:
        results = estimator.cv_results_
        return {
            "model": estimator.model_,
            "alpha": float(estimator.alpha_),
            "gamma": None if estimator.gamma_ is None else float(estimator.gamma_),
            "best_rmse": float(estimator.best_rmse_),
            "alphas": results["alpha"],
            "gammas": None if estimator.gamma_ is None else results["gamma"].astype(np.float64),
            "rmse": results["rmse"],
        }

    def restore(self, estimator: KernelRidgeCV, read: Fields) -> None:
        model = estimator.model_ = fitted(read, "model", KernelRidge)
        same_columns(estimator, model, read)
        estimator.features_ = model.features_
        estimator.coef_, estimator.intercept_ = model.coef_, model.intercept_
        estimator.alpha_ = read.number("alpha", 0.0, math.inf)
        estimator.gamma_ = read.number("gamma", 0.0, math.inf) if read.given("gamma") else None
        estimator.best_rmse_ = read.number("best_rmse")
        rmse = read.array("rmse", FLOAT64, (None,), finite=False)
        gammas = np.full(len(rmse), None, dtype=object)
        if read.given("gammas"):
            gammas[:] = read.array("gammas", FLOAT64, (len(rmse),)).tolist()
        estimator.cv_results_ = {
            "gamma": gammas,
            "alpha": read.array("alphas", FLOAT64, (len(rmse),)),
            "rmse": rmse,
        }


class _Classifier(Estimator):
    cls = KernelRidgeClassifier
    attributes = ("features_", "classes_", "ridge_", "sharpness_")

    def state(self, estimator: KernelRidgeClassifier, where: str) -> dict[str, Any]:
        return {
            "classes": estimator.classes_,
            "ridge": estimator.ridge_,
            "sharpness": float(estimator.sharpness_),
        }

    def restore(self, estimator: KernelRidgeClassifier, read: Fields) -> None:
        estimator.classes_ = _read_classes(read)
        ridge = estimator.ridge_ = fitted(read, "ridge", KernelRidge)
        same_columns(estimator, ridge, read)
        n_classes = len(estimator.classes_)
        if ridge.coef_.shape[1:] != (() if n_classes == 2 else (n_classes,)):
            wrong(read.where, f"has a ridge that is not of {n_classes} classes")
        estimator.features_ = ridge.features_
        estimator.sharpness_ = read.number("sharpness", 0.0, 1e300)


def _read_classes(read: Fields) -> NDArray[Any]:
    classes = read.labels("classes")
    if len(classes) < 2 or len(set(classes.tolist())) < len(classes):
        wrong(read.where, "has fewer than two classes, or one twice")
    return classes


class _SVC(_Model):
    cls = KernelSVC
    attributes = (*_Model.attributes, "classes_", "svc_", "n_iter_")

    def state(self, estimator: KernelSVC, where: str) -> dict[str, Any]:
        # Only arrays of scikit-learn's object: it is another one in every version.
        return {
            **super().state(estimator, where),
            "classes": estimator.classes_,
            "coefficients": estimator.svc_.coef_,
            "intercepts": np.atleast_1d(estimator.svc_.intercept_),
            "n_iter": int(estimator.n_iter_),
        }

    def restore(self, estimator: KernelSVC, read: Fields) -> None:
        super().restore(estimator, read)
        classes = estimator.classes_ = _read_classes(read)
        lines = 1 if len(classes) == 2 else len(classes)
        size = estimator.features_.n_components_
        svc = LinearSVC(
            C=estimator.C,
            class_weight=estimator.class_weight,
            max_iter=estimator.max_iter,
            random_state=estimator.random_state,
        )
        svc.classes_ = classes
        svc.coef_ = read.array("coefficients", FLOATS, (lines, size))
        svc.intercept_ = read.array("intercepts", FLOATS, (lines,))
        svc.n_features_in_ = size
        svc.n_iter_ = estimator.n_iter_ = read.integer("n_iter", 0)
        estimator.svc_ = svc


class _PCA(_Model):
    cls = KernelPCA
    attributes = (
        *_Model.attributes,
        "mean_",
        "eigenvalues_",
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "inverse_",
    )

    def state(self, estimator: KernelPCA, where: str) -> dict[str, Any]:
        return {
            **super().state(estimator, where),
            "mean": estimator.mean_,
            "components": estimator.components_,
            "eigenvalues": estimator.eigenvalues_,
            "explained_variance": estimator.explained_variance_,
            "explained_variance_ratio": estimator.explained_variance_ratio_,
            "inverse": estimator.inverse_ if estimator.fit_inverse_transform else None,
        }

    def restore(self, estimator: KernelPCA, read: Fields) -> None:
        super().restore(estimator, read)
        size = estimator.features_.n_components_
        estimator.mean_ = read.array("mean", FLOAT64, (size,))
        estimator.components_ = read.array("components", FLOAT64, (size, None))
        line = (estimator.components_.shape[1],)
        estimator.eigenvalues_ = read.array("eigenvalues", FLOAT64, line)
        estimator.explained_variance_ = read.array("explained_variance", FLOAT64, line)
        estimator.explained_variance_ratio_ = read.array("explained_variance_ratio", FLOAT64, line)
        if bool(estimator.fit_inverse_transform) != read.given("inverse"):
            wrong(read.where, "was fitted with another value of fit_inverse_transform")
        if estimator.fit_inverse_transform:
            estimator.inverse_ = fitted(read, "inverse", KernelRidge)


class _KMeans(_Model):
    cls = KernelKMeans
    attributes = (*_Model.attributes, "cluster_centers_", "labels_", "inertia_", "n_iter_")

    def state(self, estimator: KernelKMeans, where: str) -> dict[str, Any]:
        return {
            **super().state(estimator, where),
            "centers": estimator.cluster_centers_,
            "labels": estimator.labels_,
            "inertia": float(estimator.inertia_),
            "n_iter": int(estimator.n_iter_),
        }

    def restore(self, estimator: KernelKMeans, read: Fields) -> None:
        super().restore(estimator, read)
        size = estimator.features_.n_components_
        centers = estimator.cluster_centers_ = read.array("centers", FLOATS, (None, size))
        if len(centers) == 0:
            wrong(read.where, "has no centres")
        estimator.labels_ = read.array(
            "labels", (np.int32,), (None,), low=0, high=len(centers) - 1
        )  # fmt: skip
        estimator.inertia_ = read.number("inertia")
        estimator.n_iter_ = read.integer("n_iter", 0)


class _CCA(_Model):
    cls = KernelCCA
    attributes = (
        *_Model.attributes,
        "features_y_",
        "correlations_",
        "x_mean_",
        "y_mean_",
        "x_weights_",
        "y_weights_",
    )

    def state(self, estimator: KernelCCA, where: str) -> dict[str, Any]:
        return {
            **super().state(estimator, where),
            "features_y": estimator.features_y_,
            "correlations": estimator.correlations_,
            "x_mean": estimator.x_mean_,
            "y_mean": estimator.y_mean_,
            "x_weights": estimator.x_weights_,
            "y_weights": estimator.y_weights_,
        }

    def restore(self, estimator: KernelCCA, read: Fields) -> None:
        super().restore(estimator, read)
        estimator.features_y_ = fitted(read, "features_y", FeatureMap)
        estimator.correlations_ = read.array("correlations", FLOAT64, (None,))
        directions = len(estimator.correlations_)
        for view, features in (("x", estimator.features_), ("y", estimator.features_y_)):
            size = features.n_components_
            setattr(estimator, f"{view}_mean_", read.array(f"{view}_mean", FLOAT64, (size,)))
            weights = read.array(f"{view}_weights", FLOAT64, (size, directions))
            setattr(estimator, f"{view}_weights_", weights)


def add_models() -> None:
    """Register all of them."""
    for form in (_Ridge, _RidgeCV, _Classifier, _SVC, _PCA, _KMeans, _CCA):
        form().register()
