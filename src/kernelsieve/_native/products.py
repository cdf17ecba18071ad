"""Evaluation of products: the atoms of a block of rows, then every node of a prefix tree.

Nodes stand in depth-first order, and so do the output columns, so a stack of the current path is
all that is alive: it stays in the first-level cache. See docs/why-the-engine.md,
"Evaluation".
"""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import helper, inlined, native
from kernelsieve._native.lanes import LANES, add_lane_squares, multiply_lanes, write_transposed

POINTS = 6  # of the interpolation polynomial; no family reads more table rows for one value
CONSTANT, GAUSSIAN, EXPONENTIAL, LEVELS = range(4)  # how a column's table is read
# What a line of ``layout`` says of a column: its kind, the number of its functions, the table row
# of missing values, and where its parts begin (and end) in the flat arrays of all columns.
KIND, WIDTH, MISSING, TABLE, MATRIX = range(5)
PLACES, PLACES_END, CENTRES, CENTRES_END, TENTS, TENTS_END = range(5, 11)


@native
def atom_ranges(coordinates, ranges):
    """[first, last) atom of every coordinate, where atoms of a coordinate stand together.

    The ranges are 0 before.
    """
    for a in range(len(coordinates)):
        i = coordinates[a]
        if ranges[i, 1] == 0:
            ranges[i, 0] = a
        ranges[i, 1] = a + 1


# --- the values of a column, counted ------------------------------------------------------------


@native
def fill_cells(values, inverse_width, largest, most, numbers, low, high, counts):
    """Count values by floor(value * inverse_width) in a hash table of open addressing.

    counts is 0 where a slot is empty. Values beyond +-``largest`` count as that. Returns the number
    of missing values, or -1 if more than ``most`` cells are occupied.
    """
    mask = len(numbers) - 1
    used = 0
    missing = 0
    slot = np.int64(0)
    last = np.nan
    for value in values:
        if value == last:  # as in most rows of most columns of codes and flags
            counts[slot] += 1
            continue
        if np.isnan(value):
            missing += 1
            continue
        last = value
        value = min(max(value, -largest), largest)
        number = np.floor(value * inverse_width) + 0.0  # no negative zero
        key = np.int64(number) if abs(number) < 1e18 else np.int64(number * 1e-300 * 1e9)
        slot = ((key & 0x7FFFFFFF) * 2654435761 >> 12) & mask
        while counts[slot] > 0 and numbers[slot] != number:
            slot = (slot + 1) & mask
        if counts[slot] == 0:
            if used == most:
                return -1
            used += 1
            numbers[slot] = number
            low[slot] = value
            high[slot] = value
        else:
            low[slot] = min(low[slot], value)
            high[slot] = max(high[slot], value)
        counts[slot] += 1
    return missing


# --- atoms of monomials ---------------------------------------------------------------------------


@native
def power_table(lines, coordinate, order, out):
    """out[a, b] = lines[coordinate[a], b]^order[a] / sqrt(order[a]!).

    Atoms of one coordinate stand together with rising orders, so each starts from the last.
    """
    size = lines.shape[1]
    for a in range(len(coordinate)):
        i = coordinate[a]
        if a > 0 and coordinate[a - 1] == i:
            done = order[a - 1]
            for b in range(size):
                out[a, b] = out[a - 1, b]
        else:
            done = 1
            for b in range(size):
                out[a, b] = lines[i, b]
        for k in range(done + 1, order[a] + 1):
            factor = out.dtype.type(1.0 / np.sqrt(k))
            for b in range(size):
                out[a, b] *= lines[i, b] * factor


# --- atoms of local functions, from tables --------------------------------------------------------


