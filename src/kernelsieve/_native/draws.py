"""Draws from row-norm distributions: a row, then a degree and coordinates, or an order for each.

See "Row norm without a sketch" in docs/why-the-engine.md.

A drawn multiset is written as atoms, (coordinate, order) pairs sorted by coordinate, with an
order-free hash of it.
"""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import helper, native
from kernelsieve._native.products import place_of, tent


@helper
def draw_degree(log_radius, log_mass, log_amplitude, log_coefficients, lowest, uniform):
    """A degree w >= lowest with probability c^2 a_w r^w / mass (Alg. 3 line 13, for B = 0)."""
    target = uniform * np.exp(log_mass - 2.0 * log_amplitude)
    reached = 0.0
    last = lowest
    for w in range(lowest, len(log_coefficients)):
        if log_coefficients[w] == -np.inf:
            continue
        last = w
        log_power = w * log_radius if w > 0 else 0.0  # |x'|^0 = 1, also for the zero row
        reached += np.exp(log_coefficients[w] + log_power)
        if reached >= target:
            break
    return last


@helper
def draw_coordinates(values, start, stop, squared_norm, count, rng, drawn):
    """``count`` positions i with probability values_i^2 / |values|^2, sorted, into ``drawn``.

    The values are values[start:stop].
    """
    for b in range(count):
        target = rng.random() * squared_norm
        reached = 0.0
        position = start - 1
        for i in range(start, stop):
            square = np.float64(values[i]) * np.float64(values[i])
            if square > 0.0:
                position = i
                reached += square
                if reached >= target:
                    break
        insert(drawn, b, position)


@helper
def search_coordinates(running, start, count, rng, drawn):
    """The same for a long row, by a search in the running sums of its squares."""
    for b in range(count):
        insert(drawn, b, start + first_at_least(running, rng.random() * running[-1]))


