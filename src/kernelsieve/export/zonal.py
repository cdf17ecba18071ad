"""Maps of directions and lengths as graphs: Gegenbauer features and networks of one layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernelsieve.export.graph import ExportError, Graph, entry_of
from kernelsieve.features import GegenbauerFeatures, NetworkFeatures
from kernelsieve.features.activation import ActivationLayer, recurrence, unit_scale
from kernelsieve.features.network import Layer

SHORTEST = 1e-300  # a length below stands for the zero row


def gegenbauer_graph(graph: Graph, features: GegenbauerFeatures, rows: str) -> str:
    """Sums over degrees of a function of the length times a polynomial of the cosine."""
    series, d = features.series_, features.n_features_in_
    size = features.n_components_**-0.5
    if series is None:
        unit, scales = _polar(graph, features.kernel_, rows)
    else:
        centred = rows if series.center is None else graph.op("Sub", rows, series.center[None])
        unit, length = _unit(graph, centred)
        # log of c(x) sqrt(a_w) |x'|^w: a power itself could overflow.
        radius = graph.op("Mul", graph.op("Max", length, SHORTEST), series.scale)
        degrees = np.arange(series.degree + 1.0)[None]
        logs = graph.op("Mul", graph.op("Log", radius), degrees)
        logs = graph.op("Add", logs, 0.5 * series.log_coefficients[None])
        if series.damped:
            half = graph.op("Mul", graph.op("Mul", radius, radius), 0.5)
            logs = graph.op("Sub", logs, half)
        scales = graph.op("Exp", logs)
    cosines = _cosines(graph, unit, features.directions_)
    w = np.arange(len(features.weights_))
    with np.errstate(divide="ignore", invalid="ignore"):
        top = w + d - 2.0
        slopes = np.where(w == 0, 1.0, (2.0 * w + d - 2.0) / top)
        drops = np.where(w == 0, 0.0, w / top)
    total, stop = "", 0
    for degree, polynomial in enumerate(_polynomials(graph, cosines, slopes, drops)):
        weights = size * features.weights_[degree]
        start, stop = stop, stop + len(weights)
        matrix = weights[:, None] * features.signs_[start:stop]
        if series is None:
            term = graph.op("Mul", polynomial, matrix)
        else:
            lengths = graph.columns(scales, np.arange(degree, series.degree + 1, 2))
            term = graph.op("Mul", graph.op("MatMul", lengths, matrix), polynomial)
        total = graph.op("Add", total, term) if total else term
    return graph.op("Mul", total, scales) if series is None else total


def network_graph(graph: Graph, features: NetworkFeatures, rows: str) -> str:
    """One layer of random units."""
    made = entry_of(NETWORKS, features.network_)
    if made is None:
        raise ExportError(
            "NetworkFeatures(layers='sketched') of a tangent kernel sketches by fast transforms, "
            "which would become huge matrices: use layers='one'"
        )
    return made(graph, features.network_, rows)


def _layer(graph: Graph, network: Layer, rows: str) -> str:
    width = np.sqrt(unit_scale(network.order, len(network.directions)) / network.size)
    values = _units(graph, graph.op("MatMul", rows, network.directions), network.order)
    return graph.op("Mul", values, np.full((1, network.size), width))


def _activation(graph: Graph, network: ActivationLayer, rows: str) -> str:
    """Products of low degrees, and units with the polynomials of the other ones."""
    unit, amplitudes = _polar(graph, network.kernel, rows)
    parts = []
    for k, monomials in network.monomials.items():
        weights = network.exact[k] * monomials.weights[None]
        if len(monomials.coordinates) == 0:
            parts.append(graph.op("Mul", graph.ones(rows, weights.shape[1]), weights))
            continue
        product = graph.columns(unit, monomials.coordinates[0])
        for places in monomials.coordinates[1:]:
            product = graph.op("Mul", product, graph.columns(unit, places))
        parts.append(graph.op("Mul", product, weights))
    (d, n_units), order = network.directions.shape, network.order
    if n_units:
        cosines, total = _cosines(graph, unit, network.directions), ""
        if order is not None:
            scale = np.full((1, n_units), np.sqrt(unit_scale(order, d) / n_units))
            total = graph.op("Mul", _units(graph, cosines, order), scale)
        slopes, drops = recurrence(len(network.coefficients) - 1, d)
        found = _polynomials(graph, cosines, np.append(slopes, 0.0), np.append(drops, 0.0))
        for a, polynomial in zip(network.coefficients, found, strict=False):
            if a != 0.0:
                term = graph.op("Mul", polynomial, np.full((1, n_units), a * n_units**-0.5))
                total = graph.op("Add", total, term) if total else term
        parts.append(total)
    return graph.op("Mul", graph.join(parts), amplitudes)


def _polar(graph: Graph, kernel: Any, rows: str) -> tuple[str, str]:
    """Rows of length 1, and the power of their length that the kernel has: (n, d) and (n, 1)."""
    unit, length = _unit(graph, rows)
    there = graph.flags(graph.op("Greater", length, 0.0))
    power = graph.op("Pow", length, float(kernel.length_power))
    return unit, graph.op("Mul", there, power)


def _unit(graph: Graph, rows: str) -> tuple[str, str]:
    """Rows divided by their lengths, and the lengths (n, 1); zero rows stay."""
    length = graph.op("Sqrt", graph.row_sum(graph.op("Mul", rows, rows)))
    return graph.op("Div", rows, graph.op("Max", length, SHORTEST)), length


def _cosines(graph: Graph, unit: str, directions: NDArray[np.float64]) -> str:
    product = graph.op("MatMul", unit, directions)
    return graph.op("Max", graph.op("Min", product, 1.0), -1.0)


def _units(graph: Graph, values: str, order: int) -> str:
    """a^order where a > 0, else 0."""
    if order == 0:
        return graph.flags(graph.op("Greater", values, 0.0))
    positive = graph.op("Max", values, 0.0)
    return positive if order == 1 else graph.op("Mul", positive, positive)


def _polynomials(
    graph: Graph, t: str, slopes: NDArray[np.float64], drops: NDArray[np.float64]
) -> Any:
    """Yield Q_0 = 1, Q_1, ..., Q_(l+1) = slopes[l] t Q_l - drops[l] Q_(l-1): one for each slope."""
    before, now = "", graph.op("Add", graph.op("Mul", t, 0.0), 1.0)
    for i, (slope, drop) in enumerate(zip(slopes, drops, strict=True)):
        yield now
        if i + 1 == len(slopes):
            return
        after = graph.op("Mul", graph.op("Mul", t, now), slope)
        if drop != 0.0:
            after = graph.op("Sub", after, graph.op("Mul", before, drop))
        before, now = now, after


NETWORKS: dict[type, Callable[[Graph, Any, str], str]] = {
    Layer: _layer,
    ActivationLayer: _activation,
}
