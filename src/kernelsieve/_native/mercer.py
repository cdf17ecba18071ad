"""One-dimensional Gaussian bases: exact values, and look-up in tables of them.

See "Adapted bases" in docs/why-the-engine.md.
"""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native

POINTS = 6  # of the interpolation polynomial


@native
def damped_powers(u, out):
    """out[j] = exp(-u^2 / 2) u^j / sqrt(j!), in logarithms where the first would underflow."""
    if abs(u) < 35.0:
        value = np.exp(-0.5 * u * u)
        for j in range(len(out)):
            out[j] = value
            value *= u / np.sqrt(j + 1.0)
        return
    log_size = np.log(abs(u))
    log_factorial = 0.0
    for j in range(len(out)):
        if j > 0:
            log_factorial += np.log(j)
        exponent = -0.5 * u * u + j * log_size - 0.5 * log_factorial
        out[j] = np.exp(exponent) if exponent > -700.0 else 0.0
        if u < 0 and j % 2 == 1:
            out[j] = -out[j]


@native
def all_damped_powers(points, out):
    """The damped powers of every point, one row each."""
    for b in range(len(points)):
        damped_powers(points[b], out[b])


@native
def count_cells(points, low, high, counts):
    """Add every coordinate of every point to its cell of [low, high]."""
    n_cells = counts.shape[1]
    for b in range(points.shape[0]):
        for i in range(points.shape[1]):
            width = high[i] - low[i]
            place = (points[b, i] - low[i]) / width * n_cells if width > 0.0 else 0.0
            counts[i, min(max(np.int64(place), 0), n_cells - 1)] += 1


@native
def exact_values(u, rotation, scratch, out):
    """out[k] = e_k(u) = sum_j rotation[j, k] b_j(u)."""
    damped_powers(u, scratch)
    for k in range(len(out)):
        total = 0.0
        for j in range(rotation.shape[0]):
            total += rotation[j, k] * scratch[j]
        out[k] = total


@native
def tabulate(line, first, step, grid, rotation, out):
    """out[k, b] = e_k(line[b]): interpolated in the grid, exact where the line leaves it.

    grid : (n_cells, K), the values at first + cell * step; rotation : (J, K).
    Weights of the six points around each value first, then the sums: both loops run in lanes.
    """
    n_cells, orders = grid.shape
    size = len(line)
    cells = np.empty(size, dtype=np.int64)
    weights = np.empty((POINTS, size))
    inverse = 1.0 / step
    for b in range(size):
        position = (np.float64(line[b]) - first) * inverse
        inside = min(position, n_cells - 4.0) if position > 2.0 else 2.0  # also where it is NaN
        cell = np.int64(inside)
        cells[b] = cell - 2
        z = inside - cell
        m2, m1, p1, p2, p3 = z + 2.0, z + 1.0, z - 1.0, z - 2.0, z - 3.0
        weights[0, b] = m1 * z * p1 * p2 * p3 * (-1.0 / 120.0)
        weights[1, b] = m2 * z * p1 * p2 * p3 * (1.0 / 24.0)
        weights[2, b] = m2 * m1 * p1 * p2 * p3 * (-1.0 / 12.0)
        weights[3, b] = m2 * m1 * z * p2 * p3 * (1.0 / 12.0)
        weights[4, b] = m2 * m1 * z * p1 * p3 * (-1.0 / 24.0)
        weights[5, b] = m2 * m1 * z * p1 * p2 * (1.0 / 120.0)
    for k in range(orders):
        for b in range(size):
            cell = cells[b]
            out[k, b] = (
                weights[0, b] * grid[cell, k]
                + weights[1, b] * grid[cell + 1, k]
                + weights[2, b] * grid[cell + 2, k]
                + weights[3, b] * grid[cell + 3, k]
                + weights[4, b] * grid[cell + 4, k]
                + weights[5, b] * grid[cell + 5, k]
            )
    scratch = np.empty(rotation.shape[0])
    values = np.empty(orders)
    for b in range(size):
        position = (np.float64(line[b]) - first) * inverse
        if not 2.0 <= position <= n_cells - 4.0:
            exact_values(np.float64(line[b]), rotation, scratch, values)
            for k in range(orders):
                out[k, b] = values[k]


