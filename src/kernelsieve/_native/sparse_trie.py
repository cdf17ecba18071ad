"""The prefix tree walked for sparse rows: only nodes whose atoms are all nonzero are visited."""

from __future__ import annotations

import numpy as np

from kernelsieve._native._options import native


@native
def activate_atoms(
    values, columns, scale, ratios, atom_start, order, active, atom_value, atom_place
):
    """Fill the values of the atoms of one row; ``active`` lists them in rising order.

    They are powers of the values, or where there are ``ratios``, those of each entry by order.
    """
    count = 0
    for k in range(len(columns)):
        first, last = atom_start[columns[k], 0], atom_start[columns[k], 1]
        if first == last or values[k] == 0.0:
            continue
        if len(ratios) > 0:
            for a in range(first, last):
                atom_value[a] = ratios[k, order[a]]
                active[count] = a
                count += 1
            continue
        base = values[k] * scale
        power = base * 0.0 + 1.0
        done = 0
        for a in range(first, last):
            while done < order[a]:
                done += 1
                power *= base / np.sqrt(done)
            atom_value[a] = power
            active[count] = a
            count += 1
    active[:count].sort()
    for k in range(count):
        atom_place[active[k]] = k
    return count


@native
def next_child(cursor, end, place, count, child_atom, active, atom_value):
    """The next child whose atom is active: (its position or -1, new cursor, new place)."""
    if end - cursor <= 4 * (count - place):
        while cursor < end:
            if atom_value[child_atom[cursor]] != 0.0:
                return cursor, cursor + 1, place
            cursor += 1
        return -1, cursor, place
    while place < count and cursor < end:
        atom = active[place]
        place += 1
        low, high = cursor, end
        while low < high:
            middle = (low + high) // 2
            if child_atom[middle] < atom:
                low = middle + 1
            else:
                high = middle
        cursor = low
        if cursor < end and child_atom[cursor] == atom:
            return cursor, cursor + 1, place
    return -1, cursor, place


@native
def evaluate_csr(
    data,
    indices,
    indptr,
    scale,
    ratios,
    roots,
    atom_start,
    order,
    root_child,
    child_start,
    child_node,
    child_atom,
    columns,
    weight,
    max_depth,
    out_data,
    out_indices,
    out_indptr,
):
    """CSR features of CSR rows; returns the entries written, or -1 if the arrays are too small.

    root_child[atom] is the node of the path that consists of this atom, or -1. ``ratios`` is empty
    for monomials, else it has a row for each entry of ``data``.
    """
    n_atoms = len(order)
    atom_value = np.zeros(n_atoms, dtype=data.dtype)
    atom_place = np.zeros(n_atoms, dtype=np.int64)
    active = np.empty(n_atoms, dtype=np.int32)
    nodes = np.empty(max_depth + 1, dtype=np.int64)
    cursors = np.empty(max_depth + 1, dtype=np.int64)
    places = np.empty(max_depth + 1, dtype=np.int64)
    products = np.empty(max_depth + 1, dtype=data.dtype)
    written = 0
    out_indptr[0] = 0
    for row in range(len(indptr) - 1):
        out_indptr[row + 1] = written
        if roots[row] == 0.0:  # the features underflow here, whatever their atoms
            continue
        if columns[0] >= 0:
            if written == len(out_data):
                return -1
            out_data[written] = roots[row] * weight[0]
            out_indices[written] = columns[0]
            written += 1
        start, stop = indptr[row], indptr[row + 1]
        count = activate_atoms(
            data[start:stop],
            indices[start:stop],
            scale,
            ratios[start:stop],
            atom_start,
            order,
            active,
            atom_value,
            atom_place,
        )
        for first in range(count):
            if root_child[active[first]] < 0:
                continue
            level = 1
            nodes[1] = root_child[active[first]]
            products[1] = roots[row] * atom_value[active[first]]
            cursors[1], places[1] = child_start[nodes[1]], first + 1
            entering = True
            while level > 0:
                node = nodes[level]
                if entering and columns[node] >= 0:
                    if written == len(out_data):
                        return -1
                    out_data[written] = products[level] * weight[node]
                    out_indices[written] = columns[node]
                    written += 1
                found = np.int64(-1)
                if cursors[level] < child_start[node + 1]:
                    found, cursors[level], places[level] = next_child(
                        cursors[level],
                        child_start[node + 1],
                        places[level],
                        count,
                        child_atom,
                        active,
                        atom_value,
                    )
                entering = bool(found >= 0)
                if entering:
                    atom, child = child_atom[found], child_node[found]
                    products[level + 1] = products[level] * atom_value[atom]
                    level += 1
                    nodes[level], cursors[level] = child, child_start[child]
                    places[level] = atom_place[atom] + 1
                else:
                    level -= 1
        for k in range(count):
            atom_value[active[k]] = 0.0
        out_indptr[row + 1] = written
    return written
