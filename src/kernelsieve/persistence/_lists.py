"""Long lists by the kinds of their items: numbers and texts in arrays, objects field by field.

What a file says in JSON then does not grow with the number of columns of a model. In place of a
list of nodes there is a table with one of the keys

- "numbers": an array, of floats, whole numbers or truth values,
- "texts": all strings in one array as UTF-8, and how many characters each has,
- "lists", "tuples", "arrays": how many items each has, and all items,
- "dicts": how many items each has, all keys, and all values,
- "objects": the name of their class, with the "fields" of their states: a list for each,
- "mixed": the kind of each item, and a list for each kind.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve._state import INT64, array, instance, wrong

if TYPE_CHECKING:
    from kernelsieve.persistence._nodes import Reader, Writer

FEWEST = 32  # items: a shorter list is easier to read item by item
MOST_KINDS = 64  # of items in one list
NUMBERS = {"float": np.float64, "int": np.int64, "bool": np.bool_}
Kind = tuple[Any, ...]


# --- writing -------------------------------------------------------------------------------------


def list_node(writer: Writer, values: list[Any], where: str) -> Any:
    """The node of a list."""
    if len(values) < FEWEST:
        return [writer.node(each, f"{where}[{i}]") for i, each in enumerate(values)]
    items = [_item(writer, each, f"{where}[{i}]") for i, each in enumerate(values)]
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(kind for kind, _ in items))}
    if len(kinds) == 1:
        return _part(writer, items[0][0], [payload for _, payload in items], where)
    if len(kinds) > MOST_KINDS:
        return [writer.node(each, f"{where}[{i}]") for i, each in enumerate(values)]
    codes = np.array([kinds[kind] for kind, _ in items], dtype=np.uint8)
    parts = [
        _part(writer, kind, [payload for other, payload in items if other == kind], where)
        for kind in kinds
    ]
    return {"mixed": [writer.node(codes, where), parts]}


def _item(writer: Writer, value: Any, where: str) -> tuple[Kind, Any]:
    """The kind of an item, and what is written of it."""
    if isinstance(value, bool | np.bool_):
        return ("bool",), bool(value)
    if isinstance(value, numbers.Integral) and abs(int(value)) < 2**63:
        return ("int",), int(value)
    if isinstance(value, float | np.floating):
        return ("float",), float(value)
    if isinstance(value, str):
        return ("str",), value
    for kind in (list, tuple, dict):
        if isinstance(value, kind):
            return (kind.__name__,), value
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype.kind != "U":
        return ("array", value.dtype.newbyteorder("<").str), value
    if writer.is_object(value):
        name, state = writer.pack(value, where)
        if state:
            return ("object", name, tuple(state)), state
    return ("other",), value


def _part(writer: Writer, kind: Kind, items: list[Any], where: str) -> Any:
    """The node of a list of items of one kind."""
    name = kind[0]
    if name in NUMBERS:
        return {"numbers": writer.node(np.array(items, dtype=NUMBERS[name]), where)}
    if name == "str":
        texts = np.empty(len(items), dtype=object)
        texts[:] = items
        return {"texts": writer.node(texts, where)["names"]}
    if name == "object":
        fields = {
            field: list_node(writer, [state[field] for state in items], f"{where}.{field}")
            for field in kind[2]
        }
        return {"objects": kind[1], "fields": fields}
    if name == "other":
        return [writer.node(each, f"{where}[{i}]") for i, each in enumerate(items)]
    lengths = writer.node(np.array([len(each) for each in items], dtype=np.int64), where)
    if name == "array":
        return {"arrays": [lengths, writer.node(np.concatenate(items), where)]}
    joined = list_node(writer, list(itertools.chain.from_iterable(items)), where)
    if name == "dict":
        values = list(itertools.chain.from_iterable(each.values() for each in items))
        return {"dicts": [lengths, joined, list_node(writer, values, where)]}
    return {f"{name}s": [lengths, joined]}


# --- reading -------------------------------------------------------------------------------------


def read_list(reader: Reader, node: dict[str, Any], where: str, level: int) -> list[Any] | None:
    """The list of a node that is not a JSON list, or None if this is another node."""
    keys = tuple(sorted(node))
    if keys == ("fields", "objects"):
        return _objects(reader, node["objects"], node["fields"], where, level)
    kind = keys[0] if len(keys) == 1 else None
    if kind == "numbers":
        found = reader.value(node["numbers"], where, level + 1)
        array(None, dtype=tuple(NUMBERS.values()), finite=False)(found, where, {})
        return found.tolist()
    if kind == "texts":
        return reader.names({"names": node["texts"]}, where, level).tolist()
    if kind == "mixed":
        return _mixed(reader, node["mixed"], where, level)
    if kind in ("lists", "tuples", "arrays"):
        lengths, joined = _several(reader, node[kind], 2, where, level)
        instance(np.ndarray if kind == "arrays" else list)(joined, where, {})
        pieces = _pieces(lengths, joined, where)
        if kind == "arrays":
            return [piece.copy() for piece in pieces]
        return list(pieces) if kind == "lists" else [tuple(piece) for piece in pieces]
    if kind == "dicts":
        lengths, names, values = _several(reader, node["dicts"], 3, where, level)
        both = zip(_pieces(lengths, names, where), _pieces(lengths, values, where), strict=True)
        return [reader.dict_of(keys, each, where) for keys, each in both]
    return None


def _several(reader: Reader, body: Any, count: int, where: str, level: int) -> list[Any]:
    """So many values, the first of which are lengths."""
    found = reader.items(body, where, level)
    if len(found) != count:
        wrong(where, f"has {len(found)} parts instead of {count}")
    array(None, dtype=INT64, low=0)(found[0], where, {})
    for each in found[1:]:
        instance(list, np.ndarray)(each, where, {})
    return found


def _pieces(lengths: NDArray[np.int64], joined: Any, where: str) -> Iterator[Any]:
    """A list or an array in pieces of these lengths."""
    if sum(lengths.tolist()) != len(joined) or getattr(joined, "ndim", 1) != 1:
        wrong(where, "has parts whose lengths do not match")
    ends = itertools.accumulate(lengths.tolist())
    return (joined[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True))


def _objects(reader: Reader, name: Any, fields: Any, where: str, level: int) -> list[Any]:
    instance(dict)(fields, where, {})
    columns = {
        field: reader.items(each, f"{where}.{field[:40]}", level) for field, each in fields.items()
    }
    counts = {len(column) for column in columns.values()}
    if len(counts) != 1:
        wrong(where, "has fields of different lengths, or none")
    return [
        reader.unpack(name, dict(zip(columns, values, strict=True)), f"{where}[{i}]")
        for i, values in enumerate(zip(*columns.values(), strict=True))
    ]


def _mixed(reader: Reader, body: Any, where: str, level: int) -> list[Any]:
    instance(list)(body, where, {})
    if len(body) != 2 or not isinstance(body[1], list):
        wrong(where, "does not have the kinds of its items and a list for each")
    kinds = reader.value(body[0], where, level + 1)
    array(None, dtype=(np.uint8,))(kinds, where, {})
    parts = [reader.items(each, where, level + 1) for each in body[1]]
    if np.bincount(kinds, minlength=len(parts)).tolist() != [len(part) for part in parts]:
        wrong(where, "has parts whose lengths do not match")
    following = [iter(part) for part in parts]
    return [next(following[kind]) for kind in kinds.tolist()]
