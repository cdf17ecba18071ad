"""The bytes of a model file: a header in JSON, raw arrays and a checksum (docs/model-files.md).

Nothing in a file says where an array begins: they follow each other, so none can overlap another or
lie outside. Every length is compared with the size of the file before anything is allocated.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x89KSM\r\n\x1a\n"  # as PNG: a copy in text mode does not survive it
FORMAT = 3
PREFIX = struct.Struct("<8sIIQ")  # magic, format, length of the header, length of the file
CHECKSUM = hashlib.sha256().digest_size
ALIGNMENT = 64
LONGEST_HEADER = 2**24
MOST_BRACKETS = 2**19  # of the header: a list of nothing takes 3 bytes there and 64 in memory
LONGEST_INTEGER = 40  # digits: seeds may have 128 bits
MOST_DIMENSIONS = 4
CHUNK = 2**20

DTYPES = {
    name: np.dtype(name)
    for name in ("<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1")
}


class ModelFileError(ValueError):
    """A model file that cannot be read, or a model that cannot be written to one."""


@dataclass(frozen=True)
class Layout:
    """The type, shape and order of an array in the file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @property
    def size(self) -> int:
        """The number of bytes, as an integer that does not overflow."""
        return math.prod(self.shape) * self.dtype.itemsize


# --- writing -------------------------------------------------------------------------------------


def header_text(header: dict[str, Any], arrays: list[NDArray[Any]]) -> bytes:
    """The header in JSON, with the layouts of the arrays that it refers to by their number."""
    layouts = [layout_of(array) for array in arrays]
    described = [
        {"dtype": _dtype_name(each.dtype), "shape": list(each.shape), "order": each.order}
        for each in layouts
    ]
    return json.dumps(
        {**header, "arrays": described},
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    ).encode()


def write(file: BinaryIO, text: bytes, arrays: list[NDArray[Any]]) -> None:
    """Write a header and its arrays."""
    layouts = [layout_of(array) for array in arrays]
    *places, end = _places(PREFIX.size + len(text), layouts)
    digest = hashlib.sha256()
    written = 0

    def put(data: Any) -> None:
        nonlocal written
        digest.update(data)
        file.write(data)
        written += len(data)

    put(PREFIX.pack(MAGIC, FORMAT, len(text), end + CHECKSUM))
    put(text)
    for array, layout, place in zip(arrays, layouts, places, strict=True):
        put(b"\0" * (place - written))
        flat = np.asarray(array, dtype=layout.dtype).ravel(order=layout.order)
        for start in range(0, flat.size, CHUNK):
            put(flat[start : start + CHUNK].view(np.uint8).data)
    put(b"\0" * (end - written))
    file.write(digest.digest())


def layout_of(array: NDArray[Any]) -> Layout:
    """The layout that gives this array back, in the order in which it lies in memory.

    The order decides how BLAS multiplies, and so the last bit of a product.
    """
    steps = [abs(step) for step in array.strides]
    rising = array.ndim > 1 and steps == sorted(steps) and not array.flags.c_contiguous
    order: Literal["C", "F"] = "F" if rising else "C"
    return Layout(array.dtype.newbyteorder("<"), array.shape, order)


def _dtype_name(dtype: np.dtype[Any]) -> str:
    return next(name for name, known in DTYPES.items() if known == dtype)


def _places(start: int, layouts: list[Layout]) -> Iterator[int]:
    """Where each array begins, and where the checksum does."""
    for layout in layouts:
        start += -start % ALIGNMENT
        yield start
        start += layout.size
    yield start + -start % ALIGNMENT


# --- reading -------------------------------------------------------------------------------------


