"""Model files that are safe to open: arrays and JSON, no code (docs/model-files.md)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

from kernelsieve import __version__
from kernelsieve._files import replacing
from kernelsieve._state import InvalidStateError, checked, plain
from kernelsieve.persistence import _container
from kernelsieve.persistence._container import FORMAT, ModelFileError
from kernelsieve.persistence._nodes import Reader, Writer
from kernelsieve.persistence._registry import pack, register, registered, unpack

__all__ = ["FORMAT", "ModelFile", "ModelFileError", "load", "read", "register", "save"]

LARGEST = 2**62  # bytes: a file that is about to be written may have any size


@dataclass(frozen=True)
class ModelFile:
    """The content of a model file.

    Attributes
    ----------
    estimator : object
    about : dict
        What was passed to ``save`` as ``about``.
    versions : dict of str
        Versions of the packages that wrote the file, by name.
    """

    estimator: Any
    about: dict[str, Any]
    versions: dict[str, str]


def save(
    estimator: Any,
    path: str | os.PathLike[str],
    about: dict[str, Any] | None = None,
    *,
    variance: bool = False,
) -> None:
    """Write an estimator to a file that is safe to open, and that `load` restores exactly.

    The estimator may be fitted or not. The file appears when it is complete: an error or a killed
    process leaves an old file as it was. The same model gives the same bytes.

    Parameters
    ----------
    estimator : object
        Any estimator of kernelsieve. Parameters that are code or generators (a function as kernel,
        a RandomState, a splitter) cannot be stored.
    path : path-like
        ``.ks`` is the usual suffix.
    about : dict, optional
        Data to store with it: None, truth values, numbers, strings, arrays, and lists, tuples and
        dicts of them.
    variance : bool, default False
        Whether to store what ``predict(return_std=True)`` needs: for a kernel ridge on s features
        a triangle of s (s + 1) / 2 numbers, which is 4 MB for 1,000 features.

    Raises
    ------
    ModelFileError
        If something in the estimator cannot be stored; the message says what.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import kernelsieve
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> model = kernelsieve.KernelRidge(kernelsieve.RowNormFeatures(20, random_state=0))
    >>> model = model.fit(X, X[:, 0] * X[:, 1])
    >>> path = Path(tempfile.mkdtemp()) / "model.ks"
    >>> kernelsieve.save(model, path)
    >>> bool((kernelsieve.load(path).predict(X) == model.predict(X)).all())
    True
    """
    try:
        text, arrays = _packed(estimator, {} if about is None else about, variance)
    except RecursionError:
        raise ModelFileError("the model, or about, is nested too deeply for a model file") from None
    with replacing(path) as file:
        _container.write(file, text, arrays)


def _packed(estimator: Any, about: dict[str, Any], variance: bool) -> tuple[bytes, list[Any]]:
    """The header and the arrays of a file, which are known to be readable."""
    if not isinstance(about, dict):
        raise ModelFileError(f"about is a {type(about).__name__}: pass a dict")
    writer = Writer(partial(pack, variance=variance))
    versions = {
        "kernelsieve": __version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
    }
    header = {
        "versions": writer.node(versions, "versions"),
        "about": writer.node(about, "about"),
        "model": writer.node(estimator, type(estimator).__name__),
    }
    text = _container.header_text(header, writer.arrays)
    try:
        _unpacked(_container.parse(text, LARGEST)[0], writer.arrays)
    except (ModelFileError, InvalidStateError) as error:
        raise ModelFileError(f"the file could not be read again: {error}") from None
    return text, writer.arrays


def read(path: str | os.PathLike[str]) -> ModelFile:
    """Read a file of `save`: the estimator, and what was stored with it.

    The file may come from anybody. Reading it runs no code from it and takes memory in proportion
    to its size; a file that `save` cannot have written raises ModelFileError.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    ModelFile

    Raises
    ------
    ModelFileError
        If the file is truncated, damaged, of another format, or not a model; the message says
        which.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelsieve import KernelRidge, persistence
    >>> path = Path(tempfile.mkdtemp()) / "model.ks"
    >>> persistence.save(KernelRidge(alpha=0.5), path, about={"target": "price"})
    >>> found = persistence.read(path)
    >>> found.estimator, found.about
    (KernelRidge(alpha=0.5), {'target': 'price'})
    """
    try:
        return _unpacked(*_container.read(Path(path)))
    except InvalidStateError as error:
        raise ModelFileError(f"{os.fspath(path)} is not a valid model: {error}") from None
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)} {error}") from None
    except RecursionError:
        raise ModelFileError(f"{os.fspath(path)} is damaged: it is nested too deeply") from None
    except MemoryError as error:  # a size is damaged
        raise ModelFileError(f"{os.fspath(path)} needs too much memory: {error}") from None


def _unpacked(header: dict[str, Any], arrays: list[Any]) -> ModelFile:
    rules = {"versions": plain(dict), "about": plain(dict), "model": registered}
    reader = Reader(arrays, unpack)
    found = checked({name: reader.value(header[name], name) for name in header}, rules)
    reader.close()
    return ModelFile(found["model"], found["about"], found["versions"])


def load(path: str | os.PathLike[str]) -> Any:
    """Load the estimator of a file that `save` wrote, exact to the bit.

    The file may come from anybody: it holds arrays and JSON, and reading it runs no code from it.
    See `read` for what was stored with the estimator.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    object
        The estimator.

    Raises
    ------
    ModelFileError
        If the file is truncated, damaged, of another format, or not a model; the message says
        which.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import kernelsieve
    >>> path = Path(tempfile.mkdtemp()) / "map.ks"
    >>> kernelsieve.save(kernelsieve.FourierFeatures(64, gamma=0.5), path)
    >>> kernelsieve.load(path)
    FourierFeatures(gamma=0.5, n_components=64)
    """
    return read(path).estimator
