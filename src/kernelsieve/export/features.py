"""Feature maps as graphs: rows (n, d) become features (n, s)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from kernelsieve.export.graph import ExportError, Graph, entry_of
from kernelsieve.export.kernels import fourier_points, kernel_matrix, product_points
from kernelsieve.export.zonal import gegenbauer_graph, network_graph
from kernelsieve.features import (
    AutoFeatures,
    BinningFeatures,
    FeatureMap,
    FourierFeatures,
    GegenbauerFeatures,
    MaclaurinFeatures,
    NetworkFeatures,
    NystromFeatures,
    ResidualFeatures,
    TensorSketchFeatures,
)
from kernelsieve.features.adaptive import SampledFeatures
from kernelsieve.products.column_basis import FAMILIES, ColumnBasis
from kernelsieve.products.local_basis import SMALLEST_GROUND_STATE, LocalTables
from kernelsieve.products.product_features import (
    LARGEST_SQUARED_RADIUS,
    Frame,
    MonomialBasis,
    ProductFeatures,
)
from kernelsieve.products.product_frame import ProductFrame
from kernelsieve.products.tents import FIRST_TENT, tent_bounds

Lines = NDArray[np.int64]

FARTHEST = LARGEST_SQUARED_RADIUS[np.dtype(np.float64)]


def features_graph(graph: Graph, features: FeatureMap, rows: str) -> str:
    """The features of rows (n, d): (n, s)."""
    made = entry_of(MAPS, features)
    if made is None:
        raise ExportError(
            f"{type(features).__name__} is not arithmetic that can be exported (its fast "
            "transforms would become huge matrices): use AdaptiveFeatures, NystromFeatures or "
            "FourierFeatures"
        )
    return made(graph, features, rows)


def _automatic(graph: Graph, features: AutoFeatures, rows: str) -> str:
    return features_graph(graph, features.map_, rows)


def _sampled(graph: Graph, features: SampledFeatures, rows: str) -> str:
    if hasattr(features.kernel_, "length_power"):
        raise ExportError(
            f"products of rows divided by their lengths, for {features.kernel_!r}, are not "
            "exported: use a kernel that is not one of the angle"
        )
    return _products(graph, features.features_, rows)


def _landmarks(graph: Graph, features: NystromFeatures, rows: str) -> str:
    gram = kernel_matrix(graph, features.kernel_, rows, features.landmarks_)
    return graph.op("MatMul", gram, features.whitening_)


def _bins(graph: Graph, features: BinningFeatures, rows: str) -> str:
    raise ExportError(
        "BinningFeatures finds the column of a grid's cell by a hash, which ONNX does not "
        "have: use FourierFeatures or NystromFeatures with the same kernel"
    )


def _drawn_signs(graph: Graph, features: MaclaurinFeatures, rows: str) -> str:
    raise ExportError(
        "MaclaurinFeatures draws its signs anew for each block and holds no matrix: use "
        "TensorSketchFeatures, FourierFeatures or AdaptiveFeatures"
    )


def _waves(graph: Graph, features: FourierFeatures, rows: str) -> str:
    """Cosines and sines of frequencies times rows; a cosine is a sine that is shifted."""
    d = features.n_features_in_
    active, points = fourier_points(graph, features.kernel_, rows, d)
    frequencies = features.frequencies_
    if not isinstance(frequencies, np.ndarray):  # fast transforms, written out
        frequencies = frequencies.angles(np.eye(d, dtype=frequencies.signs.dtype))
    count = len(features.weights_)
    matrix = frequencies.astype(np.float64)[active, :count]
    angles = graph.op("MatMul", points, matrix)
    weights = features.weights_ * np.sqrt(2.0 / features.n_components_)
    pairs = count - len(features.phases_)
    paired = np.arange(pairs)
    shifts = np.concatenate([np.full(pairs, 0.5 * np.pi), np.zeros(pairs),
                             features.phases_ + 0.5 * np.pi])  # fmt: skip
    order = np.concatenate([paired, paired, np.arange(pairs, count)])
    waves = graph.op("Sin", graph.op("Add", graph.columns(angles, order), shifts[None]))
    return graph.op("Mul", waves, weights[order][None])


def _residual(graph: Graph, features: ResidualFeatures, rows: str) -> str:
    """Landmarks, and random features without the landmarks' part; their mixture is a matrix."""
    random = features_graph(graph, features.random_map_, rows)
    mixture = features.mixture()
    if mixture is not None:
        random = graph.op("MatMul", random, mixture)
    if features.landmark_map_ is None:
        return random
    listed = features_graph(graph, features.landmark_map_, rows)
    known = graph.op("MatMul", listed, features.coefficients_)
    return graph.join([listed, graph.op("Sub", random, known)])


