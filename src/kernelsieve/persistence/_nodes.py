"""Values as JSON and arrays: `Writer` turns values into nodes, `Reader` turns nodes into values.

A node is null, a truth value, a number, a string, a list of nodes, or a table with one of the keys

- "array": the number of an array,
- "names": an array of strings, as two arrays: all of them in one as UTF-8, and how many characters
  each has; of objects, or with "width" one of that fixed width,
- "csr": a sparse matrix,
- "tuple": a list of nodes,
- "table": a short dict whose keys are strings; "pairs": the keys and the values of any other dict,
- "float": "nan", "inf" or "-inf",
- "object": the name of a registered class, with the "fields" of its state.

In place of a list of nodes may stand one of the nodes of `kernelsieve.persistence._lists`.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._state import (
    FLOATS,
    INT64,
    array,
    checked,
    flag,
    instance,
    shortened,
    whole,
    wrong,
)
from kernelsieve._validation import canonical_rows
from kernelsieve.persistence._container import DTYPES, ModelFileError
from kernelsieve.persistence._lists import FEWEST, list_node, read_list

NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
MOST_LEVELS = 64
MOST_OBJECTS = 2**20  # a few bytes of a file may be one, which takes some hundred in memory
CSR_INDICES = (np.int32, np.int64)
CSR_FIELDS = {
    "columns": whole(),
    "matrix": flag,
    "indptr": array(None, dtype=CSR_INDICES),
    "indices": array("n", dtype=CSR_INDICES, low=0),
    "data": array("n", dtype=FLOATS),
}


# --- writing -------------------------------------------------------------------------------------


class Writer:
    """Turns values into nodes, and collects the arrays.

    Parameters
    ----------
    pack : callable
        (object, its name in errors) -> the name of its class, and its state.
    """

    def __init__(self, pack: Callable[[Any, str], tuple[str, dict[str, Any]]]) -> None:
        self.pack = pack
        self.arrays: list[NDArray[Any]] = []

    def node(self, value: Any, where: str) -> Any:
        """The node of a value; ``where`` names it in errors."""
        if value is None or isinstance(value, bool | np.bool_):
            return None if value is None else bool(value)
        if isinstance(value, str):
            return self._text(value, where)
        if isinstance(value, numbers.Integral):
            return int(value)
        if isinstance(value, float | np.floating):
            number = float(value)
            return number if math.isfinite(number) else {"float": str(number)}
        if isinstance(value, list):
            return list_node(self, value, where)
        if isinstance(value, tuple):
            return {"tuple": self.node(list(value), where)}
        if isinstance(value, dict):
            if len(value) < FEWEST and all(isinstance(key, str) for key in value):
                return {"table": self._fields(value, where)}
            return {"pairs": [self.node(list(each), where) for each in (value, value.values())]}
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if sp.issparse(value):
            return self._csr(value, where)
        name, state = self.pack(value, where)
        return {"object": name, "fields": self._fields(state, where)}

    @staticmethod
    def is_object(value: Any) -> bool:
        """Whether a value is neither data nor an array."""
        plain = (numbers.Integral, np.ndarray)
        return not (value is None or isinstance(value, plain) or sp.issparse(value))

    def _fields(self, values: dict[str, Any], where: str) -> dict[str, Any]:
        return {
            self._text(key, where): self.node(each, f"{where}.{key}")
            for key, each in values.items()
        }  # fmt: skip

    def _text(self, value: str, where: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ModelFileError(f"{where}={value!r} is not valid UTF-8: rename it") from None
        return str(value)

    def _array(self, value: NDArray[Any], where: str) -> Any:
        if isinstance(value, np.memmap):
            value = np.asarray(value)
        if type(value) is not np.ndarray:
            raise ModelFileError(
                f"{where} is a {type(value).__name__}, which a model file does not hold: use a "
                "plain numpy array"
            )
        if value.dtype.kind in "OU":
            if value.ndim != 1 or not all(isinstance(name, str) for name in value):
                raise ModelFileError(
                    f"{where} is an array of objects, which a model file does not hold: use "
                    "numbers or strings"
                )
            return self._names(value, where)
        if value.dtype.newbyteorder("<") not in DTYPES.values():
            raise ModelFileError(
                f"{where} is an array of {value.dtype}, which a model file does not hold: use "
                "numbers, truth values or strings"
            )
        self.arrays.append(value)
        return {"array": len(self.arrays) - 1}

    def _names(self, value: NDArray[Any], where: str) -> Any:
        names = [self._text(name, where) for name in value]
        text = np.frombuffer("".join(names).encode(), dtype=np.uint8)
        lengths = np.array([len(name) for name in names], dtype=np.int64)
        node: dict[str, Any] = {"names": [self._array(each, where) for each in (text, lengths)]}
        if value.dtype.kind == "U":
            node["width"] = value.dtype.itemsize // 4
        return node

    def _csr(self, value: Any, where: str) -> Any:
        if value.format != "csr":
            raise ModelFileError(f"{where} is a sparse matrix in {value.format}: use CSR")
        value = canonical_rows(value)
        parts = {name: getattr(value, name) for name in ("indptr", "indices", "data")}
        matrix = isinstance(value, sp.spmatrix)
        return {"csr": self._fields({"columns": value.shape[1], "matrix": matrix, **parts}, where)}


# --- reading -------------------------------------------------------------------------------------


class Reader:
    """Turns nodes into values; every array is used once.

    Parameters
    ----------
    arrays : list of ndarray
    unpack : callable
        (name of a class, state, name in errors) -> object.
    """

    def __init__(
        self, arrays: list[NDArray[Any]], unpack: Callable[[Any, dict[str, Any], str], Any]
    ) -> None:
        self._arrays: list[NDArray[Any] | None] = list(arrays)
        self._unpack = unpack
        self._objects = 0

    def close(self) -> None:
        """Refuse arrays that nothing refers to."""
        if any(each is not None for each in self._arrays):
            wrong("the model", "does not use all arrays of the file")

    def unpack(self, name: Any, state: dict[str, Any], where: str) -> Any:
        """The object of a class with this state."""
        self._objects += 1
        if self._objects > MOST_OBJECTS:
            wrong(where, f"is one of more than {MOST_OBJECTS:,} objects")
        return self._unpack(name, state, where)

    def value(self, node: Any, where: str, level: int = 0) -> Any:
        """The value of a node; ``where`` names it in errors."""
        if level > MOST_LEVELS:
            wrong(where, "is nested too deeply")
        if node is None or isinstance(node, bool | int | float):
            return node
        if isinstance(node, str):
            return _clean(node, where)
        if isinstance(node, list):
            return [
                each
                if type(each) in (int, float)
                else self.value(each, f"{where}[{i}]", level + 1)
                for i, each in enumerate(node)
            ]  # fmt: skip
        found = read_list(self, node, where, level)
        if found is not None:
            return found
        keys = tuple(sorted(node))
        if keys == ("fields", "object"):
            fields = self._fields(node["fields"], f"{where} ({shortened(node['object'])})", level)
            return self.unpack(node["object"], fields, where)
        if keys in (("names",), ("names", "width")):
            return self.names(node, where, level)
        kind = keys[0] if len(keys) == 1 else None
        if kind == "array":
            return self._array(node["array"], where)
        if kind == "tuple":
            return tuple(self.items(node["tuple"], where, level))
        if kind == "table":
            return self._fields(node["table"], where, level)
        if kind == "pairs":
            pairs = self.items(node["pairs"], where, level)
            if len(pairs) != 2:
                wrong(where, "does not have keys and values")
            return self.dict_of(pairs[0], pairs[1], where)
        if kind == "csr":
            return _csr(self._fields(node["csr"], where, level), where)
        if kind == "float" and node["float"] in list(NOT_FINITE):
            return NOT_FINITE[node["float"]]
        wrong(where, f"holds no valid value: {shortened(node)}")

    def _array(self, number: Any, where: str) -> NDArray[Any]:
        if type(number) is not int or not 0 <= number < len(self._arrays):
            wrong(where, f"refers to array {shortened(number)}, which does not exist")
        found, self._arrays[number] = self._arrays[number], None
        if found is None:
            wrong(where, f"refers to array {number}, which is in use elsewhere")
        return found

    def items(self, body: Any, where: str, level: int) -> list[Any]:
        """The list of a node."""
        found = self.value(body, where, level + 1)
        instance(list)(found, where, {})
        return found

    def _fields(self, body: Any, where: str, level: int) -> dict[str, Any]:
        instance(dict)(body, where, {})
        return {
            _clean(key, where): self.value(each, f"{where}.{key[:40]}", level + 1)
            for key, each in body.items()
        }

    def dict_of(self, keys: Any, values: Any, where: str) -> dict[Any, Any]:
        """The dict of a list of keys and a list of values."""
        for each in (keys, values):
            instance(list)(each, where, {})
        if len(keys) != len(values) or not all(_is_key(key) for key in keys):
            wrong(where, "is not a list of keys and one of values")
        found = dict(zip(keys, values, strict=True))
        if len(found) < len(keys):
            wrong(where, "has a key twice")
        return found

    def names(self, node: Any, where: str, level: int) -> NDArray[Any]:
        """An array of strings: of objects, or of a fixed width."""
        both = self.items(node["names"], where, level)
        if len(both) != 2:
            wrong(where, "does not have two arrays of strings")
        array(None, dtype=(np.uint8,))(both[0], where, {})
        array(None, dtype=INT64, low=0, high=len(both[0]))(both[1], where, {})
        try:
            text = both[0].tobytes().decode()
        except UnicodeDecodeError:
            wrong(where, "is not valid UTF-8")
        lengths = both[1].tolist()
        if sum(lengths) != len(text):
            wrong(where, "has strings whose lengths do not match")
        ends = itertools.accumulate(lengths)
        names = np.empty(len(lengths), dtype=object)
        names[:] = [text[end - n : end] for end, n in zip(ends, lengths, strict=True)]
        if "width" not in node:
            return names
        width = whole(1)(node["width"], f"{where}.width", {})
        # Unless the padding takes far more memory than the strings do.
        if width < max(lengths, default=0) or len(names) * width > 2**20 + 16 * len(text):
            wrong(where, f"has strings that do not fit the width {width}")
        fixed = names.astype(f"<U{width}")
        if fixed.tolist() != names.tolist():  # numpy drops zeros at the end of a string
            wrong(where, "has a string that ends with a zero")
        return fixed


def _csr(fields: dict[str, Any], where: str) -> Any:
    """A canonical CSR matrix with finite entries: compiled code trusts its indices."""
    found = checked(fields, CSR_FIELDS, where)
    columns, indptr, indices = found["columns"], found["indptr"], found["indices"]
    if not (
        len(indptr)
        and indptr[0] == 0
        and indptr[-1] == len(indices)
        and (indptr[1:] >= indptr[:-1]).all()
        and indices.max(initial=-1) < columns
    ):
        wrong(where, "is not a sparse matrix")
    rising = np.diff(indices) > 0
    between = np.unique(indptr[1:-1])  # rows begin there: the columns may fall back
    rising[between[(between > 0) & (between < len(indices))] - 1] = True
    if not rising.all():
        wrong(where, "has columns out of order")
    kind = sp.csr_matrix if found["matrix"] else sp.csr_array
    return kind((found["data"], indices, indptr), shape=(len(indptr) - 1, columns))


def _is_key(key: Any) -> bool:
    """Whether this may be a key; larger integers could be made to have one hash all together."""
    return (
        key is None
        or isinstance(key, bool | float | str)
        or (isinstance(key, int) and abs(key) < 2**60)
    )


def _clean(text: str, where: str) -> str:
    """A string that can be written again: JSON may hold halves of characters."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            wrong(where, "is not valid UTF-8")
    return text
