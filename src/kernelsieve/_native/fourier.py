"""Cosines and sines of angles, and the angles that random rotations give.

An angle is reduced by the nearest multiple k of pi, in three parts whose products with k are exact,
to |r| <= pi / 2. There two short polynomials give both functions; (-1)^k is the sign of both.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import overload

from kernelsieve._native._options import native, reduction, require_contiguous, vectors_for
from kernelsieve._native.hadamard import hadamard_inplace
from kernelsieve._native.lanes import LANES, alignment, vector_pointer

# --- cosine and sine -----------------------------------------------------------------------------

# Larger angles have a k with too many digits for exact products: they are left to the C library.
LARGEST_32 = 1e4
LARGEST_64 = 1e6

# pi cut after 10 and 22 (30 and 62) binary places, and what is left of it.
PI_32 = (3.140625, 0.0009675025939941406, 1.5099579909783765e-07)
PI_64 = (3.1415926534682512, 1.21542009963449e-10, 1.6667485837041758e-19)

# (sin r - r) / r^3 and (cos r - 1) / r^2 as polynomials in r^2, the highest power first:
# interpolation at Chebyshev's nodes of |r| <= pi / 2, with errors below 1e-9 and 2e-17.
SINE_32 = (
    -2.40800950871220784e-08,
    2.75364594436460914e-06,
    -1.98410865070005693e-04,
    8.33333276852935879e-03,
    -1.66666666638798505e-01,
)
COSINE_32 = (
    -2.62973941962334653e-07,
    2.47745744217466598e-05,
    -1.38886515768456590e-03,
    4.16666593571264135e-02,
    -4.99999999639351156e-01,
)
SINE_64 = (
    2.73143687693798930e-15,
    -7.64396966398807389e-13,
    1.60589772926427431e-10,
    -2.50521076166904495e-08,
    2.75573192191608329e-06,
    -1.98412698412549660e-04,
    8.33333333333331587e-03,
    -1.66666666666666657e-01,
)
COSINE_64 = (
    4.62766103800516932e-14,
    -1.14646886869010123e-11,
    2.08766308298721996e-09,
    -2.75573177667413214e-07,
    2.48015872924416632e-05,
    -1.38888888888606937e-03,
    4.16666666666663382e-02,
    -5.00000000000000000e-01,
)


def _multiply_add(a, b, c):
    return a * b + c


@vectors_for(_multiply_add)
def multiply_add(typing_context, a, b, c):
    """a b + c, in one instruction where the machine has it."""

    def codegen(context, builder, signature, args):
        number = args[0].type
        function = ir.FunctionType(number, [number] * 3)
        fused = builder.module.declare_intrinsic("llvm.fmuladd", [number], function)
        return builder.call(fused, args)

    return a(a, a, a), codegen


@native
def polynomial(t, coefficients):
    """Horner's scheme."""
    value = coefficients[0]
    for coefficient in coefficients[1:]:
        value = multiply_add(t, value, coefficient)
    return value


def cosine_sine(angle: Any) -> Any:
    """cos(angle) and sin(angle), with absolute errors below 2e-7 (float32) and 1e-15 (float64)."""
    return _cosine_sine_in(isinstance(angle, np.float32))(angle)


@overload(cosine_sine)
def _cosine_sine(angle):
    return _cosine_sine_in(angle == types.float32)


def _cosine_sine_in(single: bool) -> Any:
    number = np.float32 if single else np.float64
    high, middle, low = (number(part) for part in (PI_32 if single else PI_64))
    sine = tuple(number(c) for c in (SINE_32 if single else SINE_64))
    cosine = tuple(number(c) for c in (COSINE_32 if single else COSINE_64))
    inverse, half, one, four = (number(c) for c in (1.0 / math.pi, 0.5, 1.0, 4.0))

    def implementation(angle):
        k = np.rint(angle * inverse)
        r: Any = multiply_add(-k, low, multiply_add(-k, middle, multiply_add(-k, high, angle)))
        turns = k * half
        sign = one - four * abs(turns - np.rint(turns))  # an odd k leaves a half
        t = r * r
        cosine_of_r = multiply_add(t, polynomial(t, cosine), one)
        sine_of_r = multiply_add(r * t, polynomial(t, sine), r)
        return sign * cosine_of_r, sign * sine_of_r

    return implementation