@helper
def place_of(u, places, first, last):
    """The first of the rising places[first:last] that is > u; ``last`` if there is none."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if places[middle] <= u:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def interpolation_rows(line, step, firsts, first, last, first_rows, n_rows, missing, rows, weights):
    """Six rows of a patch of equal steps around each value, and the weights of their polynomial.

    Patch p from ``first`` to ``last`` holds the values at firsts[p] + j * step, j < n_rows[p], in
    rows from first_rows[p]. rows[b] = -1 where no patch holds the value.
    """
    inverse = 1.0 / step
    for b in range(len(line)):
        u = np.float64(line[b])
        patch = place_of(u, firsts, first, last) - 1
        position = (u - firsts[patch]) * inverse if patch >= first else -1.0
        if not (position >= 2.0 and position <= n_rows[patch] - 4.0):
            for p in range(POINTS):
                weights[p, b] = 0.0
            rows[b] = -1
            if np.isnan(u):
                rows[b] = missing
                weights[0, b] = 1.0
            continue
        cell = np.int64(position)
        rows[b] = first_rows[patch] + cell - 2
        z = position - cell
        m2, m1, p1, p2, p3 = z + 2.0, z + 1.0, z - 1.0, z - 2.0, z - 3.0
        weights[0, b] = m1 * z * p1 * p2 * p3 * (-1.0 / 120.0)
        weights[1, b] = m2 * z * p1 * p2 * p3 * (1.0 / 24.0)
        weights[2, b] = m2 * m1 * p1 * p2 * p3 * (-1.0 / 12.0)
        weights[3, b] = m2 * m1 * z * p2 * p3 * (1.0 / 12.0)
        weights[4, b] = m2 * m1 * z * p1 * p3 * (-1.0 / 24.0)
        weights[5, b] = m2 * m1 * z * p1 * p2 * (1.0 / 120.0)


@helper
def exponential_rows(line, decay, width, knots, first, last, missing, rows, weights):
    """2 width rows for each value: exponentials from the knots on both sides, times powers.

    Between knots a and b, and beyond the outermost, the functions are exactly
    sum_p row_p (u - a)^p exp(-decay (u - a)) + sum_p row_(width + p) (b - u)^p exp(...).
    """
    for b in range(len(line)):
        u = np.float64(line[b])
        if np.isnan(u):
            rows[b] = missing
            for p in range(2 * width):
                weights[p, b] = 0.0
            weights[0, b] = 1.0
            continue
        place = place_of(u, knots, first, last)
        rows[b] = 2 * width * (place - first)
        left = u - knots[place - 1] if place > first else np.inf
        right = knots[place] - u if place < last else np.inf
        left_part, right_part = np.exp(-decay * left), np.exp(-decay * right)
        for p in range(width):
            weights[p, b] = left_part
            weights[width + p, b] = right_part
            left_part = left_part * left if left_part > 0.0 else 0.0
            right_part = right_part * right if right_part > 0.0 else 0.0


@helper
def level_rows(line, levels, first, last, missing, rows, weights):
    """The row of each value's level; the row after the levels where it is none of them."""
    for b in range(len(line)):
        u = np.float64(line[b])
        weights[0, b] = 1.0
        if np.isnan(u):
            rows[b] = missing
        else:
            place = place_of(u, levels, first, last) - 1
            known = place >= first and levels[place] == u
            rows[b] = place - first if known else last - first


@inlined
def table_rows(line, column, setting, step, places, first_rows, n_rows):
    """The first table row of each value of a column, and the weights of it and those after it.

    ``column`` is its line of the layout. ``setting`` are the decay and the degree of exponentials;
    None where no column but Gaussian ones has a table.
    """
    kind, missing, first, last = column[KIND], column[MISSING], column[PLACES], column[PLACES_END]
    rows = np.empty(len(line), dtype=np.int64)
    width = np.int64(POINTS)
    if setting is not None:
        if kind == LEVELS:
            width = np.int64(1)
        if kind == EXPONENTIAL:
            width = 2 * (np.int64(setting[1]) + 1)
    weights = np.empty((width, len(line)))
    if setting is not None:
        if kind == LEVELS:
            level_rows(line, places, first, last, missing, rows, weights)
        if kind == EXPONENTIAL:
            half = width // 2
            exponential_rows(line, setting[0], half, places, first, last, missing, rows, weights)
    if kind == GAUSSIAN:
        interpolation_rows(
            line, step, places, first, last, first_rows, n_rows, missing, rows, weights
        )
    return rows, weights


@helper
def combine_rows(rows, weights, table, start, width, out):
    """out[k, b] = sum_p weights[p, b] table[start + (rows[b] + p) width + k], for k < width."""
    stride = np.uint64(width)  # unsigned: compiled code need not look for places before the start
    for k in range(width):
        for b in range(len(rows)):
            total, entry = 0.0, np.uint64(start + rows[b] * width + k)
            for p in range(weights.shape[0]):
                total += weights[p, b] * table[entry]
                entry += stride
            out[k, b] = total