def read(path: Path) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """The header and the arrays of a file whose length and checksum are right."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ModelFileError("is not a regular file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        header_size = _check_prefix(file.read(PREFIX.size), size)
        _check_sum(file, size)
        file.seek(PREFIX.size)
        header, layouts = parse(file.read(header_size), size)
        *places, end = _places(PREFIX.size + header_size, layouts)
        if end + CHECKSUM != size:
            _damaged(f"its arrays need {end + CHECKSUM:,} bytes and it has {size:,}")
        return header, [
            _read_array(file, layout, place)
            for layout, place in zip(layouts, places, strict=True)
        ]  # fmt: skip


def _damaged(what: str) -> NoReturn:
    raise ModelFileError(f"is damaged: {what}; copy it again, or fit the model again and save it")


def _check_prefix(prefix: bytes, size: int) -> int:
    """The length of the header, if this is a complete file of our format."""
    if prefix[: len(MAGIC)] != MAGIC[: len(prefix)] or not prefix:
        raise ModelFileError("is not a kernelsieve model: those are written by kernelsieve.save")
    if len(prefix) < PREFIX.size:
        raise ModelFileError(f"ends after {size} bytes, before its header: copy it again")
    _, version, header_size, expected = PREFIX.unpack(prefix)
    if version > FORMAT:
        raise ModelFileError(
            f"has format version {version}, but this kernelsieve reads version {FORMAT}: "
            "pip install -U kernelsieve"
        )
    if version < FORMAT:
        raise ModelFileError(
            f"has format version {version}, which this kernelsieve no longer reads: fit the model "
            "again and save it"
        )
    if size < expected:
        raise ModelFileError(f"ends after {size:,} of {expected:,} bytes: copy it again")
    if size > expected:
        _damaged(f"it has {size - expected:,} bytes after its end")
    if header_size > min(size - PREFIX.size - CHECKSUM, LONGEST_HEADER):
        _damaged(f"it is too short for a header of {header_size:,} bytes")
    return header_size


def _check_sum(file: BinaryIO, size: int) -> None:
    file.seek(0)
    digest, left = hashlib.sha256(), size - CHECKSUM
    while left > 0 and (chunk := file.read(min(CHUNK, left))):
        digest.update(chunk)
        left -= len(chunk)
    if digest.digest() != file.read(CHECKSUM):
        _damaged("its checksum does not match its content")


def parse(text: bytes, size: int) -> tuple[dict[str, Any], list[Layout]]:
    """The header of a file of this size, and the layouts of its arrays."""
    header = _parse(text)
    return header, [_layout(each, size) for each in _listed(header)]


def _parse(text: bytes) -> dict[str, Any]:
    if len(text) > LONGEST_HEADER:
        _damaged(f"its header has {len(text):,} bytes, more than {LONGEST_HEADER:,}")
    if text.count(b"[") + text.count(b"{") > MOST_BRACKETS:
        _damaged(f"its header has more than {MOST_BRACKETS:,} brackets")
    try:
        header = json.loads(
            text.decode(),
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
            object_pairs_hook=_distinct,
        )
    except RecursionError:
        _damaged("its header is nested too deeply")
    except ValueError as error:  # of JSON, of UTF-8 or of ours
        _damaged(f"its header cannot be read ({error})")
    if not isinstance(header, dict):
        _damaged("its header is not a JSON object")
    return header


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:LONGEST_INTEGER]} is not a float")
    return number


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return table


def _listed(header: dict[str, Any]) -> list[Any]:
    listed = header.pop("arrays", None)
    if not isinstance(listed, list):
        _damaged("its header lists no arrays")
    return listed


def _layout(described: Any, size: int) -> Layout:
    if not (isinstance(described, dict) and described.keys() == {"dtype", "shape", "order"}):
        _damaged("the layout of an array is not its dtype, shape and order")
    dtype, shape, order = described["dtype"], described["shape"], described["order"]
    if not (isinstance(dtype, str) and dtype in DTYPES):
        _damaged(f"an array has the type {str(dtype)[:20]!r}")
    if not (isinstance(order, str) and order in ("C", "F")):
        _damaged(f"an array has the order {str(order)[:20]!r}")
    if not (
        isinstance(shape, list)
        and len(shape) <= MOST_DIMENSIONS
        and all(type(length) is int and 0 <= length <= size for length in shape)
    ):
        _damaged(f"an array has the shape {repr(shape)[:40]}")
    return Layout(DTYPES[dtype], tuple(shape), "C" if order == "C" else "F")


def _read_array(file: BinaryIO, layout: Layout, place: int) -> NDArray[Any]:
    array = np.empty(layout.shape, dtype=layout.dtype, order=layout.order)
    flat = array.ravel(order="K").view(np.uint8) if array.size else np.empty(0, dtype=np.uint8)
    file.seek(place)
    if file.readinto(flat.data) != layout.size:  # type: ignore[attr-defined]
        _damaged("it was truncated while it was read")
    if layout.dtype == bool and (flat > 1).any():
        _damaged("an array of truth values holds other values")
    return array.astype(layout.dtype.newbyteorder("="), copy=False)
