"""An ONNX graph in the making: values are names of tensors, arrays become constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

OPSET, IR_VERSION = 19, 9  # the first operators that compare texts; onnxruntime 1.15 has them
LATER = {"RegexFullMatch": 20}  # operators that came later; onnxruntime 1.17 has them
LARGEST_FILE = 2**31 - 2**20  # bytes: what protobuf can hold


class ExportError(ValueError):
    """A model, or a part of it, that ONNX cannot express; the message says which and why."""


T = TypeVar("T")


def entry_of(table: Mapping[type, T], thing: Any) -> T | None:
    """The entry of the class of a thing, or of its nearest base; None if there is none."""
    return next((table[cls] for cls in type(thing).__mro__ if cls in table), None)


class Graph:
    """Nodes and constants of a graph. All numbers inside are float64, whatever goes in and out.

    Coefficients of a kernel model are often large and cancel: in float32 they would lose digits
    that the predictions need.

    Parameters
    ----------
    dtype : numpy dtype
        float32 or float64: the type of numbers that go in and come out.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._known: dict[tuple[Any, ...], str] = {}
        self._bytes = 0
        self._opset = OPSET

    def op(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node with one output; inputs are names, or arrays and numbers.

        Returns
        -------
        str
            The name of the result.
        """
        from onnx import helper

        if kind in ("Mul", "Div") and _rounds_in_float32(inputs[1]):
            return self._scaled(inputs[0], inputs[1], kind)
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        result = f"{kind.lower()}_{len(self._nodes)}"
        self._opset = max(self._opset, LATER.get(kind, OPSET))
        self._nodes.append(helper.make_node(kind, names, [result], **attributes))
        return result

    def _scaled(self, values: Any, factor: Any, kind: str) -> str:
        """Values times (or over) one number, as the sum of two products.

        onnxruntime fuses a matrix product with a scalar beside it, and rounds the scalar to
        float32. Each of these two is a float32 already.
        """
        number = float(np.asarray(factor).reshape(()))
        number = number if kind == "Mul" else 1.0 / number
        high = float(np.float32(number))
        low = float(np.float32(number - high))
        shape = np.shape(factor)
        parts = [self.op("Mul", values, np.full(shape, part)) for part in (high, low)]
        return self.op("Add", *parts)

    def constant(self, value: Any) -> str:
        """Add an array: numbers in float64, whole numbers in int64, or texts."""
        from onnx import numpy_helper

        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = array.astype(np.float64)
        elif array.dtype.kind in "iu":
            array = array.astype(np.int64)
        elif array.dtype.kind in "US":
            array = array.astype(object)
        key = (array.dtype.str, array.shape, _content(array))
        if key not in self._known:
            self._bytes += array.nbytes
            if self._bytes > LARGEST_FILE:
                raise ExportError(
                    f"the model holds more than {self._bytes / 1e9:.1f} GB of numbers, and an ONNX "
                    "file at most 2 GB: fit it with fewer components"
                )
            name = f"constant_{len(self._constants)}"
            self._constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
            self._known[key] = name
        return self._known[key]

    def input(self, name: str, shape: list[Any], kind: str = "number") -> str:
        """Add an input; numbers are float64 from here on.

        Parameters
        ----------
        name : str
        shape : list of int and str
            A name stands for a size that may differ from call to call.
        kind : "number", "time" or "text"
            Times are seconds since 1970, which float32 cannot hold: always float64.
        """
        from onnx import TensorProto, helper

        kinds = {"number": _tensor_type(self.dtype), "time": TensorProto.DOUBLE}
        given = kinds.get(kind, TensorProto.STRING)
        self._inputs.append(helper.make_tensor_value_info(name, given, shape))
        if kind == "number" and self.dtype == np.float32:
            return self.op("Cast", name, to=TensorProto.DOUBLE)
        return name

    def output(self, value: str, name: str, shape: list[Any], dtype: Any = None) -> None:
        """Name a result; numbers leave in the type of the graph unless ``dtype`` says otherwise."""
        from onnx import TensorProto, helper

        wanted = self.dtype if dtype is None else np.dtype(dtype)
        to = TensorProto.STRING if wanted.kind in "OUS" else _tensor_type(wanted)
        result = value
        if dtype is None and wanted == np.float32:
            result = self.op("Cast", value, to=to)
        self._nodes.append(helper.make_node("Identity", [result], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, to, shape))

    def model(self, description: str, producer: str) -> Any:
        """The finished model, checked by onnx."""
        import onnx
        from onnx import helper

        graph = helper.make_graph(
            self._nodes, "kernelsieve", self._inputs, self._outputs, self._constants
        )
        model = helper.make_model(
            graph,
            producer_name="kernelsieve",
            producer_version=producer,
            doc_string=description,
            opset_imports=[helper.make_opsetid("", self._opset)],
            ir_version=IR_VERSION,
        )
        onnx.checker.check_model(model)
        return model

    # --- what several parts need -----------------------------------------------------------------

    def columns(self, rows: str, places: Any) -> str:
        """Some columns of a matrix (n, d), in the order of ``places``."""
        return self.op("Gather", rows, np.asarray(places, dtype=np.int64), axis=1)

    def row_sum(self, rows: str, keep: bool = True) -> str:
        """The sum of each row of a matrix: (n, 1), or (n,)."""
        return self.op("ReduceSum", rows, np.array([1]), keepdims=int(keep))

    def row_product(self, rows: str, width: int) -> str:
        """The product of each row of a matrix of ``width`` columns: (n, 1).

        By halves: onnxruntime has not always had ReduceProd of float64.
        """
        while width > 1:
            half = width // 2
            left, right = np.arange(half), np.arange(half, 2 * half)
            product = self.op("Mul", self.columns(rows, left), self.columns(rows, right))
            if width % 2:
                product = self.op("Concat", product, self.columns(rows, [width - 1]), axis=1)
            rows, width = product, half + width % 2
        return rows

    def flags(self, condition: str) -> str:
        """0.0 and 1.0 for a tensor of truth values."""
        from onnx import TensorProto

        return self.op("Cast", condition, to=TensorProto.DOUBLE)

    def ones(self, rows: str, width: int) -> str:
        """A matrix of ones, with as many rows as ``rows`` has."""
        count = self.op("Gather", self.op("Shape", rows), np.array([0]))
        shape = self.op("Concat", count, np.array([width]), axis=0)
        return self.op("Expand", np.ones((1, width)), shape)

    def join(self, parts: list[str]) -> str:
        """Matrices beside each other."""
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=1)

    def vector(self, column: str) -> str:
        """A matrix of one column as a vector (n,)."""
        return self.op("Reshape", column, np.array([-1]))


def _rounds_in_float32(value: Any) -> bool:
    """Whether a value is a single number that float32 does not hold, but could round."""
    if isinstance(value, str) or np.size(value) != 1:
        return False
    number = float(np.asarray(value).reshape(()))
    with np.errstate(over="ignore"):
        rounded = float(np.float32(number))
    return number != rounded and np.isfinite(rounded) and abs(rounded) > 1e-25


def _content(array: NDArray[Any]) -> Any:
    return tuple(array.ravel().tolist()) if array.dtype.kind == "O" else array.tobytes()


def _tensor_type(dtype: np.dtype) -> Any:
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(dtype)
