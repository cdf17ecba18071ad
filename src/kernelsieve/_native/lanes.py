"""Vectors of LANES rows, as the compiler's own vector type.

Loops over a few rows are left scalar by the compiler, which cannot know that a stack, a table and a
tile do not overlap. These few operations say so. They are portable: a vector that is wider than the
machine's registers becomes several.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from kernelsieve._native._options import require_contiguous, vectors_for

LANES = 16  # rows in a vector, and columns in a tile: a cache line of float32


def vector_pointer(context: Any, builder: Any, array_type: Any, array: Any, offset: Any) -> Any:
    """A pointer to LANES consecutive entries of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    vector = ir.VectorType(context.get_data_type(array_type.dtype), LANES)
    return builder.bitcast(builder.gep(data, [offset]), vector.as_pointer())


def _line(context: Any, builder: Any, array_type: Any, array: Any, line: Any) -> Any:
    """A pointer to a line of an array of shape (?, LANES)."""
    offset = builder.mul(line, ir.Constant(line.type, LANES))
    return vector_pointer(context, builder, array_type, array, offset)


def alignment(array_type: Any) -> int:
    """Bytes of one entry: all that is known of where an array begins."""
    return int(array_type.dtype.bitwidth) // 8


def _advance(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """stack[level] = stack[level - 1] * table[atom], and that product."""
    stack_type, _, table_type = signature.args[:3]
    stack, level, table, atom = args[:4]
    align = alignment(stack_type)
    above = builder.sub(level, ir.Constant(level.type, 1))
    parent = builder.load(_line(context, builder, stack_type, stack, above), align=align)
    factor = builder.load(_line(context, builder, table_type, table, atom), align=align)
    product = builder.fmul(parent, factor)
    builder.store(product, _line(context, builder, stack_type, stack, level), align=align)
    return product


def _multiply_lanes(stack, level, table, atom, tile, place, weight):
    stack[level] = stack[level - 1] * table[atom]
    tile[place] = stack[level] * weight


@vectors_for(_multiply_lanes)
def multiply_lanes(typing_context, stack, level, table, atom, tile, place, weight):
    """stack[level] = stack[level - 1] * table[atom]; tile[place] = stack[level] * weight.

    All arrays are contiguous, of shape (?, LANES) and one float type, and do not overlap.
    """
    require_contiguous(stack, table, tile)
    signature = types.void(stack, types.intp, table, types.intp, tile, types.intp, tile.dtype)

    def codegen(context, builder, signature, args):
        product = _advance(context, builder, signature, args)
        tile_type, (tile, place, weight) = signature.args[4], args[4:]
        undefined = ir.Constant(product.type, ir.Undefined)
        index = ir.IntType(32)
        first = builder.insert_element(undefined, weight, ir.Constant(index, 0))
        everywhere = ir.Constant(ir.VectorType(index, LANES), [0] * LANES)
        weighted = builder.fmul(product, builder.shuffle_vector(first, undefined, everywhere))
        target = _line(context, builder, tile_type, tile, place)
        builder.store(weighted, target, align=alignment(tile_type))
        return context.get_dummy_value()

    return signature, codegen


def _add_lane_squares(stack, level, table, atom, sums, place):
    stack[level] = stack[level - 1] * table[atom]
    sums[place] += stack[level] ** 2


@vectors_for(_add_lane_squares)
def add_lane_squares(typing_context, stack, level, table, atom, sums, place):
    """stack[level] = stack[level - 1] * table[atom]; sums[place] += stack[level]^2."""
    require_contiguous(stack, table, sums)
    signature = types.void(stack, types.intp, table, types.intp, sums, types.intp)

    def codegen(context, builder, signature, args):
        product = _advance(context, builder, signature, args)
        sums_type, (sums, place) = signature.args[4], args[4:]
        target, align = _line(context, builder, sums_type, sums, place), alignment(sums_type)
        total = builder.fadd(builder.load(target, align=align), builder.fmul(product, product))
        builder.store(total, target, align=align)
        return context.get_dummy_value()

    return signature, codegen


def _write_transposed(tile, out, row, column):
    out[row : row + LANES, column : column + LANES] = tile.T


@vectors_for(_write_transposed)
def write_transposed(typing_context, tile, out, row, column):
    """out[row + b, column + t] = tile[t, b]: LANES rows and columns, transposed in registers.

    out is contiguous; its float type may be narrower than the tile's.
    """
    require_contiguous(tile, out)
    signature = types.void(tile, out, types.intp, types.intp)

    def codegen(context, builder, signature, args):
        tile_type, out_type, _, _ = signature.args
        tile, out, row, column = args
        vectors = []
        for t in range(LANES):
            source = _line(context, builder, tile_type, tile, ir.Constant(row.type, t))
            vector = builder.load(source, align=alignment(tile_type))
            if out_type.dtype != tile_type.dtype:
                narrow = ir.VectorType(context.get_data_type(out_type.dtype), LANES)
                vector = builder.fptrunc(vector, narrow)
            vectors.append(vector)
        _transpose(builder, vectors)
        shape = context.make_array(out_type)(context, builder, out).shape
        width = builder.extract_value(shape, 1)
        offset = builder.add(builder.mul(row, width), column)
        for vector in vectors:
            target = vector_pointer(context, builder, out_type, out, offset)
            builder.store(vector, target, align=alignment(out_type))
            offset = builder.add(offset, width)
        return context.get_dummy_value()

    return signature, codegen


def _transpose(builder: Any, vectors: list[Any]) -> None:
    """Transpose LANES vectors of LANES entries: swap off-diagonal blocks of size 1, 2, 4, ..."""
    lanes = range(LANES)
    block = 1
    while block < LANES:
        upper = [i if not i & block else LANES + i - block for i in lanes]
        lower = [i + block if not i & block else LANES + i for i in lanes]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), m) for m in (upper, lower)]
        for i in lanes:
            if not i & block:
                pair = vectors[i], vectors[i + block]
                vectors[i] = builder.shuffle_vector(*pair, masks[0])
                vectors[i + block] = builder.shuffle_vector(*pair, masks[1])
        block *= 2
