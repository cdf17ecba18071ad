"""Local one-dimensional bases: cells of values, and look-up of their functions in tables."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native

POINTS = 6  # of the interpolation polynomial; no family reads more table rows for one value
CONSTANT, GAUSSIAN, EXPONENTIAL, LEVELS = range(4)  # how a column's table is read


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


@native
def place_of(u, places):
    """The number of places <= u."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if places[middle] <= u:
            low = middle + 1
        else:
            high = middle
    return low


@native
def interpolation_rows(line, step, firsts, first_rows, n_rows, missing_row, rows, weights):
    """Six rows of a patch of equal steps around each value, and the weights of their polynomial.

    Patch p holds the values at firsts[p] + j * step, j < n_rows[p], in rows from first_rows[p].
    rows[b] = -1 where no patch holds the value.
    """
    inverse = 1.0 / step
    for b in range(len(line)):
        u = np.float64(line[b])
        if np.isnan(u):
            rows[b] = missing_row
            weights[:, b] = 0.0
            weights[0, b] = 1.0
            continue
        patch = place_of(u, firsts) - 1
        position = (u - firsts[patch]) * inverse if patch >= 0 else -1.0
        if not 2.0 <= position <= n_rows[max(patch, 0)] - 4.0:
            rows[b] = -1
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


@native
def exponential_rows(line, decay, degree, knots, missing_row, rows, weights):
    """2 (degree + 1) rows for each value: exponentials from the knots on both sides, times powers.

    Between knots a and b, and beyond the outermost, the functions are exactly
    sum_p row_p (u - a)^p exp(-decay (u - a)) + sum_p row_(degree + 1 + p) (b - u)^p exp(...).
    """
    width = degree + 1
    for b in range(len(line)):
        u = np.float64(line[b])
        if np.isnan(u):
            rows[b] = missing_row
            weights[:, b] = 0.0
            weights[0, b] = 1.0
            continue
        interval = place_of(u, knots)
        rows[b] = 2 * width * interval
        left = u - knots[interval - 1] if interval > 0 else np.inf
        right = knots[interval] - u if interval < len(knots) else np.inf
        left_part, right_part = np.exp(-decay * left), np.exp(-decay * right)
        for p in range(width):
            weights[p, b] = left_part
            weights[width + p, b] = right_part
            left_part = left_part * left if left_part > 0.0 else 0.0
            right_part = right_part * right if right_part > 0.0 else 0.0


@native
def level_rows(line, levels, missing_row, rows, weights):
    """The row of each value's level; the row after the levels where it is none of them."""
    for b in range(len(line)):
        u = np.float64(line[b])
        weights[0, b] = 1.0
        if np.isnan(u):
            rows[b] = missing_row
        else:
            place = place_of(u, levels) - 1
            rows[b] = place if place >= 0 and levels[place] == u else len(levels)


@native
def table_rows(line, kind, step, decay, degree, places, first_rows, n_rows, missing_row):
    """The first table row of each value, and the weights of it and those after it."""
    rows = np.empty(len(line), dtype=np.int64)
    width = POINTS if kind == GAUSSIAN else 1 if kind == LEVELS else 2 * (degree + 1)
    weights = np.zeros((width, len(line)))
    if kind == GAUSSIAN:
        interpolation_rows(line, step, places, first_rows, n_rows, missing_row, rows, weights)
    elif kind == LEVELS:
        level_rows(line, places, missing_row, rows, weights)
    else:
        exponential_rows(line, decay, degree, places, missing_row, rows, weights)
    return rows, weights


@native
def combine_rows(rows, weights, table, out):
    """out[k, b] = sum_p weights[p, b] table[rows[b] + p, k]."""
    for k in range(table.shape[1]):
        for b in range(len(rows)):
            total = 0.0
            if rows[b] >= 0:
                for p in range(weights.shape[0]):
                    total += weights[p, b] * table[rows[b] + p, k]
            out[k, b] = total


@native
def combine_six(rows, weights, table, out):
    """``combine_rows`` for six rows: runs in lanes."""
    for k in range(table.shape[1]):
        for b in range(len(rows)):
            row = max(rows[b], 0)
            out[k, b] = (
                weights[0, b] * table[row, k]
                + weights[1, b] * table[row + 1, k]
                + weights[2, b] * table[row + 2, k]
                + weights[3, b] * table[row + 3, k]
                + weights[4, b] * table[row + 4, k]
                + weights[5, b] * table[row + 5, k]
            )


@native
def exact_gaussian(u, reach, points, matrix, out):
    """out[k] = sum_g exp(-(u - g)^2) matrix[g, k] over the points within ``reach``."""
    out[:] = 0.0
    g = place_of(u - reach, points)
    while g < len(points) and points[g] <= u + reach:
        kernel = np.exp(-(u - points[g]) * (u - points[g]))
        for k in range(len(out)):
            out[k] += kernel * matrix[g, k]
        g += 1


@native
def exact_gaussians(values, reach, points, matrix, out):
    """``exact_gaussian`` of each value, in its row of ``out``."""
    for b in range(len(values)):
        exact_gaussian(values[b], reach, points, matrix, out[b])