def _tensor_sketch(graph: Graph, features: TensorSketchFeatures, rows: str) -> str:
    """Products of the spectra of CountSketches, and back; spectra are matrix products here."""
    sketch = features.sketch_
    size, d = sketch.size, sketch.n_features
    real, imaginary = "", ""
    for leaf in sketch.leaves:
        matrix = np.empty((d + 1, size))
        leaf.fill_with(
            np.vstack([np.eye(d), np.zeros((1, d))]), sketch.scale, sketch.constant, matrix
        )
        constant = matrix[-1]
        spectra = np.fft.rfft(matrix[:-1] - constant, axis=1)
        base = np.fft.rfft(constant)
        a = graph.op("Add", graph.op("MatMul", rows, spectra.real), base.real[None])
        b = graph.op("Add", graph.op("MatMul", rows, spectra.imag), base.imag[None])
        if not real:
            real, imaginary = a, b
            continue
        real, imaginary = (
            graph.op("Sub", graph.op("Mul", real, a), graph.op("Mul", imaginary, b)),
            graph.op("Add", graph.op("Mul", real, b), graph.op("Mul", imaginary, a)),
        )
    width = size // 2 + 1
    back = np.fft.irfft(np.eye(width), n=size, axis=1)
    back_imaginary = np.fft.irfft(1j * np.eye(width), n=size, axis=1)
    return graph.op(
        "Add", graph.op("MatMul", real, back), graph.op("MatMul", imaginary, back_imaginary)
    )


# --- products of columns -------------------------------------------------------------------------


def _products(graph: Graph, features: ProductFeatures, rows: str) -> str:
    basis = features.basis
    made = entry_of(BASES, basis)
    if made is None:
        raise ExportError(
            "the features were fitted to sparse rows, whose zeros they skip: fit them to dense rows"
        )
    atoms, roots = made(graph, features, rows, basis.lines_for(features.trie.atom_coordinates))
    weights = np.exp(basis.log_scales(features.multisets)) * features.weights
    return graph.op("Mul", _multiplied_out(graph, features, atoms, roots), weights[None])


def _points(graph: Graph, frame: Frame | ProductFrame, rows: str, lines: Lines) -> str:
    """The coordinates of rows in a frame along some lines: (n, n_lines)."""
    return FRAMES[type(frame)](graph, frame, rows, lines)


def _along_columns(graph: Graph, frame: ProductFrame, rows: str, lines: Lines) -> str:
    return product_points(graph, frame.kernel, rows, frame.n_coordinates, lines)


def _scaled(graph: Graph, frame: Any, rows: str) -> str:
    centred = rows if frame.center is None else graph.op("Sub", rows, frame.center[None])
    return graph.op("Mul", centred, frame.scale)


def _in_frame(graph: Graph, frame: Frame, rows: str, lines: Lines) -> str:
    scaled = _scaled(graph, frame, rows)
    if frame.rotation is None:
        return graph.columns(scaled, lines)
    return graph.op("MatMul", scaled, frame.rotation[:, lines])


def _multiplied_out(graph: Graph, features: ProductFeatures, atoms: str, roots: str) -> str:
    """The products of atoms (n, n_atoms), one level of the prefix tree after the other."""
    trie = features.trie
    parents, places = trie.parents, np.empty(len(trie.depth), dtype=np.int64)
    levels, start = [roots], 1
    places[0] = 0
    inside = np.zeros(len(trie.depth), dtype=np.int64)  # the place of a node in its level
    for depth in range(1, trie.max_depth + 1):
        nodes = np.flatnonzero(trie.depth == depth)
        inside[nodes] = np.arange(len(nodes))
        places[nodes] = start + inside[nodes]
        start += len(nodes)
        above = graph.columns(levels[-1], inside[parents[nodes]])
        levels.append(graph.op("Mul", above, graph.columns(atoms, trie.atom[nodes])))
    order = np.empty(len(features), dtype=np.int64)
    used = trie.columns >= 0
    order[trie.columns[used]] = places[used]
    return graph.columns(graph.join(levels), order)


