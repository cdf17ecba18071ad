"""The random walk of the cube method (Deville and Tille, 2004)."""

from __future__ import annotations

from kernelsieve._native._options import native

# Moves of a unit below this are rounding: it does not bound a step, and it is never a pivot.
SMALLEST_MOVE = 1e-7


@native
def walk(columns, probabilities, uniforms, basis, inverse, start, stop):
    """Decide the units from ``start`` to ``stop``, each for itself or in place of one of the basis.

    Units ``basis`` and one more unit move along the one direction in which the balance (sums of
    probability times column) does not change, up or down until one of them is at 0 or 1; the
    probability of up makes the expectation of the move 0. ``inverse`` is that of the columns of the
    basis, shape (m, m), where row i belongs to unit ``basis[i]``.
    """
    m = len(basis)
    for unit in range(start, stop):
        direction = -(inverse @ columns[unit])
        up, down = 1.0 - probabilities[unit], probabilities[unit]
        up_at, down_at = -1, -1
        for i in range(m):
            move, p = direction[i], probabilities[basis[i]]
            if move > SMALLEST_MOVE:
                most, least = (1.0 - p) / move, p / move
            elif move < -SMALLEST_MOVE:
                most, least = -p / move, -(1.0 - p) / move
            else:
                continue
            if most < up:
                up, up_at = most, i
            if least < down:
                down, down_at = least, i
        if uniforms[unit] * (up + down) < down:
            step, at = up, up_at
        else:
            step, at = -down, down_at
        probabilities[unit] += step
        for i in range(m):
            moved = probabilities[basis[i]] + step * direction[i]
            probabilities[basis[i]] = min(max(moved, 0.0), 1.0)
        if at < 0:
            probabilities[unit] = round(probabilities[unit])
            continue
        probabilities[basis[at]] = round(probabilities[basis[at]])
        pivot = -direction[at]
        row = inverse[at] / pivot
        for i in range(m):
            if i != at:
                inverse[i] += direction[i] * row
        inverse[at] = row
        basis[at] = unit
