"""How kernels print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelsieve.kernels.warps import Warp

SHOWN = 6  # rates in a repr


def product_text(
    rates: float | Sequence[float],
    families: str | Sequence[str],
    warps: Sequence[Warp] | None,
) -> str:
    """A product kernel with its first rates, its families and what its warps are."""
    warped = "" if warps is None else f", warps={_counted(warp.kind for warp in warps)}"
    return f"Product(rates={_rates(rates)}, families={_families(families)}{warped})"


def _rates(rates: float | Sequence[float]) -> str:
    if isinstance(rates, float | int):
        return f"{rates:g}"
    shown = [f"{rate:.4g}" for rate in rates]
    if len(shown) > SHOWN:
        active = sum(rate > 0 for rate in rates)
        shown = [*shown[:SHOWN], f"... ({active} of {len(shown)} columns active)"]
    return f"[{', '.join(shown)}]"


def _families(families: str | Sequence[str]) -> str:
    if isinstance(families, str):
        return repr(families)
    if len(set(families)) == 1:
        return repr(families[0])
    return repr(list(families)) if len(families) <= SHOWN else _counted(families)


def _counted(names: Iterable[str]) -> str:
    """'12 x laplacian, 3 x categorical', in order of appearance."""
    names = list(names)
    counts = {name: names.count(name) for name in names}
    return "<" + ", ".join(f"{count} x {name}" for name, count in counts.items()) + ">"