@native
def mercer_atoms(
    lines,
    firsts,
    step,
    grids,
    grid_starts,
    n_cells,
    n_orders,
    rotations,
    rotation_starts,
    rotation_sizes,
    atom_ranges,
    orders,
    smallest,
    table,
    roots,
):
    """Ratios e_k / e_0 of all atoms, and the product of e_0 over all coordinates, for a block.

    The tables of coordinate i are flat: grids from grid_starts[i], of shape (n_cells[i],
    n_orders[i]), and rotations from rotation_starts[i], of shape (rotation_sizes[i], n_orders[i]).
    """
    size = lines.shape[1]
    most = 0
    for n in n_orders:
        most = max(most, n)
    values = np.empty((most, size))
    roots[:] = 1.0
    for i in range(lines.shape[0]):
        grid = grids[grid_starts[i] : grid_starts[i + 1]].reshape(n_cells[i], n_orders[i])
        rotation = rotations[rotation_starts[i] : rotation_starts[i + 1]].reshape(
            rotation_sizes[i], n_orders[i]
        )
        tabulate(lines[i], firsts[i], step, grid, rotation, values[: n_orders[i]])
        ground = values[0]
        for b in range(size):
            if abs(ground[b]) < smallest:  # rounding may deny that e_0 > 0 far away
                ground[b] = smallest
            roots[b] *= ground[b]
        first, last = atom_ranges[i, 0], atom_ranges[i, 1]
        if first < last:
            for b in range(size):
                ground[b] = 1.0 / ground[b]
            for a in range(first, last):
                for b in range(size):
                    table[a, b] = values[orders[a], b] * ground[b]


@native
def next_excited(log_ground, row, start, threshold):
    """The first coordinate >= start that leaves the ground state, or the number of coordinates.

    log_ground[row, i] is the running sum of log e_0^2 before coordinate i.
    """
    d = log_ground.shape[1] - 1
    goal = log_ground[row, start] + threshold
    if log_ground[row, d] >= goal:
        return d
    low, high = start, d - 1
    while low < high:
        middle = (low + high) // 2
        if log_ground[row, middle + 1] < goal:
            high = middle
        else:
            low = middle + 1
    return low


@native
def chances_of_more(squares, offsets, chances):
    """chances[row, i, r] = probability that the orders of coordinates i, i + 1, ... reach r in all.

    squares[row, offsets[i] : offsets[i + 1]] are the probabilities of the orders of coordinate i.
    Every term is positive, so small chances are as exact as large ones.
    """
    n_rows, d, lowest = squares.shape[0], len(offsets) - 1, chances.shape[2] - 1
    for row in range(n_rows):
        chances[row, d, 0] = 1.0
        chances[row, d, 1:] = 0.0
        for i in range(d - 1, -1, -1):
            chances[row, i, 0] = 1.0
            for r in range(1, lowest + 1):
                total = 0.0
                for k in range(offsets[i + 1] - offsets[i]):
                    total += squares[row, offsets[i] + k] * chances[row, i + 1, max(0, r - k)]
                chances[row, i, r] = total


@native
def draw_needed(squares, offsets, chances, row, i, needed, uniform):
    """The order of coordinate i, given that the orders from i on reach ``needed`` in all."""
    target = uniform * chances[row, i, needed]
    reached = 0.0
    last = 0
    for k in range(offsets[i + 1] - offsets[i]):
        weight = squares[row, offsets[i] + k] * chances[row, i + 1, max(0, needed - k)]
        if weight > 0.0:
            last = k
            reached += weight
            if reached >= target:
                break
    return last


@native
def draw_free(squares, offsets, row, i, uniform):
    """The order >= 1 of coordinate i, which has left the ground state."""
    ground = squares[row, offsets[i]]
    target = ground + uniform * (1.0 - ground)
    order = 1
    reached = ground + squares[row, offsets[i] + 1]
    while reached < target and offsets[i] + order + 1 < offsets[i + 1]:
        order += 1
        reached += squares[row, offsets[i] + order]
    return order


@native
def draw_orders(
    squares, offsets, log_ground, chances, rows, words, rng, hashes, ends, coordinates, orders
):
    """An order for each coordinate of each row, given that they reach the lowest degree in all.

    The orders of a coordinate have the probabilities e_k(x_i)^2. Returns the number of atoms
    written, negated if the arrays were too small.
    """
    d, lowest = log_ground.shape[1] - 1, chances.shape[2] - 1
    atoms = 0
    for k in range(len(rows)):
        row = rows[k]
        if atoms + d > len(coordinates):
            return -(atoms + d)
        word = np.uint64(0)
        needed = lowest
        i = 0
        while i < d:
            if needed > 0:
                order = draw_needed(squares, offsets, chances, row, i, needed, rng.random())
            else:
                i = next_excited(log_ground, row, i, np.log(rng.random()))
                if i == d:
                    break
                order = draw_free(squares, offsets, row, i, rng.random())
            if order > 0:
                word += np.uint64(order) * words[i]
                coordinates[atoms] = i
                orders[atoms] = order
                atoms += 1
                needed = max(0, needed - order)
            i += 1
        hashes[k] = word
        ends[k] = atoms
    return atoms