@native
def tent(u, left, right):
    """The tent on (left, right): sqrt(2 / sinh L) sinh(min(u - left, right - u)), else 0."""
    side = min(u - left, right - u)
    if not side > 0.0:
        return 0.0
    length = right - left
    return np.exp(side - 0.5 * length) * np.expm1(-2.0 * side) / -np.sqrt(-np.expm1(-2.0 * length))


@native
def column_values(
    line,
    kind,
    step,
    reach,
    decay,
    degree,
    places,
    first_rows,
    n_rows,
    missing_row,
    table,
    points,
    matrix,
    tent_left,
    tent_right,
    out,
):
    """out[k, b] = e_k(line[b]) of one column, for its functions in use, then for its tents."""
    size = len(line)
    n_functions = table.shape[1]
    if kind == CONSTANT:
        out[:] = 1.0
        return
    rows, weights = table_rows(
        line, kind, step, decay, degree, places, first_rows, n_rows, missing_row
    )
    if kind == GAUSSIAN:
        combine_six(rows, weights, table, out)
        exact = np.empty(n_functions)
        for b in range(size):
            if rows[b] < 0:
                exact_gaussian(np.float64(line[b]), reach, points, matrix, exact)
                for k in range(n_functions):
                    out[k, b] = exact[k]
        return
    combine_rows(rows, weights, table, out[:n_functions])
    for j in range(len(tent_left)):
        for b in range(size):
            out[n_functions + j, b] = tent(np.float64(line[b]), tent_left[j], tent_right[j])


@native
def column_squares(
    line,
    kind,
    step,
    reach,
    decay,
    degree,
    places,
    first_rows,
    n_rows,
    missing_row,
    table,
    points,
    matrix,
    has_tents,
    first,
    squares,
):
    """squares[b, first + k] = e_k(line[b])^2 of one column; last the sum over all its tents."""
    n_functions = table.shape[1]
    if kind == CONSTANT:
        squares[: len(line), first] = 1.0
        return
    rows, weights = table_rows(
        line, kind, step, decay, degree, places, first_rows, n_rows, missing_row
    )
    values = np.empty(n_functions)
    for b in range(len(line)):
        u = np.float64(line[b])
        if rows[b] < 0:
            exact_gaussian(u, reach, points, matrix, values)
        else:
            values[:] = 0.0
            for p in range(weights.shape[0]):
                weight, row = weights[p, b], rows[b] + p
                for k in range(n_functions):
                    values[k] += weight * table[row, k]
        left = 1.0
        for k in range(n_functions):
            square = values[k] * values[k]
            squares[b, first + k] = square
            left -= square
        if has_tents:  # they end with the knots, and a missing value has none
            between = places[0] < u < places[-1]
            squares[b, first + n_functions] = max(0.0, left) if between else 0.0


@native
def local_atoms(
    lines,
    coordinates,
    settings,
    kinds,
    step,
    reach,
    places,
    first_rows,
    n_rows,
    place_starts,
    missing_rows,
    tables,
    table_starts,
    n_functions,
    points,
    point_starts,
    matrices,
    matrix_starts,
    tent_left,
    tent_right,
    tent_starts,
    atom_ranges,
    slots,
    smallest,
    smallest_root,
    table,
    roots,
):
    """Ratios e_k / e_0 of all atoms, and the product of e_0 over all coordinates, for a block.

    Line l holds coordinate coordinates[l]. The tables of coordinate i are flat, from *_starts[i].
    e_0 may vanish: it is held above ``smallest``, which changes no feature by more than that, and
    the root above ``smallest_root``, so that it can be divided by.
    """
    size = lines.shape[1]
    most = (n_functions + tent_starts[1:] - tent_starts[:-1]).max()
    values = np.empty((most, size))
    roots[:] = 1.0
    for number in range(len(coordinates)):
        i = coordinates[number]
        here = slice(place_starts[i], place_starts[i + 1])
        tents = slice(tent_starts[i], tent_starts[i + 1])
        count = n_functions[i]
        used = values[: count + tent_starts[i + 1] - tent_starts[i]]
        column_values(
            lines[number],
            kinds[i],
            step,
            reach,
            settings[i, 0],
            np.int64(settings[i, 1]),
            places[here],
            first_rows[here],
            n_rows[here],
            missing_rows[i],
            tables[table_starts[i] : table_starts[i + 1]].reshape(-1, count),
            points[point_starts[i] : point_starts[i + 1]],
            matrices[matrix_starts[i] : matrix_starts[i + 1]].reshape(-1, count),
            tent_left[tents],
            tent_right[tents],
            used,
        )
        ground = used[0]
        for b in range(size):
            floor = max(smallest, smallest_root / abs(roots[b]))
            if not abs(ground[b]) >= floor:
                ground[b] = floor
            roots[b] *= ground[b]
        first, last = atom_ranges[i, 0], atom_ranges[i, 1]
        if first < last:
            for b in range(size):
                ground[b] = 1.0 / ground[b]
            for a in range(first, last):
                for b in range(size):
                    table[a, b] = used[slots[a], b] * ground[b]


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
    interval = place_of(u, knots) - 1
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
    interval = min(place_of(rng.random() * cumulative[-1], cumulative), n_intervals - 1)
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