@inlined
def combine_six(rows, weights, table, start, width, out):
    """``combine_rows`` for six rows: runs in lanes. Where rows[b] < 0 the value means nothing."""
    stride, four = np.uint64(width), np.uint64(4 * width)
    for k in range(width):
        for b in range(len(rows)):
            entry = np.uint64(start + max(rows[b], 0) * width + k)
            second = entry + stride
            third = second + stride
            out[k, b] = (
                weights[0, b] * table[entry]
                + weights[1, b] * table[second]
                + weights[2, b] * table[third]
                + weights[3, b] * table[third + stride]
                + weights[4, b] * table[entry + four]
                + weights[5, b] * table[second + four]
            )


@helper
def exact_gaussian(u, reach, points, first, last, matrix, start, width, out):
    """out[k] = sum_g exp(-(u - g)^2) matrix[g, k] over the points within ``reach``, k < width.

    The points are points[first:last]; the matrix is flat, from ``start``.
    """
    for k in range(width):
        out[k] = 0.0
    g = place_of(u - reach, points, first, last)
    while g < last and points[g] <= u + reach:
        kernel = np.exp(-(u - points[g]) * (u - points[g]))
        for k in range(width):
            out[k] += kernel * matrix[start + (g - first) * width + k]
        g += 1


@native
def exact_gaussians(values, reach, points, matrix, out):
    """``exact_gaussian`` of each value, in its row of ``out``."""
    flat, first = matrix.ravel(), np.int64(0)
    for b in range(len(values)):
        exact_gaussian(
            values[b], reach, points, first, len(points), flat, first, out.shape[1], out[b]
        )


@native
def tent(u, left, right):
    """The tent on (left, right): sqrt(2 / sinh L) sinh(min(u - left, right - u)), else 0."""
    side = min(u - left, right - u)
    if not side > 0.0:
        return 0.0
    length = right - left
    return np.exp(side - 0.5 * length) * np.expm1(-2.0 * side) / -np.sqrt(-np.expm1(-2.0 * length))


# --- the functions of a column -------------------------------------------------------------------
#
# ``layout`` says where the parts of each column are. ``settings`` is None where all columns are
# Gaussian or constant: then the code for other families, which takes a second, is not compiled.
# ``parts`` are the step of the Gaussian tables and the reach of the Gaussian, the places, first
# rows and numbers of rows of all patches, the tables, and the points and matrices of exact sums.


@native
def write_values(line, column, setting, parts, tents, out):
    """out[k, b] = e_k(line[b]) of a column, for its functions in use, then for its tents."""
    step, reach, places, first_rows, n_rows, tables, points, matrices = parts
    size, kind, width = len(line), column[KIND], column[WIDTH]
    if kind == CONSTANT:
        for b in range(size):
            out[0, b] = 1.0
        return
    rows, weights = table_rows(line, column, setting, step, places, first_rows, n_rows)
    if kind == GAUSSIAN:
        combine_six(rows, weights, tables, column[TABLE], width, out)
        exact = np.empty(width)
        for b in range(size):
            if rows[b] < 0:
                u = np.float64(line[b])
                first, last, start = column[CENTRES], column[CENTRES_END], column[MATRIX]
                exact_gaussian(u, reach, points, first, last, matrices, start, width, exact)
                for k in range(width):
                    out[k, b] = exact[k]
        return
    if setting is not None:
        combine_rows(rows, weights, tables, column[TABLE], width, out)
        for j in range(column[TENTS], column[TENTS_END]):
            k = width + j - column[TENTS]
            for b in range(size):
                out[k, b] = tent(np.float64(line[b]), tents[j, 0], tents[j, 1])


@native
def local_atoms(
    lines,
    coordinates,
    layout,
    settings,
    parts,
    tents,
    atom_coordinates,
    slots,
    smallest,
    smallest_root,
    ranges,
    values,
    table,
    roots,
):
    """Ratios e_k / e_0 of all atoms, and the product of e_0 over all coordinates, for a block.

    Line l holds coordinate coordinates[l]. ``values`` is room for the functions of one coordinate,
    ``ranges`` for [first, last) atom of each.
    e_0 may vanish: it is held above ``smallest``, which changes no feature by more than that, and
    the root above ``smallest_root``, so that it can be divided by.
    """
    size = lines.shape[1]
    atom_ranges(atom_coordinates, ranges)
    for b in range(size):
        roots[b] = 1.0
    for number in range(len(coordinates)):
        i = coordinates[number]
        setting = None if settings is None else settings[i]
        write_values(lines[number], layout[i], setting, parts, tents, values)
        for b in range(size):
            floor = max(smallest, smallest_root / abs(roots[b]))
            if not abs(values[0, b]) >= floor:
                values[0, b] = floor
            roots[b] *= values[0, b]
        first, last = ranges[i, 0], ranges[i, 1]
        if first < last:
            for b in range(size):
                values[0, b] = 1.0 / values[0, b]
            for a in range(first, last):
                for b in range(size):
                    table[a, b] = values[slots[a], b] * values[0, b]


