"""Values as JSON and arrays: `Writer` makes nodes of them, `Fields` takes nodes apart, checked.

A node is null, a truth value, a number, a text, a list of nodes, or a table with one of the keys

- "array": the number of an array,
- "names": an array of texts, as two arrays: all of them in one as UTF-8, and how many characters
  each has; of objects, or with "width" one of that fixed width,
- "csr": a sparse matrix,
- "tuple": a list of nodes,
- "table": a dict whose keys are texts; "pairs": any other dict,
- "float": "nan", "inf" or "-inf",
- "object": the name of a registered class, with its "fields".
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kernelsieve._validation import canonical_rows
from kernelsieve.persistence._container import DTYPES
from kernelsieve.persistence._errors import InvalidContentError, ModelFileError

FLOATS = (np.float64, np.float32)
LARGEST = 2**53  # of sizes: exact in float64, and no product of two overflows Python
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
LABEL_KINDS = "biuf"
MOST_LEVELS = 64


class Writer:
    """Makes nodes of values, and keeps the arrays."""

    def __init__(self, pack: Callable[[Any, str], tuple[str, dict[str, Any]]]) -> None:
        self._pack = pack
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
            return number if math.isfinite(number) else {"float": _word(number)}
        if isinstance(value, list):
            return [self.node(each, f"{where}[{i}]") for i, each in enumerate(value)]
        if isinstance(value, tuple):
            return {"tuple": self.node(list(value), where)}
        if isinstance(value, dict):
            return self._table(value, where)
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if sp.issparse(value):
            return self._csr(value, where)
        name, fields = self._pack(value, where)
        return {
            "object": name,
            "fields": {key: self.node(each, f"{where}.{key}") for key, each in fields.items()},
        }

    def _text(self, value: str, where: str) -> str:
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ModelFileError(f"{where}={value!r} is no text in UTF-8: rename it") from None
        return str(value)

    def _table(self, value: dict[Any, Any], where: str) -> Any:
        if all(isinstance(key, str) for key in value):
            return {
                "table": {
                    self._text(key, where): self.node(each, f"{where}.{key}")
                    for key, each in value.items()
                }
            }
        return {"pairs": [self.node([key, each], where) for key, each in value.items()]}

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
                    "numbers or texts"
                )
            return self._names(value, where)
        if value.dtype.newbyteorder("<") not in DTYPES.values():
            raise ModelFileError(
                f"{where} is an array of {value.dtype}, which a model file does not hold: use "
                "numbers, truth values or texts"
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
        parts = {name: self._array(getattr(value, name), where) for name in CSR_PARTS}
        return {
            "csr": {"columns": value.shape[1], "matrix": isinstance(value, sp.spmatrix), **parts}
        }


CSR_PARTS = ("data", "indices", "indptr")


def _word(number: float) -> str:
    return "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"


class Reader:
    """Takes arrays, each once, and objects out of nodes."""

    def __init__(
        self, arrays: list[NDArray[Any]], unpack: Callable[[Any, Reader, str, Any], Any]
    ) -> None:
        self._arrays: list[NDArray[Any] | None] = list(arrays)
        self._unpack = unpack

    def array(self, number: Any, where: str) -> NDArray[Any]:
        """The array of this number."""
        if type(number) is not int or not 0 <= number < len(self._arrays):
            wrong(where, "refers to an array that there is not")
        array = self._arrays[number]
        if array is None:
            wrong(where, "refers to an array that was used before")
        self._arrays[number] = None
        return array

    def close(self) -> None:
        """Every array has its place in the model."""
        if any(array is not None for array in self._arrays):
            wrong("the model", "does not use all arrays of the file")

    def thing(self, node: Any, where: str, classes: Any) -> Any:
        """An object of one of these classes."""
        if not (isinstance(node, dict) and node.keys() == {"object", "fields"}):
            wrong(where, "is no object")
        return self._unpack(node, self, where, classes)

    def data(self, node: Any, where: str, level: int = 0, objects: bool = False) -> Any:
        """Plain data: numbers, texts, lists, tuples, dicts and arrays; objects where allowed."""
        if level > MOST_LEVELS:
            wrong(where, "is nested too deeply")
        if node is None or isinstance(node, bool | int | float):
            return node
        if isinstance(node, str):
            return clean(node, where)
        if isinstance(node, list):
            return [
                each
                if type(each) in (int, float)
                else self.data(each, f"{where}[{i}]", level + 1, objects)
                for i, each in enumerate(node)
            ]
        if objects and "object" in node:
            return self.thing(node, where, None)
        key = next(iter(node), None)
        known = {
            "array": lambda body: self.array(body, where),
            "tuple": lambda body: tuple(self._listed(body, where, level, objects)),
            "table": lambda body: self._table(body, where, level, objects),
            "pairs": lambda body: self._pairs(body, where, level, objects),
            "float": lambda body: _not_finite(body, where),
            "csr": lambda body: self.csr(body, where),
        }
        if key == "names":
            return self.names(node, where)
        if key not in known or len(node) != 1:
            wrong(where, "is no data")
        return known[key](node[key])

    def _listed(self, body: Any, where: str, level: int, objects: bool) -> list[Any]:
        if not isinstance(body, list):
            wrong(where, "is no list")
        return self.data(body, where, level + 1, objects)

    def _table(self, body: Any, where: str, level: int, objects: bool) -> dict[str, Any]:
        if not isinstance(body, dict):
            wrong(where, "is no table")
        return {
            clean(key, where): self.data(each, f"{where}.{_short(key)}", level + 1, objects)
            for key, each in body.items()
        }

    def _pairs(self, body: Any, where: str, level: int, objects: bool) -> dict[Any, Any]:
        pairs = self._listed(body, where, level, objects)
        table = {}
        for pair in pairs:
            if not (isinstance(pair, list) and len(pair) == 2 and _plain(pair[0])):
                wrong(where, "is no table")
            table[pair[0]] = pair[1]
        if len(table) < len(pairs):
            wrong(where, "has a key twice")
        return table

    def csr(self, body: Any, where: str) -> Any:
        """A canonical CSR matrix with finite entries: compiled code trusts its indices."""
        fields = Fields({"table": body}, self, where)
        columns = fields.integer("columns", 0, LARGEST)
        matrix = fields.flag("matrix")
        kinds = (np.int32, np.int64)
        indptr = fields.array("indptr", kinds, (None,))
        indices = fields.array("indices", kinds, (None,), low=0, high=columns - 1)
        data = fields.array("data", FLOATS, (len(indices),))
        fields.close()
        if not (
            len(indptr)
            and indptr[0] == 0
            and indptr[-1] == len(indices)
            and (indptr[1:] >= indptr[:-1]).all()
        ):
            wrong(where, "is no sparse matrix")
        rising = np.diff(indices) > 0
        between = np.unique(indptr[1:-1])  # rows begin there: the columns may fall back
        rising[between[(between > 0) & (between < len(indices))] - 1] = True
        if not rising.all():
            wrong(where, "has columns out of order")
        kind = sp.csr_matrix if matrix else sp.csr_array
        return kind((data, indices, indptr), shape=(len(indptr) - 1, columns))

    def names(self, node: Any, where: str) -> NDArray[Any]:
        """An array of texts: of objects, or of a fixed width."""
        fields = Fields({"table": node}, self, where)
        width = fields.integer("width", 1, LARGEST) if fields.has("width") else None
        both = fields.arrays("names")
        fields.close()
        if len(both) != 2:
            wrong(where, "are no texts")
        check_array(both[0], where, (np.uint8,), (None,))
        check_array(both[1], where, (np.int64,), (None,), low=0, high=len(both[0]))
        try:
            text = both[0].tobytes().decode()
        except UnicodeDecodeError:
            wrong(where, "are no texts in UTF-8")
        lengths = both[1].tolist()
        if sum(lengths) != len(text):
            wrong(where, "are texts of other lengths")
        ends = itertools.accumulate(lengths)
        names = [text[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        array = np.empty(len(names), dtype=object)
        array[:] = names
        return array if width is None else _fixed(array, lengths, width, where)


def _fixed(
    names: NDArray[np.object_], lengths: list[int], width: int, where: str
) -> NDArray[np.str_]:
    """Texts in fields of one width, unless that takes far more memory than the texts do."""
    if width < max(lengths, default=0) or len(names) * width > 2**20 + 16 * sum(lengths):
        wrong(where, f"are texts that do not fit the width {width}")
    fixed = names.astype(f"<U{width}")
    if fixed.tolist() != names.tolist():  # numpy drops zeros at the end of a text
        wrong(where, "are texts that end with a zero")
    return fixed


def _plain(key: Any) -> bool:
    """Whether this may be a key; larger integers could be made to have one hash all together."""
    return (
        key is None
        or isinstance(key, bool | float | str)
        or (isinstance(key, int) and abs(key) < 2**60)
    )


def clean(text: str, where: str) -> str:
    """A text that can be written again: JSON may hold halves of characters."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            wrong(where, "is no text in UTF-8")
    return text