def _monomials(graph: Graph, features: ProductFeatures, rows: str, lines: Lines) -> tuple[str, str]:
    """Atoms x^k / sqrt(k!) and roots exp(-|x|^2 / 2); both are 0 where that underflows."""
    trie, points = features.trie, _points(graph, features.frame, rows, lines)
    basis: Any = features.basis
    if not basis.series.damped:
        roots = graph.ones(rows, 1)
    else:
        scaled = _scaled(graph, features.frame, rows)
        squares = graph.row_sum(graph.op("Mul", scaled, scaled))
        far = graph.op("Greater", squares, FARTHEST)
        damping = graph.op("Exp", graph.op("Mul", squares, -0.5))
        roots = graph.op("Where", far, 0.0, damping)
        points = graph.op("Where", far, 0.0, points)
    if not len(trie.atom_orders):
        return points, roots
    orders = trie.atom_orders.astype(np.float64)
    scales = np.exp(-gammaln(orders + 1.0) / (2.0 * orders))  # inside of the power: no overflow
    places = np.searchsorted(lines, trie.atom_coordinates)
    scaled = graph.op("Mul", graph.columns(points, places), scales[None])
    return graph.op("Pow", scaled, orders[None]), roots


def _local(graph: Graph, features: ProductFeatures, rows: str, lines: Lines) -> tuple[str, str]:
    """Ratios e_k / e_0 of the atoms, and the products of all e_0."""
    tables: Any = features.basis
    trie = features.trie
    if not len(lines):
        return rows, graph.ones(rows, 1)
    points = _points(graph, features.frame, rows, lines)
    values, starts = _functions(graph, tables, points, lines)
    ground = graph.columns(values, starts)
    # As the compiled loops do: e_0 may vanish, and is held above a value that changes nothing.
    small = graph.op("Less", graph.op("Abs", ground), SMALLEST_GROUND_STATE)
    ground = graph.op("Where", small, SMALLEST_GROUND_STATE, ground)
    roots = graph.row_product(ground, len(lines))
    if not len(trie.atom_orders):
        return ground, roots
    line_of = np.searchsorted(lines, trie.atom_coordinates)
    slots = [
        int(np.searchsorted(tables.orders[i], order))
        for i, order in zip(trie.atom_coordinates, trie.atom_orders, strict=True)
    ]
    atoms = graph.columns(values, starts[line_of] + np.array(slots))
    return graph.op("Div", atoms, graph.columns(ground, line_of)), roots


