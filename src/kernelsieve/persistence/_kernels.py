"""Kernels in model files: made anew by their constructors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelsieve.kernels import (
    DotProduct,
    Exponential,
    Gaussian,
    InversePolynomial,
    Kernel,
    Laplacian,
    Matern,
    Pairwise,
    Polynomial,
)
from kernelsieve.persistence._errors import ModelFileError
from kernelsieve.persistence._nodes import Fields, wrong
from kernelsieve.persistence._registry import Form, add

# Squares and inverse squares of lengths are floats, and powers are taken by repeated products.
SHORTEST, LONGEST = 1e-150, 1e150
LARGEST_POWER = 1000
SMOOTHEST = 1e6
# What scikit-learn's kernels take, beside the rows.
METRICS: dict[str, set[str]] = {
    "chi2": {"gamma"},
    "cosine": set(),
    "laplacian": {"gamma"},
    "linear": set(),
    "poly": {"gamma", "degree", "coef0"},
    "polynomial": {"gamma", "degree", "coef0"},
    "rbf": {"gamma"},
}


def _length(read: Fields, name: str) -> float:
    return read.number(name, SHORTEST, LONGEST)


def _gaussian(read: Fields) -> Gaussian:
    return Gaussian(_length(read, "gamma"))


def _laplacian(read: Fields) -> Laplacian:
    return Laplacian(_length(read, "gamma"))


def _exponential(read: Fields) -> Exponential:
    return Exponential(_length(read, "gamma"))


def _matern(read: Fields) -> Matern:
    return Matern(_length(read, "length_scale"), read.number("nu", 1e-6, SMOOTHEST))


def _inverse_polynomial(read: Fields) -> InversePolynomial:
    return InversePolynomial(_length(read, "shift"))


def _polynomial(read: Fields) -> Polynomial:
    degree = read.integer("degree", 1, LARGEST_POWER)
    return Polynomial(degree, _length(read, "gamma"), read.number("coef0", 0.0, LONGEST))


def _dot_product(read: Fields) -> DotProduct:
    coefficients = read.data("coefficients")
    if not (
        isinstance(coefficients, tuple) and all(isinstance(a, float) for a in coefficients)
    ):  # fmt: skip
        wrong(read.where, "has coefficients that are no numbers")
    try:
        return DotProduct(coefficients)
    except ValueError as error:
        wrong(read.where, f"is no kernel: {error}")


def _pairwise(read: Fields) -> Pairwise:
    metric = read.choice("metric", tuple(METRICS))
    parameters = read.data("parameters")
    if not (
        isinstance(parameters, dict)
        and parameters.keys() <= METRICS[metric]
        and all(value is None or _is_number(value) for value in parameters.values())
    ):
        wrong(read.where, f"has parameters that {metric!r} does not take")
    return Pairwise(metric, parameters)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LONGEST


def _pack_numbers(*names: str) -> Callable[[Any, str], dict[str, Any]]:
    def pack(kernel: Any, where: str) -> dict[str, Any]:
        return {name: float(getattr(kernel, name)) for name in names}

    return pack


def _pack_polynomial(kernel: Polynomial, where: str) -> dict[str, Any]:
    return {
        "degree": int(kernel.degree),
        "gamma": float(kernel.gamma),
        "coef0": float(kernel.coef0),
    }


def _pack_pairwise(kernel: Pairwise, where: str) -> dict[str, Any]:
    if callable(kernel.metric):
        raise ModelFileError(
            f"{where} is computed by a function, {kernel.metric!r}, and a model file holds no "
            "code: use a kernel of kernelsieve.kernels"
        )
    return {"metric": kernel.metric, "parameters": dict(kernel.parameters)}


def add_kernels() -> None:
    """Register all kernels."""
    forms: list[tuple[type[Kernel], Any, Any]] = [
        (Gaussian, _pack_numbers("gamma"), _gaussian),
        (Laplacian, _pack_numbers("gamma"), _laplacian),
        (Exponential, _pack_numbers("gamma"), _exponential),
        (Matern, _pack_numbers("length_scale", "nu"), _matern),
        (InversePolynomial, _pack_numbers("shift"), _inverse_polynomial),
        (Polynomial, _pack_polynomial, _polynomial),
        (DotProduct, lambda kernel, where: {"coefficients": kernel.coefficients}, _dot_product),
        (Pairwise, _pack_pairwise, _pairwise),
    ]
    for cls, pack, unpack in forms:
        add(Form(cls, pack, unpack))
