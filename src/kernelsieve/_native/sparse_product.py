"""Inner products of sparse rows with sparse rows, into a dense matrix."""

from __future__ import annotations

from kernelsieve._native._options import native


@native
def csr_times_csc(indptr, indices, data, starts, rows, values, out):
    """out[i, l] = <x_i, y_l> for CSR rows x_i and y_l given by columns (CSC of Y).

    Only pairs that share a column are multiplied; a line of ``out`` stays in the cache.
    ``indptr`` may begin anywhere.
    """
    for i in range(out.shape[0]):
        line = out[i]
        line[:] = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            value = data[k]
            for m in range(starts[indices[k]], starts[indices[k] + 1]):
                line[rows[m]] += value * values[m]
