"""The Walsh-Hadamard transform of rows, in registers: 16 points of 16 lanes at a time.

A row of 256 entries is read and written once, one of 4,096 twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from kernelsieve._native._options import native, require_contiguous, vectors_for
from kernelsieve._native.lanes import LANES, alignment, vector_pointer


def _across(builder: Any, vectors: list[Any]) -> None:
    """Butterflies between vectors, for all strides below their number."""
    stride = 1
    while stride < len(vectors):
        for i in range(len(vectors)):
            if not i & stride:
                a, b = vectors[i], vectors[i + stride]
                vectors[i], vectors[i + stride] = builder.fadd(a, b), builder.fsub(a, b)
        stride *= 2


def _within(builder: Any, vector: Any) -> Any:
    """Butterflies between the lanes of one vector."""
    lanes = range(LANES)
    undefined = ir.Constant(vector.type, ir.Undefined)
    stride = 1
    while stride < LANES:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [i ^ stride for i in lanes])
        signs = ir.Constant(vector.type, [-1.0 if i & stride else 1.0 for i in lanes])
        swapped = builder.shuffle_vector(vector, undefined, mask)
        vector = builder.fadd(swapped, builder.fmul(vector, signs))
        stride *= 2
    return vector


def _plain_butterflies(lines):
    """Butterflies between lines, for all strides below their number."""
    stride = 1
    while stride < len(lines):
        pairs = lines.reshape(-1, 2, stride, lines.shape[1])
        first, second = pairs[:, 0], pairs[:, 1]
        lines = np.stack([first + second, first - second], axis=1).reshape(lines.shape)
        stride *= 2
    return lines


def _butterflies(count: int, lanes_too: bool) -> Any:
    """An operation on ``count`` vectors that lie ``stride`` entries apart, from ``offset`` on."""

    def plain(entries, offset, stride):
        places = offset + stride * np.arange(count)[:, None] + np.arange(LANES)
        vectors = entries[places]
        if lanes_too:
            vectors = _plain_butterflies(vectors.T).T
        entries[places] = _plain_butterflies(vectors)

    @vectors_for(plain)
    def operation(typing_context, entries, offset, stride):
        require_contiguous(entries)
        signature = types.void(entries, types.intp, types.intp)

        def codegen(context, builder, signature, args):
            (array_type, _, _), (array, place, stride) = signature.args, args
            align = alignment(array_type)
            pointers = []
            for _ in range(count):
                pointers.append(vector_pointer(context, builder, array_type, array, place))
                place = builder.add(place, stride)
            vectors = [builder.load(pointer, align=align) for pointer in pointers]
            if lanes_too:
                vectors = [_within(builder, vector) for vector in vectors]
            _across(builder, vectors)
            for vector, pointer in zip(vectors, pointers, strict=True):
                builder.store(vector, pointer, align=align)
            return context.get_dummy_value()

        return signature, codegen

    return operation


first_1, first_2, first_4, first_8, first_16 = (_butterflies(2**k, True) for k in range(5))
next_2, next_4, next_8, next_16 = (_butterflies(2**k, False) for k in range(1, 5))


@native
def hadamard_inplace(block):
    """Each row of ``block`` times the +-1 Hadamard matrix; its width is a power of two."""
    width = block.shape[1]
    entries = block.reshape(block.size)
    for start in range(0, block.size, width):
        if width < LANES:
            small_transform(entries, start, width)
        else:
            done = first_pass(entries, start, width)
            while done < width:
                done = next_pass(entries, start, width, done)


@native
def small_transform(entries, start, width):
    """Rows that are shorter than a vector."""
    stride = 1
    while stride < width:
        for i in range(start, start + width):
            if not (i - start) & stride:
                a, b = entries[i], entries[i + stride]
                entries[i], entries[i + stride] = a + b, a - b
        stride *= 2


@native
def first_pass(entries, start, width):
    """All strides below 256 (or the width): returns that number."""
    vectors = min(16, width // LANES)
    for offset in range(start, start + width, vectors * LANES):
        if vectors == 16:
            first_16(entries, offset, LANES)
        elif vectors == 8:
            first_8(entries, offset, LANES)
        elif vectors == 4:
            first_4(entries, offset, LANES)
        elif vectors == 2:
            first_2(entries, offset, LANES)
        else:
            first_1(entries, offset, LANES)
    return vectors * LANES


@native
def next_pass(entries, start, width, done):
    """Up to four more strides, from ``done`` on: returns the first that is left."""
    vectors = min(16, width // done)
    for group in range(start, start + width, vectors * done):
        for offset in range(group, group + done, LANES):
            if vectors == 16:
                next_16(entries, offset, done)
            elif vectors == 8:
                next_8(entries, offset, done)
            elif vectors == 4:
                next_4(entries, offset, done)
            else:
                next_2(entries, offset, done)
    return done * vectors
