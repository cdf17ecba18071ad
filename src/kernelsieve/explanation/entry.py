"""``explain``: what a fitted model says about its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelsieve.explanation.anova import Decomposition
from kernelsieve.explanation.classes import ClassScale
from kernelsieve.explanation.duplicates import merged, same_inputs
from kernelsieve.explanation.explanation import Explanation
from kernelsieve.explanation.parts import PartsDecomposition
from kernelsieve.explanation.probing import Probe, probe
from kernelsieve.explanation.sums import (
    NotProductsError,
    Sum,
    SumOfParts,
    innermost,
    products_of,
    recombined,
)
from kernelsieve.explanation.views import view_of

LOCAL = (
    "The model also corrects predictions by the errors of training rows nearby. This correction "
    "has no parts: the parts add up to the prediction without it."
)


def explain(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    names: Sequence[str] | None = None,
    output: Any = None,
    n_jobs: int | None = None,
) -> Explanation | Probe:
    """Say what a fitted model has learned: effects of columns and their interactions.

    A model on product features, or on a product kernel, is taken apart exactly: into a constant, a
    curve for each column, a surface for each pair, and so on. A classifier is explained by the
    log-odds of each class against the (geometric) mean of the others. Columns that say the same are
    explained together. Other models are explained by permutation importance and accumulated local
    effects, and need X and y.

    Parameters
    ----------
    model : KernelRidge, KernelRidgeCV, KernelRidgeClassifier, KernelSVC, TableModel or Pipeline
        Fitted. A Pipeline may scale columns before the model.
    X : {array-like, sparse matrix} of shape (n, d), Source, or table, optional
        Rows whose columns' distributions the effects are relative to. None takes those of the
        training rows, which models remember.
    y : array-like of shape (n,), optional
        Targets of these rows, for permutation importance.
    names : sequence of str, optional
        Names of the columns; by default those that the model was fitted with.
    output : int or label, optional
        The output (or the class) to explain, if there are several; None explains all together.
    n_jobs : int, default all cores
        Number of threads.

    Returns
    -------
    Explanation
        Or a Probe, for a model that is not a sum of products of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve import KernelRidgeCV, explain
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> y = X[:, 1] * X[:, 3] + 0.1 * X[:, 0]
    >>> found = explain(KernelRidgeCV(random_state=0).fit(X, y))
    >>> found.parts[0].name
    'x1 × x3'
    """
    check_is_fitted(model)
    view = view_of(model, X, names)
    try:
        if view.reason:
            raise NotProductsError(view.reason)
        products = products_of(view.model)
    except NotProductsError as error:
        return probe(view, X, y, str(error), output)
    classes = ClassScale.of(view.model, view.classes)
    if classes is not None:
        products = recombined(products, classes.margins)
    products, outputs = _chosen_output(products, classes, output)
    if classes is not None and output is not None:
        classes = replace(classes, chosen=classes.place(output))
    inputs, same = view.inputs(), []
    rows = products.rows if X is None else view.some_rows(X)
    for first, *others in same_inputs(inputs, rows, products.columns):
        inputs[first] = merged(inputs[first], [inputs[k] for k in others], rows)
        same.append((first, *others))
    left_out = {k for group in same for k in group[1:]}
    kept = [k for k in range(len(inputs)) if k not in left_out]
    decomposition: Decomposition | PartsDecomposition
    if isinstance(products, SumOfParts):
        decomposition = PartsDecomposition(products, [inputs[k] for k in kept], n_jobs)
    else:
        decomposition = Decomposition(products, [inputs[k] for k in kept], n_jobs)
    return Explanation(
        decomposition,
        view.read,
        lambda given: view.show(given)[:, kept],
        same={inputs[group[0]].name: tuple(inputs[k].name for k in group[1:]) for group in same},
        title=view.title,
        target=view.target,
        outputs=outputs,
        classes=classes,
        note=LOCAL if hasattr(innermost(view.model), "local_") else "",
    )


def _chosen_output(products: Sum, classes: ClassScale | None, output: Any) -> tuple[Sum, list[str]]:
    """The sum of the output that is asked for, and the names of outputs where there are several."""
    count = products.weights.shape[1]
    labels = list(range(count)) if classes is None else classes.labels
    if output is None:
        names = [str(label) for label in labels] if classes is None else classes.names
        return products, names if count > 1 else []
    if output not in labels:
        raise ValueError(f"output={output!r} is not one of {labels}")
    k = labels.index(output)
    if count == 1:  # one score tells two classes apart: it is that of the second
        return recombined(products, np.array([[1.0 if len(labels) == 1 or k == 1 else -1.0]])), []
    return recombined(products, np.eye(count)[:, [k]]), []
