"""Numbers as people read them: one unit a column, three or four digits, GiB for memory."""

from __future__ import annotations

import math
from collections.abc import Iterable

from meshwright.i18n import N_, _

GIB = 2.0**30
_LONG = ((86400.0, N_("{value} days")), (3600.0, N_("{value} hours")), (60.0, N_("{value} minutes")))


def gib(value_bytes: float) -> str:
    """Bytes as GiB with one digit behind the point."""
    return at_least(value_bytes / GIB, 1)


def seconds_unit(values_s: Iterable[float]) -> tuple[float, str]:
    """One unit for a whole column: (factor to seconds, symbol), chosen by the largest value."""
    largest = max((abs(value) for value in values_s), default=0.0)
    return (1.0, "s") if largest >= 1.0 else (1e-3, "ms")


def column(values: Iterable[float], significant: int = 4) -> list[str]:
    """Values with equal decimals: the largest gets ``significant`` digits, the points stand below each other."""
    listed = list(values)
    largest = max((abs(value) for value in listed), default=0.0)
    places = min(6, max(0, significant - 1 - math.floor(math.log10(largest)))) if largest else 0
    return [at_least(value, places) for value in listed]


def at_least(value: float, places: int) -> str:
    """``value`` with ``places`` decimals; one that would round to zero without being it says so: ``<0.001``."""
    smallest = 10.0**-places
    return f"<{smallest:.{places}f}" if 0 < value < smallest / 2 else f"{value:,.{places}f}"


def digits(value: float, significant: int = 3) -> str:
    """``significant`` digits without exponent: 12.3, 1.23, 0.123, 1,234."""
    if not math.isfinite(value):
        return "-"
    places = significant - 1 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, min(places, 6))}f}"


def step(value_s: float) -> str:
    """A step time with its unit."""
    factor, unit = seconds_unit([value_s])
    return f"{digits(value_s / factor)} {unit}"


def interval(low_s: float, high_s: float) -> str:
    """``5.11-6.83 s``: both ends in one unit."""
    factor, unit = seconds_unit([high_s])
    return f"{digits(low_s / factor)}-{digits(high_s / factor)} {unit}"


def percent(ratio: float, places: int = 0) -> str:
    """A ratio as percent, without the sign."""
    return at_least(100 * ratio, places)


def change(ratio: float) -> str:
    """How a ratio moves the step: ``+3.2%``, ``-12%``, or that it does not."""
    moved = 100 * (ratio - 1)
    if abs(moved) < 0.05:
        return _("no change")
    return f"{moved:+.0f}%" if abs(moved) >= 10 else f"{moved:+.1f}%"


def long_time(value_s: float, until_s: float | None = None) -> str:
    """Minutes, hours or days; with ``until_s`` a range in one unit."""
    for factor, text in _LONG:
        if value_s >= 2 * factor:
            end = "" if until_s is None else f"-{digits(until_s / factor)}"
            return _(text).format(value=digits(value_s / factor) + end)
    return step(value_s) if until_s is None else interval(value_s, until_s)


def count(value: float) -> str:
    """A count of tokens: 1.4 T, 300 B."""
    for factor, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if value >= factor:
            return f"{value / factor:.4g}{suffix}"
    return f"{value:,.0f}"


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    """``value`` with the largest of the units it reaches, else the last."""
    factor, unit = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    return f"{digits(value / factor)} {unit}"


def usd(value: float) -> str:
    """An amount of money: 1.61M USD, 480 USD."""
    return _scaled(value, ((1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))).replace(" ", "") + " USD"


def energy(value_j: float) -> str:
    """Energy as it is billed: MWh, kWh."""
    return _scaled(value_j / 3.6e6, ((1e6, "GWh"), (1e3, "MWh"), (1.0, "kWh")))


def power(value_w: float) -> str:
    """Power of a site: MW, kW."""
    return _scaled(value_w, ((1e6, "MW"), (1e3, "kW"), (1.0, "W")))


def size(value_bytes: float) -> str:
    """Bytes as storage is sold: TB, GB."""
    return _scaled(value_bytes, ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")))