@reduction
def squares(line):
    total = line.dtype.type(0)
    for j in range(len(line)):
        total += line[j] * line[j]
    return total


@native
def largest_angle(line):
    return LARGEST_32 if line.itemsize == 4 else LARGEST_64


@native
def write_pairs(angles, weights, out, first, sines):
    """out[r, first + j] and out[r, sines + j] = weights[j] times cos and sin of angles[r, j].

    There may be more angles than weights. Returns the first row with an angle that is not finite,
    or -1.
    """
    count = len(weights)
    for r in range(angles.shape[0]):
        line = angles[r, :count]
        targets = out[r, first : first + count], out[r, sines : sines + count]
        moderate_pairs(line, weights, *targets)
        # One sum says for nearly all rows that no angle was too large; NaN says nothing.
        if not squares(line) <= largest_angle(line) ** 2 and not large_pairs(
            line, weights, *targets
        ):
            return r
    return -1


@native
def moderate_pairs(line, weights, cosines, sines):
    for j in range(len(line)):
        cosine, sine = cosine_sine(line[j])
        cosines[j] = weights[j] * cosine
        sines[j] = weights[j] * sine


@native
def large_pairs(line, weights, cosines, sines):
    """Write again what `moderate_pairs` got wrong; False if there is no right."""
    for j in range(len(line)):
        if not abs(line[j]) <= largest_angle(line):
            if not math.isfinite(line[j]):
                return False
            cosines[j] = weights[j] * math.cos(line[j])
            sines[j] = weights[j] * math.sin(line[j])
    return True


@native
def write_waves(angles, skip, phases, weights, out, first):
    """out[r, first + j] = weights[j] cos(angles[r, skip + j] + phases[j]), as `write_pairs`."""
    count = len(weights)
    for r in range(angles.shape[0]):
        line, target = angles[r, skip : skip + count], out[r, first : first + count]
        moderate_waves(line, phases, weights, target)
        if not squares(line) <= largest_angle(line) ** 2 and not large_waves(
            line, phases, weights, target
        ):
            return r
    return -1


@native
def moderate_waves(line, phases, weights, cosines):
    for j in range(len(line)):
        cosine, _ = cosine_sine(line[j] + phases[j])
        cosines[j] = weights[j] * cosine


@native
def large_waves(line, phases, weights, cosines):
    for j in range(len(line)):
        if not abs(line[j]) <= largest_angle(line):
            if not math.isfinite(line[j]):
                return False
            cosines[j] = weights[j] * math.cos(line[j] + phases[j])
    return True


# --- random rotations ----------------------------------------------------------------------------


def _turn_lanes(entries, offset, turns, place):
    lanes = np.arange(LANES)
    vector, stride = entries[offset : offset + LANES].copy(), 1
    while stride < LANES:
        own, other = turns[place : place + 2 * LANES].reshape(2, LANES)
        vector = vector * own + vector[lanes ^ stride] * other
        place, stride = place + 2 * LANES, 2 * stride
    entries[offset : offset + LANES] = vector