def _not_finite(body: Any, where: str) -> float:
    if not (isinstance(body, str) and body in NOT_FINITE):
        wrong(where, "is no number")
    return NOT_FINITE[body]


def wrong(where: str, what: str) -> NoReturn:
    """Refuse a file, or a model that cannot be one."""
    raise InvalidContentError(f"{where} {what}")


class Fields:
    """The fields of one object: each is taken once and checked, and none may be left.

    Parameters
    ----------
    node : a "table" node, or {"table": fields}
    reader : Reader
    where : str
        The name of the object in errors.
    """

    def __init__(self, node: Any, reader: Reader, where: str) -> None:
        body = node.get("table") if isinstance(node, dict) and len(node) == 1 else None
        if not isinstance(body, dict):
            wrong(where, "has no fields")
        self._left: dict[str, Any] = dict(body)
        self._reader = reader
        self.where = where

    def _take(self, name: str) -> Any:
        if name not in self._left:
            wrong(self.where, f"has no {name}")
        return self._left.pop(name)

    def _name(self, name: str) -> str:
        return f"{self.where}.{name}"

    def close(self) -> None:
        """Nothing is left that nobody asked for."""
        for name in self._left:
            wrong(self.where, f"has a field {name[:40]!r} that this version does not know")

    def has(self, name: str) -> bool:
        """Whether there is a field that was not yet taken."""
        return name in self._left

    def given(self, name: str) -> bool:
        """Whether a field is something; one that is null is taken."""
        if self._left.get(name, False) is None:
            del self._left[name]
            return False
        return True

    def names_left(self) -> list[str]:
        """The fields that were not yet taken."""
        return list(self._left)

    def flag(self, name: str) -> bool:
        """A truth value."""
        value = self._take(name)
        if not isinstance(value, bool):
            wrong(self._name(name), "is not true or false")
        return value

    def integer(self, name: str, low: int, high: int = LARGEST) -> int:
        """A whole number between two bounds, which are included."""
        value = self._take(name)
        if type(value) is not int or not low <= value <= high:
            wrong(self._name(name), f"is {_short(value)}, no whole number from {low} to {high}")
        return value

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float:
        """A float between two bounds, which are included; infinite or NaN only without bounds."""
        value = self._take(name)
        if isinstance(value, dict) and value.keys() == {"float"}:
            value = _not_finite(value["float"], self._name(name))
        unbounded = math.isinf(low) and math.isinf(high)
        if not isinstance(value, float) or not (unbounded or low <= value <= high):
            wrong(self._name(name), f"is {_short(value)}, no number from {low:g} to {high:g}")
        return value

    def text(self, name: str) -> str:
        """A text."""
        value = self._take(name)
        if not isinstance(value, str):
            wrong(self._name(name), "is no text")
        return clean(value, self._name(name))

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of some texts."""
        value = self.text(name)
        if value not in choices:
            wrong(self._name(name), f"is {_short(value)}, none of {', '.join(choices)}")
        return value

    def names(self, name: str) -> NDArray[np.object_]:
        """An array of texts."""
        node = self._take(name)
        if not (isinstance(node, dict) and node.keys() == {"names"}):
            wrong(self._name(name), "is no list of texts")
        return self._reader.names(node, self._name(name))

    def array(
        self,
        name: str,
        dtypes: tuple[Any, ...],
        shape: tuple[int | None, ...],
        *,
        finite: bool = True,
        low: int | None = None,
        high: int | None = None,
        order: str | None = None,
    ) -> NDArray[Any]:
        """An array of one of these types, whose shape is known up to the lengths left None.

        Integers may be bounded; floats are finite unless said otherwise; an ``order`` is demanded
        where compiled code relies on it.
        """
        node, where = self._take(name), self._name(name)
        if not (isinstance(node, dict) and node.keys() == {"array"}):
            wrong(where, "is no array")
        array = self._reader.array(node["array"], where)
        check_array(array, where, dtypes, shape, finite, low, high, order)
        return array

    def arrays(self, name: str) -> list[NDArray[Any]]:
        """A list of arrays, which the caller checks."""
        nodes, where = self._take(name), self._name(name)
        if not isinstance(nodes, list):
            wrong(where, "is no list")
        found = []
        for node in nodes:
            if not (isinstance(node, dict) and node.keys() == {"array"}):
                wrong(where, "has something that is no array")
            found.append(self._reader.array(node["array"], where))
        return found

    def rows(self, name: str, n_columns: int) -> Any:
        """A dense or CSR matrix of finite numbers with so many columns."""
        node, where = self._left.get(name), self._name(name)
        if isinstance(node, dict) and node.keys() == {"csr"}:
            matrix = self._reader.csr(self._take(name)["csr"], where)
            if matrix.shape[1] != n_columns:
                wrong(where, f"has {matrix.shape[1]} columns in place of {n_columns}")
            return matrix
        return self.array(name, FLOATS, (None, n_columns), order="C")

    def labels(self, name: str) -> NDArray[Any]:
        """One column of numbers or texts."""
        node, where = self._take(name), self._name(name)
        if isinstance(node, dict) and "names" in node:
            return self._reader.names(node, where)
        if not (isinstance(node, dict) and node.keys() == {"array"}):
            wrong(where, "are no labels")
        array = self._reader.array(node["array"], where)
        if array.ndim != 1 or array.dtype.kind not in LABEL_KINDS:
            wrong(where, "are no labels")
        return array

    def data(self, name: str, objects: bool = False) -> Any:
        """Plain data, with registered objects where they are allowed."""
        return self._reader.data(self._take(name), self._name(name), objects=objects)

    def thing(self, name: str, *classes: type) -> Any:
        """An object of one of these classes (or of any that is registered)."""
        return self._reader.thing(self._take(name), self._name(name), classes or None)

    def part(self, name: str) -> Fields:
        """A table as fields of their own."""
        return Fields(self._take(name), self._reader, self._name(name))

    def parts(self, name: str) -> list[Fields]:
        """A list of tables."""
        nodes, where = self._take(name), self._name(name)
        if not isinstance(nodes, list):
            wrong(where, "is no list")
        return [Fields(node, self._reader, f"{where}[{i}]") for i, node in enumerate(nodes)]


def check_array(
    array: NDArray[Any],
    where: str,
    dtypes: tuple[Any, ...],
    shape: tuple[int | None, ...],
    finite: bool = True,
    low: int | None = None,
    high: int | None = None,
    order: str | None = None,
) -> None:
    """Refuse an array that is not what the code that will use it relies on."""
    if array.dtype.type not in dtypes:
        wrong(where, f"has the type {array.dtype}")
    if array.ndim != len(shape) or any(
        wanted is not None and length != wanted
        for length, wanted in zip(array.shape, shape, strict=True)
    ):
        wanted = ", ".join("?" if length is None else str(length) for length in shape)
        wrong(where, f"has the shape {array.shape} in place of ({wanted})")
    if order == "C" and not array.flags.c_contiguous:
        wrong(where, "lies in another order in memory")
    if array.dtype.kind == "f" and finite and not np.isfinite(array).all():
        wrong(where, "has a value that is not finite")
    if array.size and low is not None and array.min() < low:
        wrong(where, f"has a value {array.min()} below {low}")
    if array.size and high is not None and array.max() > high:
        wrong(where, f"has a value {array.max()} above {high}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
