"""Evaluation of products: the atoms of a block of rows, then every node of a prefix tree.

Nodes stand in depth-first order, and so do the output columns, so a stack of the current path is
all that is alive: it stays in the first-level cache. See docs/why-the-engine.md, "Evaluation" and
"Adapted bases".
"""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import inlined, native
from kernelsieve._native.lanes import LANES, add_lane_squares, multiply_lanes, write_transposed

POINTS = 6  # of the interpolation polynomial


@native
def power_table(lines, coordinate, order, out):
    """out[a, b] = lines[coordinate[a], b]^order[a] / sqrt(order[a]!).

    Atoms of one coordinate stand together with rising orders, so each starts from the last.
    """
    size = lines.shape[1]
    for a in range(len(coordinate)):
        i = coordinate[a]
        line, source = out[a], lines[i]
        if a > 0 and coordinate[a - 1] == i:
            done = order[a - 1]
            for b in range(size):
                line[b] = out[a - 1, b]
        else:
            done = 1
            for b in range(size):
                line[b] = source[b]
        for k in range(done + 1, order[a] + 1):
            factor = out.dtype.type(1.0 / np.sqrt(k))
            for b in range(size):
                line[b] *= source[b] * factor


@inlined
def step(stack, table, level, atom, first, size):
    """The products of a node's path: its parent's times one atom."""
    for b in range(size):
        stack[level, b] = stack[level - 1, b] * table[atom, first + b]


@inlined
def copy_lanes(table, root, first, size, atoms, stack):
    """The atoms and the root of some rows; in loops, which compile in a tenth of a slice's time."""
    for a in range(len(table)):
        for b in range(size):
            atoms[a, b] = table[a, first + b]
    for b in range(size):
        stack[0, b] = root[first + b]


@native
def evaluate_rows(table, root, depth, atom, columns, weight, max_depth, out):
    """Row-major features: out[b, columns[node]] = weight[node] * product of the path's atoms.

    table : (n_atoms, B); root : (B,); nodes with columns[node] < 0 are only passed through;
    columns rise with the nodes. out : (B, n_components).
    """
    # The atoms of LANES rows side by side: a stride of B would put them all in few cache sets.
    atoms = np.zeros((len(table), LANES), dtype=table.dtype)
    stack = np.zeros((max_depth + 1, LANES), dtype=table.dtype)
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
                if gathered == LANES:
                    if size == LANES:
                        write_transposed(tile, out, first, column)
                    else:
                        write_part(tile, first, size, column, LANES, out)
                    column += LANES
                    gathered = 0
        write_part(tile, first, size, column, gathered, out)


@inlined
def write_part(tile, first, size, column, gathered, out):
    """The last rows or columns, fewer than a tile has."""
    for b in range(size):
        for t in range(gathered):
            out[first + b, column + t] = tile[t, b]


@native
def evaluate_columns(table, root, depth, atom, columns, weight, max_depth, out):
    """Feature-major features: out[columns[node], b]."""
    rows = len(root)
    stack = np.empty((max_depth + 1, rows), dtype=table.dtype)
    for b in range(rows):
        stack[0, b] = root[b]
    for node in range(len(depth)):
        level = depth[node]
        if level > 0:
            step(stack, table, level, atom[node], 0, rows)
        if columns[node] >= 0:
            for b in range(rows):
                out[columns[node], b] = stack[level, b] * weight[node]


@native
def add_squared_norms(table, root, depth, atom, columns, weight, max_depth, out):
    """out[columns[node]] += sum over the rows of the squared feature."""
    atoms = np.zeros((len(table), LANES), dtype=table.dtype)
    stack = np.zeros((max_depth + 1, LANES), dtype=table.dtype)
    sums = np.zeros((len(depth), LANES), dtype=table.dtype)
    for first in range(0, len(root), LANES):
        size = min(LANES, len(root) - first)
        stack[:] = 0.0  # the last rows may be fewer
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


@native
def atom_ranges(coordinates, n_coordinates):
    """[first, last) atom of every coordinate, where atoms of a coordinate stand together."""
    ranges = np.zeros((n_coordinates, 2), dtype=np.int64)
    for a in range(len(coordinates)):
        i = coordinates[a]
        if ranges[i, 1] == 0:
            ranges[i, 0] = a
        ranges[i, 1] = a + 1
    return ranges


# --- one-dimensional functions of the Gaussian, exact and from tables ----------------------------


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
