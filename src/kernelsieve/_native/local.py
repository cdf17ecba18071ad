"""Local one-dimensional bases: cells of values, and look-up of their functions in tables."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import helper, native

POINTS = 6  # of the interpolation polynomial; no family reads more table rows for one value
CONSTANT, GAUSSIAN, EXPONENTIAL, LEVELS = range(4)  # how a column's table is read
# What a line of ``layout`` says of a column: its kind, the number of its functions, the table row
# of missing values, and where its parts begin (and end) in the flat arrays of all columns.
KIND, WIDTH, MISSING, TABLE, MATRIX = range(5)
PLACES, PLACES_END, CENTRES, CENTRES_END, TENTS, TENTS_END = range(5, 11)


@native
def fill_cells(values, inverse_width, most, numbers, low, high, counts):
    """Count values by floor(value * inverse_width) in a hash table of open addressing.

    counts is 0 where a slot is empty. Returns the number of missing values, or -1 if more than
    ``most`` cells are occupied.
    """
    mask = len(numbers) - 1
    used = 0
    missing = 0
    for value in values:
        if np.isnan(value):
            missing += 1
            continue
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


@helper
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


@helper
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
    for k in range(width):
        for b in range(len(rows)):
            total = 0.0
            for p in range(weights.shape[0]):
                total += weights[p, b] * table[start + (rows[b] + p) * width + k]
            out[k, b] = total


@helper
def combine_six(rows, weights, table, start, width, out):
    """``combine_rows`` for six rows: runs in lanes. Where rows[b] < 0 the value means nothing."""
    for k in range(width):
        for b in range(len(rows)):
            entry = start + max(rows[b], 0) * width + k
            out[k, b] = (
                weights[0, b] * table[entry]
                + weights[1, b] * table[entry + width]
                + weights[2, b] * table[entry + 2 * width]
                + weights[3, b] * table[entry + 3 * width]
                + weights[4, b] * table[entry + 4 * width]
                + weights[5, b] * table[entry + 5 * width]
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


@helper
def write_values(
    line,
    column,
    setting,
    step,
    reach,
    places,
    first_rows,
    n_rows,
    tables,
    points,
    matrices,
    tents,
    out,
):
    """out[k, b] = e_k(line[b]) of a column, for its functions in use, then for its tents."""
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
def column_values(
    line,
    i,
    layout,
    settings,
    step,
    reach,
    places,
    first_rows,
    n_rows,
    tables,
    points,
    matrices,
    tents,
    out,
):
    """out[k, b] = e_k(line[b]) of column i, for its functions in use, then for its tents."""
    setting = None if settings is None else settings[i]
    write_values(
        line,
        layout[i],
        setting,
        step,
        reach,
        places,
        first_rows,
        n_rows,
        tables,
        points,
        matrices,
        tents,
        out,
    )


@native
def column_squares(
    line,
    i,
    layout,
    settings,
    step,
    reach,
    places,
    first_rows,
    n_rows,
    tables,
    points,
    matrices,
    has_tents,
    first,
    squares,
):
    """squares[b, first + k] = e_k(line[b])^2 of column i; last the sum over all its tents."""
    column = layout[i]
    width = column[WIDTH]
    if column[KIND] == CONSTANT:
        for b in range(len(line)):
            squares[b, first] = 1.0
        return
    setting = None if settings is None else settings[i]
    rows, weights = table_rows(line, column, setting, step, places, first_rows, n_rows)
    values = np.empty(width)
    for b in range(len(line)):
        u = np.float64(line[b])
        if rows[b] < 0:
            begin, end, start = column[CENTRES], column[CENTRES_END], column[MATRIX]
            exact_gaussian(u, reach, points, begin, end, matrices, start, width, values)
        else:
            for k in range(width):
                values[k] = 0.0
            for p in range(weights.shape[0]):
                weight, entry = weights[p, b], column[TABLE] + (rows[b] + p) * width
                for k in range(width):
                    values[k] += weight * tables[entry + k]
        left = 1.0
        for k in range(width):
            square = values[k] * values[k]
            squares[b, first + k] = square
            left -= square
        if has_tents:  # they end with the knots, and a missing value has none
            between = places[column[PLACES]] < u < places[column[PLACES_END] - 1]
            squares[b, first + width] = max(0.0, left) if between else 0.0


@native
def local_atoms(
    lines,
    coordinates,
    layout,
    settings,
    step,
    reach,
    places,
    first_rows,
    n_rows,
    tables,
    points,
    matrices,
    tents,
    atom_ranges,
    slots,
    smallest,
    smallest_root,
    values,
    table,
    roots,
):
    """Ratios e_k / e_0 of all atoms, and the product of e_0 over all coordinates, for a block.

    Line l holds coordinate coordinates[l]. ``values`` is room for the functions of one coordinate.
    e_0 may vanish: it is held above ``smallest``, which changes no feature by more than that, and
    the root above ``smallest_root``, so that it can be divided by.
    """
    size = lines.shape[1]
    for b in range(size):
        roots[b] = 1.0
    for number in range(len(coordinates)):
        i = coordinates[number]
        setting = None if settings is None else settings[i]
        write_values(
            lines[number],
            layout[i],
            setting,
            step,
            reach,
            places,
            first_rows,
            n_rows,
            tables,
            points,
            matrices,
            tents,
            values,
        )
        for b in range(size):
            floor = max(smallest, smallest_root / abs(roots[b]))
            if not abs(values[0, b]) >= floor:
                values[0, b] = floor
            roots[b] *= values[0, b]
        first, last = atom_ranges[i, 0], atom_ranges[i, 1]
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


@native
def descend(u, knots, most_levels, rng):
    """The number of a tent drawn in proportion to its square at u; -1 where all of them are 0."""
    interval = place_of(u, knots, np.int64(0), len(knots)) - 1
    n_intervals = len(knots) - 1
    if interval < 0 or interval >= n_intervals:
        return -1
    start, length = knots[interval], knots[interval + 1] - knots[interval]
    ends = np.expm1(-2.0 * (u - start)) * np.expm1(-2.0 * (start + length - u))
    target = rng.random() * ends / -np.expm1(-2.0 * length)
    place, width = 0, 1.0
    node = 1
    for _ in range(most_levels - 1):
        left, right = start + place * width * length, start + (place + 1) * width * length
        target -= tent(u, left, right) ** 2
        if target < 0.0:
            break
        side = 1 if u >= start + (place + 0.5) * width * length else 0
        place, width, node = 2 * place + side, 0.5 * width, 2 * node + side
    return interval + n_intervals * (node - 1)


@native
def wander(cumulative, most_levels, rng):
    """The number of a tent: an interval by its mass, then each level with half of what is left."""
    n_intervals = len(cumulative)
    target = rng.random() * cumulative[-1]
    interval = min(place_of(target, cumulative, np.int64(0), n_intervals), n_intervals - 1)
    level = 0
    while level < most_levels - 1 and rng.random() < 0.5:
        level += 1
    first = 1 << level
    node = first + np.int64(rng.random() * first)
    return interval + n_intervals * (node - 1)


@native
def draw_tents(
    rows,
    points,
    ends,
    coordinates,
    orders,
    n_functions,
    knots,
    knot_starts,
    masses,
    first_tent,
    most_levels,
    words,
    rng,
    hashes,
):
    """Replace orders that only say "a tent" (n_functions[i]) by those of tents, in place.

    Draw k comes from row rows[k] of ``points``; a number beyond its rows stands for the marginals.
    ``masses`` are cumulative in each coordinate, in the places of its knots.
    """
    atom = 0
    for k in range(len(ends)):
        while atom < ends[k]:
            i = coordinates[atom]
            start, stop = knot_starts[i], knot_starts[i + 1]
            if stop > start and orders[atom] == n_functions[i]:
                number = -1
                if rows[k] < points.shape[0]:
                    number = descend(points[rows[k], i], knots[start:stop], most_levels, rng)
                if number < 0:
                    number = wander(masses[start : stop - 1], most_levels, rng)
                order = first_tent + number
                hashes[k] += np.uint64(order - orders[atom]) * words[i]
                orders[atom] = order
            atom += 1
