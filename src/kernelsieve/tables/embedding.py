"""The features of a table, for models of other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.features.registry import feature_map
from kernelsieve.tables.encoder import TableEncoder
from kernelsieve.tables.table import as_table
from kernelsieve.tables.target import ridge_targets, rows_with_target, task_and_targets


def embedding(
    data: Any,
    target: str | None = None,
    *,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    strict: bool = False,
    method: str = "adaptive",
    readable: bool = False,
    **options: Any,
) -> tuple[Any, NDArray[np.object_], NDArray[Any] | None]:
    """Compute the features of a table.

    Parameters
    ----------
    data : path, frame or mapping of columns
    target : str, optional
        The column that the features are chosen for; it is not an input.
    drop : sequence of str
        Columns to ignore.
    keep : sequence of str
        Columns to use even if they look like identifiers.
    strict : bool, default False
        Raise a TableError for missing values and columns that cannot be used.
    method : str, default "adaptive"
        One of the names in ``kernelsieve.features.registry.METHODS``.
    readable : bool, default False
        Use products of columns, never of principal components.
    **options
        Parameters of the map: n_components, kernel, gamma, degree, alpha, random_state, n_jobs.

    Returns
    -------
    Z : ndarray or CSR array of shape (n, s)
    names : ndarray of str, of shape (s,)
    y : ndarray of shape (n,) or None
        The target; classes are numbered from 0.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelsieve.tables.embedding import embedding
    >>> flats = {"size": np.linspace(20.0, 150.0, 50), "town": ["Ulm", "Bonn"] * 25}
    >>> Z, names, y = embedding(flats, readable=True, n_components=10, kernel="poly", degree=2)
    >>> Z.shape, names[:3].tolist()
    ((50, 10), ['1', 'size', 'size town=Bonn'])
    """
    features = feature_map(method, readable, **options)
    table, y, outputs = as_table(data), None, None
    if target is not None:
        table, name = rows_with_target(table, target, drop, strict)
        task, y = task_and_targets(table, name, "auto")
        outputs = ridge_targets(y, task)
        y = y if task == "regression" else outputs.argmax(axis=1)
    encoder = TableEncoder([*drop, *([] if target is None else [target])], strict, keep).fit(table)
    X = encoder.transform(table)
    Z = features.fit(X, outputs).transform(X)
    return Z, features.get_feature_names_out(encoder.get_feature_names_out()), y
