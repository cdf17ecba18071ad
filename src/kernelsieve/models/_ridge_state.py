"""Rules for the fitted state of a ridge that comes from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelsieve._state import FLOAT64, Rule, Sizes, array, choice, switch, wrong


def by_output(size: str, dtype: tuple[type[np.generic], ...] = FLOAT64) -> Rule:
    """Coefficients of one output, or a column for each of several."""
    one, several = array(size, dtype=dtype), array(size, "outputs", dtype=dtype)

    def rule(value: Any, where: str, sizes: Sizes) -> Any:
        return (several if np.ndim(value) == 2 else one)(value, where, sizes)

    return rule


def refinement(value: Any, where: str, sizes: Sizes) -> Any:
    """The rule of ``refine``: a switch, "auto" or "local"."""
    named = choice("auto", "local") if isinstance(value, str) else switch
    return named(value, where, sizes)


def check_ridge(model: Any) -> None:
    """Refuse parts of a ridge that do not belong together, or that predictions could not use."""
    dual, ndim = getattr(model, "dual_coef_", None), model.coef_.ndim
    if (dual is None) == hasattr(model, "X_fit_"):
        wrong("dual_coef_", "and X_fit_ must be given together")
    if dual is not None:
        model.features_.check_stored_rows(model.X_fit_, "X_fit_")
    if np.ndim(model.intercept_) + 1 != ndim or (dual is not None and dual.ndim != ndim):
        wrong("coef_", "has another number of outputs than the other coefficients")
    shape = model.coef_.shape if ndim == 2 else (len(model.coef_), 1)
    local = getattr(model, "local_", None)
    if local is not None:
        if dual is not None:
            wrong("local_", "and dual_coef_ exclude each other")
        local.check_columns(model.features_.kernel_, model.n_features_in_)
        if local.values.shape[1] != shape[1]:
            wrong("local_", "has another number of outputs than coef_")
    for name, part in (("_posterior", model._posterior), ("_equations", model._equations)):
        if part is not None and part.shape != shape:
            wrong(name, f"is for (features, outputs) = {part.shape} instead of {shape}")