def _functions(
    graph: Graph, tables: LocalTables, points: str, lines: Lines
) -> tuple[str, NDArray[np.int64]]:
    """All functions in use of all columns, beside each other, and where each column begins.

    Columns of one family and of similar size are evaluated together: few, large operations.
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    for line, i in enumerate(lines):
        basis = tables.bases[i]
        shape = int(np.ceil(np.log2(len(basis.points)))), int(np.ceil(np.log2(basis.n_functions)))
        groups[basis.family, *shape].append(line)
    parts, starts, start = [], np.zeros(len(lines), dtype=np.int64), 0
    for (family, *_), members in groups.items():
        bases = [tables.bases[lines[line]] for line in members]
        orders = [tables.orders[lines[line]] for line in members]
        widths = [len(each) for each in orders]
        values = _group(graph, family, bases, graph.columns(points, members))
        tents = [_tents(graph, basis, each, graph.columns(points, [line]))
                 for basis, each, line in zip(bases, orders, members, strict=True)]  # fmt: skip
        most = max(basis.n_functions for basis in bases)
        extra = [tent for tent in tents if tent is not None]
        everything = graph.join([values, *extra])
        wanted, tent_start = [], most * len(members)
        for place, (basis, width) in enumerate(zip(bases, widths, strict=True)):
            wanted.append(most * place + np.arange(basis.n_functions))
            count = width - basis.n_functions
            wanted.append(tent_start + np.arange(count))
            tent_start += count
        parts.append(graph.columns(everything, np.concatenate(wanted)))
        starts[members] = start + np.cumsum([0, *widths[:-1]])
        start += sum(widths)
    return graph.join(parts), starts


def _group(graph: Graph, family: str, bases: list[ColumnBasis], columns: str) -> str:
    """The functions of columns of one family, (n, columns * most functions), tents aside."""
    most = max(basis.n_functions for basis in bases)
    height = max(len(basis.points) for basis in bases)
    points = np.zeros((len(bases), 1, height))
    matrix = np.zeros((len(bases), height, most))
    missing, unknown = np.zeros((len(bases), 1, most)), np.zeros((len(bases), 1, most))
    for i, basis in enumerate(bases):
        count, functions = len(basis.points), basis.n_functions
        points[i, 0, :count] = basis.points
        points[i, 0, count:] = basis.points[-1]
        missing[i, 0, :functions] = basis.missing
        matrix[i, :count, :functions] = basis.matrix[:count]
        if family == "categorical":  # a level that is none of them, and what each adds to it
            unknown[i, 0, :functions] = basis.matrix[-1]
            matrix[i, :count, :functions] -= basis.matrix[-1]
    lines = graph.op("Unsqueeze", graph.op("Transpose", columns, perm=[1, 0]), np.array([2]))
    absent = graph.op("IsNaN", lines)
    if family == "categorical":
        kernel = graph.flags(graph.op("Equal", lines, points))
    else:
        difference = graph.op("Sub", graph.op("Where", absent, 0.0, lines), points)
        kernel = _family(graph, family, difference)
    values = graph.op("Add", graph.op("MatMul", kernel, matrix), unknown)  # (k, n, most)
    values = graph.op("Where", absent, missing, values)
    flat = graph.op("Transpose", values, perm=[1, 0, 2])
    return graph.op("Reshape", flat, np.array([0, len(bases) * most]))


def _family(graph: Graph, name: str, difference: str) -> str:
    """k(|u - g|) of a family."""
    if name == "gaussian":
        return graph.op("Exp", graph.op("Neg", graph.op("Mul", difference, difference)))
    family = FAMILIES[name]
    step = graph.op("Mul", graph.op("Abs", difference), family.decay)
    decay = graph.op("Exp", graph.op("Neg", step))
    total: Any = family.polynomial[-1]
    for coefficient in family.polynomial[-2::-1]:
        total = graph.op("Add", graph.op("Mul", step, total), coefficient)
    return decay if len(family.polynomial) == 1 else graph.op("Mul", decay, total)


def _tents(graph: Graph, basis: ColumnBasis, orders: NDArray[np.int64], column: str) -> str | None:
    """The tents of a column of the Laplacian, (n, n_tents); None where there are none."""
    numbers = orders[orders >= FIRST_TENT] - FIRST_TENT
    if not len(numbers):
        return None
    left, right = tent_bounds(numbers, basis.points)
    length = right - left
    known = graph.op("Where", graph.op("IsNaN", column), float(basis.points[0]) - 1.0, column)
    side = graph.op("Min", graph.op("Sub", known, left[None]), graph.op("Sub", right[None], known))
    side = graph.op("Max", side, 0.0)
    # sinh(side) / sqrt(sinh(length) / 2), with exponents that cannot overflow.
    rising = graph.op("Exp", graph.op("Sub", side, 0.5 * length[None]))
    falling = graph.op("Exp", graph.op("Neg", graph.op("Add", side, 0.5 * length[None])))
    scale = 1.0 / np.sqrt(-np.expm1(-2.0 * length))
    return graph.op("Mul", graph.op("Sub", rising, falling), scale[None])


MAPS: dict[type, Callable[[Graph, Any, str], str]] = {
    AutoFeatures: _automatic,
    SampledFeatures: _sampled,
    NystromFeatures: _landmarks,
    FourierFeatures: _waves,
    TensorSketchFeatures: _tensor_sketch,
    ResidualFeatures: _residual,
    GegenbauerFeatures: gegenbauer_graph,
    NetworkFeatures: network_graph,
    BinningFeatures: _bins,
    MaclaurinFeatures: _drawn_signs,
}
FRAMES: dict[type, Callable[[Graph, Any, str, Lines], str]] = {
    Frame: _in_frame,
    ProductFrame: _along_columns,
}
BASES: dict[type, Callable[[Graph, ProductFeatures, str, Lines], tuple[str, str]]] = {
    MonomialBasis: _monomials,
    LocalTables: _local,
}