@helper
def first_at_least(running, value):
    """np.searchsorted, which takes a second to compile; the last place where there is none."""
    low, high = 0, len(running) - 1
    while low < high:
        middle = (low + high) // 2
        if running[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def insert(drawn, count, position):
    """Keep the few drawn positions sorted."""
    slot = count
    while slot > 0 and drawn[slot - 1] > position:
        drawn[slot] = drawn[slot - 1]
        slot -= 1
    drawn[slot] = position


@native
def draw_monomials(
    data,
    indices,
    indptr,
    scale,
    words,
    running,
    rows,
    log_radius,
    log_mass,
    log_amplitude,
    log_coefficients,
    lowest,
    rng,
    hashes,
    ends,
    coordinates,
    orders,
):
    """One multiset for every entry of ``rows``; returns the number of atoms written.

    Rows are CSR; for dense rows ``indices`` and ``indptr`` are None. ``data`` times ``scale`` are
    the points, ``words`` those of the coordinates. ``running`` are the running sums of the squares
    of the last row, where it is too long to be gone through for every draw; else None.
    ``ends[k]`` is where the atoms of draw k end. The atom arrays may fill up: then the number of
    atoms needed so far is returned negated, and the caller tries again with larger ones.
    """
    width = len(words)
    drawn = np.empty(len(log_coefficients), dtype=np.int64)
    atoms = 0
    for k in range(len(rows)):
        row = rows[k]
        if indptr is None:
            start, stop = row * width, (row + 1) * width
        else:
            start, stop = np.int64(indptr[row]), np.int64(indptr[row + 1])
        degree = draw_degree(
            log_radius[row],
            log_mass[row],
            log_amplitude[row],
            log_coefficients,
            lowest,
            rng.random(),
        )
        searched = False
        if running is not None:
            searched = row == len(log_radius) - 1
            if searched:
                search_coordinates(running, start, degree, rng, drawn)
        if not searched:
            squared = np.exp(log_radius[row]) / scale**2
            draw_coordinates(data, start, stop, squared, degree, rng, drawn)
        if atoms + degree > len(coordinates):
            return -(atoms + degree)
        word = np.uint64(0)
        for b in range(degree):
            column = drawn[b] - start
            if indices is not None:
                column = np.int64(indices[drawn[b]])
            word += words[column]
            if b > 0 and drawn[b] == drawn[b - 1]:
                orders[atoms - 1] += 1
            else:
                coordinates[atoms] = column
                orders[atoms] = 1
                atoms += 1
        hashes[k] = word
        ends[k] = atoms
    return atoms


# --- orders of one-dimensional functions ---------------------------------------------------------


@helper
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
def normalise_orders(squares, offsets, smallest, held, log_ground):
    """Divide the squares of each row's orders by their sum in each coordinate.

    held[row] is the product of the sums, log_ground[row, i] that of the logarithms of the first
    ones before coordinate i. A logarithm of 0 must not spoil the sums of other coordinates: squares
    below ``smallest`` count as that.
    """
    for row in range(squares.shape[0]):
        held[row] = 1.0
        log_ground[row, 0] = 0.0
        for i in range(len(offsets) - 1):
            total = 0.0
            for k in range(offsets[i], offsets[i + 1]):
                total += squares[row, k]
            held[row] *= total
            inverse = 1.0 / total if total > 0.0 else 1.0
            for k in range(offsets[i], offsets[i + 1]):
                squares[row, k] *= inverse
            ground = max(squares[row, offsets[i]], smallest)
            log_ground[row, i + 1] = log_ground[row, i] + np.log(ground)


@native
def chances_of_more(squares, offsets, n_listed, chances):
    """chances[row, i, r] = probability that the orders of coordinates i, i + 1, ... reach r in all.

    squares[row, offsets[i] : offsets[i + 1]] are the probabilities of the orders of coordinate i.
    Orders from n_listed[i] on count as any number. Every term is positive, so small chances are as
    exact as large ones.
    """
    n_rows, d, lowest = squares.shape[0], len(offsets) - 1, chances.shape[2] - 1
    enough = np.empty(lowest + 1)  # the chance of the orders that are enough for r by themselves
    for row in range(n_rows):
        chances[row, d, 0] = 1.0
        for r in range(1, lowest + 1):
            chances[row, d, r] = 0.0
        for i in range(d - 1, -1, -1):
            chances[row, i, 0] = 1.0
            if lowest == 0:
                continue
            start, few = offsets[i], min(lowest, n_listed[i])
            total = 0.0
            for k in range(start + few, offsets[i + 1]):
                total += squares[row, k]
            enough[few] = total
            for k in range(few - 1, 0, -1):
                total += squares[row, start + k]
                enough[k] = total
            for r in range(1, lowest + 1):
                total = enough[min(r, few)]
                for k in range(min(r, few)):
                    total += squares[row, start + k] * chances[row, i + 1, r - k]
                chances[row, i, r] = total


@helper
def draw_needed(squares, offsets, n_listed, chances, row, i, needed, uniform):
    """The order of coordinate i, given that the orders from i on reach ``needed`` in all."""
    target = uniform * chances[row, i, needed]
    reached = 0.0
    last = 0
    for k in range(offsets[i + 1] - offsets[i]):
        left = max(0, needed - k) if k < n_listed[i] else 0
        weight = squares[row, offsets[i] + k] * chances[row, i + 1, left]
        if weight > 0.0:
            last = k
            reached += weight
            if reached >= target:
                break
    return last


@helper
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
    squares,
    offsets,
    n_listed,
    log_ground,
    chances,
    rows,
    words,
    rng,
    hashes,
    ends,
    coordinates,
    orders,
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
        i = np.int64(0)  # a literal 0 would compile what it is passed to a second time
        while i < d:
            if needed > 0:
                uniform = rng.random()
                order = draw_needed(squares, offsets, n_listed, chances, row, i, needed, uniform)
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
                needed = max(0, needed - order) if order < n_listed[i] else 0
            i += 1
        hashes[k] = word
        ends[k] = atoms
    return atoms


@native
def draw_sparse_orders(
    squares, totals, columns, indptr, rows, words, rng, hashes, ends, coordinates, orders
):
    """An order for each stored entry of each row, with probabilities squares[entry] / totals.

    Returns the number of atoms written, negated if the arrays were too small.
    """
    atoms = 0
    for k in range(len(rows)):
        start, stop = indptr[rows[k]], indptr[rows[k] + 1]
        if atoms + stop - start > len(coordinates):
            return -(atoms + stop - start)
        word = np.uint64(0)
        for entry in range(start, stop):
            target = rng.random() * totals[entry]
            order = 0
            reached = squares[entry, 0]
            while reached < target and order + 1 < squares.shape[1]:
                order += 1
                reached += squares[entry, order]
            if order > 0 and squares[entry, order] > 0.0:
                column = columns[entry]
                word += np.uint64(order) * words[column]
                coordinates[atoms] = column
                orders[atoms] = order
                atoms += 1
        hashes[k] = word
        ends[k] = atoms
    return atoms


# --- tents ----------------------------------------------------------------------------------------


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


# --- distinct draws ------------------------------------------------------------------------------


@native
def keep_new(
    hashes,
    ends,
    coordinates,
    orders,
    table,
    limit,
    found,
    kept_ends,
    kept_coordinates,
    kept_orders,
    kept_atoms,
):
    """Append the multisets that were not seen before, until ``limit`` are kept.

    ``table`` is an open-addressing hash set (0 is free). Returns (draws looked at, multisets kept,
    atoms kept); one multiset more than ``limit`` is counted, not kept, and ends the search.
    """
    mask = np.uint64(len(table) - 1)
    start = 0
    for k in range(len(hashes)):
        end = ends[k]
        # The empty multiset hashes to 0, which marks a free place: give it another word.
        word = hashes[k] if hashes[k] != 0 else np.uint64(0x9E3779B97F4A7C15)
        place = (word ^ (word >> np.uint64(32))) & mask
        while table[place] != 0 and table[place] != word:
            place = (place + np.uint64(1)) & mask
        if table[place] == 0:
            table[place] = word
            if found == limit:
                return k + 1, found + 1, kept_atoms
            for a in range(start, end):
                kept_coordinates[kept_atoms] = coordinates[a]
                kept_orders[kept_atoms] = orders[a]
                kept_atoms += 1
            kept_ends[found] = kept_atoms
            found += 1
        start = end
    return len(hashes), found, kept_atoms