@native
def sparse_ratios(values, indptr, smallest, smallest_root, roots):
    """Divide the functions of each entry by its first, in place; roots are products of the first.

    As in ``local_atoms``, neither vanishes: a value so small changes no feature.
    """
    for row in range(len(roots)):
        root = 1.0
        for entry in range(indptr[row], indptr[row + 1]):
            floor = max(smallest, smallest_root / abs(root))
            ground = values[entry, 0]
            if not abs(ground) >= floor:
                ground = floor
            root *= ground
            for k in range(values.shape[1]):
                values[entry, k] /= ground
        roots[row] = root


# --- products along a prefix tree -----------------------------------------------------------------


@inlined
def copy_lanes(table, root, first, size, atoms, stack):
    """The atoms and the root of ``size`` rows, and 0 in the lanes beyond them.

    In loops, which compile in a tenth of a slice's time.
    """
    for a in range(len(table)):
        for b in range(size):
            atoms[a, b] = table[a, first + b]
        for b in range(size, LANES):
            atoms[a, b] = 0.0
    for b in range(size):
        stack[0, b] = root[first + b]
    for b in range(size, LANES):
        stack[0, b] = 0.0


@native
def evaluate_rows(table, root, depth, atom, columns, weight, max_depth, out):
    """Row-major features: out[b, columns[node]] = weight[node] * product of the path's atoms.

    table : (n_atoms, B); root : (B,); nodes with columns[node] < 0 are only passed through;
    columns rise with the nodes. out : (B, n_components).
    """
    # The atoms of LANES rows side by side: a stride of B would put them all in few cache sets.
    atoms = np.empty((len(table), LANES), dtype=table.dtype)
    stack = np.empty((max_depth + 1, LANES), dtype=table.dtype)
    tile = np.empty((LANES, LANES), dtype=table.dtype)
    for first in range(0, len(root), LANES):
        size = min(LANES, len(root) - first)
        copy_lanes(table, root, first, size, atoms, stack)
        column = 0
        gathered = 0
        for node in range(len(depth)):
            if depth[node] > 0:
                multiply_lanes(stack, depth[node], atoms, atom[node], tile, gathered, weight[node])
            else:
                for b in range(LANES):
                    tile[gathered, b] = stack[0, b] * weight[node]
            if columns[node] >= 0:
                gathered += 1
            if gathered == LANES and size == LANES:
                write_transposed(tile, out, first, column)
            elif gathered == LANES or node == len(depth) - 1:
                for b in range(size):  # the last rows or columns, fewer than a tile has
                    for t in range(gathered):
                        out[first + b, column + t] = tile[t, b]
            else:
                continue
            column += gathered
            gathered = 0


@native
def add_squared_norms(table, root, depth, atom, columns, weight, max_depth, out):
    """out[columns[node]] += sum over the rows of the squared feature."""
    atoms = np.empty((len(table), LANES), dtype=table.dtype)
    stack = np.empty((max_depth + 1, LANES), dtype=table.dtype)
    sums = np.empty((len(depth), LANES), dtype=table.dtype)
    for node in range(len(depth)):
        for b in range(LANES):
            sums[node, b] = 0.0
    for first in range(0, len(root), LANES):
        size = min(LANES, len(root) - first)
        copy_lanes(table, root, first, size, atoms, stack)
        for b in range(LANES):
            sums[0, b] += stack[0, b] * stack[0, b]
        for node in range(1, len(depth)):
            add_lane_squares(stack, depth[node], atoms, atom[node], sums, node)
    for node in range(len(depth)):
        if columns[node] >= 0:
            total = np.float64(0.0)
            for b in range(LANES):
                total += sums[node, b]
            out[columns[node]] += total * weight[node] * weight[node]