@vectors_for(_turn_lanes)
def turn_lanes(typing_context, entries, offset, turns, place):
    """Rotations between the LANES entries from ``offset`` on, at strides 1, 2, 4, 8.

    Each stride has two vectors in ``turns``, from ``place`` on: the factors of an entry itself and
    of the entry that it is turned with.
    """
    require_contiguous(entries, turns)
    signature = types.void(entries, types.intp, turns, types.intp)

    def codegen(context, builder, signature, args):
        (entries_type, _, turns_type, _), (entries, offset, turns, place) = signature.args, args
        align = alignment(entries_type)
        target = vector_pointer(context, builder, entries_type, entries, offset)
        vector = builder.load(target, align=align)
        undefined = ir.Constant(vector.type, ir.Undefined)
        stride = 1
        while stride < LANES:
            factors = []
            for _ in range(2):
                pointer = vector_pointer(context, builder, turns_type, turns, place)
                factors.append(builder.load(pointer, align=align))
                place = builder.add(place, ir.Constant(place.type, LANES))
            mask = ir.Constant(
                ir.VectorType(ir.IntType(32), LANES), [i ^ stride for i in range(LANES)]
            )
            swapped = builder.shuffle_vector(vector, undefined, mask)
            vector = builder.fadd(
                builder.fmul(vector, factors[0]), builder.fmul(swapped, factors[1])
            )
            stride *= 2
        builder.store(vector, target, align=align)
        return context.get_dummy_value()

    return signature, codegen


def _turn_vectors(entries, offset, stride, cosine, sine):
    first, second = (slice(start, start + LANES) for start in (offset, offset + stride))
    a, b = entries[first].copy(), entries[second].copy()
    entries[first], entries[second] = cosine * a - sine * b, sine * a + cosine * b


@vectors_for(_turn_vectors)
def turn_vectors(typing_context, entries, offset, stride, cosine, sine):
    """Rotations between LANES entries from ``offset`` on and those a ``stride`` further."""
    require_contiguous(entries)
    number = entries.dtype
    signature = types.void(entries, types.intp, types.intp, number, number)

    def codegen(context, builder, signature, args):
        entries_type, (entries, offset, stride, cosine, sine) = signature.args[0], args
        align = alignment(entries_type)
        place = builder.add(offset, stride)
        pointers = [
            vector_pointer(context, builder, entries_type, entries, start)
            for start in (offset, place)
        ]
        a, b = (builder.load(pointer, align=align) for pointer in pointers)
        undefined = ir.Constant(a.type, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)

        def everywhere(value):
            first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(first, undefined, zeros)

        c, s = everywhere(cosine), everywhere(sine)
        turned = [
            builder.fsub(builder.fmul(c, a), builder.fmul(s, b)),
            builder.fadd(builder.fmul(s, a), builder.fmul(c, b)),
        ]
        for vector, pointer in zip(turned, pointers, strict=True):
            builder.store(vector, pointer, align=align)
        return context.get_dummy_value()

    return signature, codegen


@native
def turn_inplace(line, fine, coarse):
    """A tree of rotations: of neighbours, then of neighbouring pairs, and so on.

    ``fine`` holds the vectors of `turn_lanes`, ``coarse`` one cosine and sine for each node at the
    strides LANES, 2 LANES, ...
    """
    width = len(line)
    for offset in range(0, width, LANES):
        turn_lanes(line, offset, fine, offset * (len(fine) // width))
    node, stride = 0, LANES
    while stride < width:
        for start in range(0, width, 2 * stride):
            for offset in range(start, start + stride, LANES):
                turn_vectors(line, offset, stride, coarse[node, 0], coarse[node, 1])
            node += 1
        stride *= 2


@native
def structured_angles(X, signs, fine, coarse, lengths, out):
    """out[r, b, i] = lengths[b, i] (R_b H D_b x_r)_i for the rows x_r filled up with zeros.

    D_b are signs, H the Hadamard matrix, R_b the rotations of `turn_inplace`.
    """
    n_features = X.shape[1]
    width = out.shape[2]
    for b in range(out.shape[1]):
        for r in range(out.shape[0]):
            line = out[r, b]
            row, sign, length = X[r], signs[b], lengths[b]
            for i in range(n_features):
                line[i] = row[i] * sign[i]
            line[n_features:] = 0
            hadamard_inplace(line.reshape((1, width)))
            turn_inplace(line, fine[b], coarse[b])
            for i in range(width):
                line[i] *= length[i]
