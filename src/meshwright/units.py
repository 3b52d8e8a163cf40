"""Quantities with units: text in, SI numbers out. A bare number is refused where a unit is needed.

Text uses memory in GiB, links in GB/s or Gb/s, arithmetic in TFLOP/s; code uses SI (bytes, bytes/s, FLOP/s, s, W, Hz).
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import N_, _

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def _bytes_units() -> dict[str, float]:
    units = {prefix + "B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}
    units |= {prefix + "b": factor / 8 for prefix, factor in _DECIMAL.items() if prefix}
    return units


_BYTES = _bytes_units()
_TIME = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "days": 86400.0}
_TIME |= {"hours": 3600.0, "day": 86400.0, "weeks": 604800.0, "week": 604800.0, "w": 604800.0}
_MONEY = {
    f"{prefix}{space}{money}": factor
    for prefix, factor in (("", 1.0), ("k", 1e3), ("K", 1e3), ("M", 1e6), ("million", 1e6), ("B", 1e9))
    for space in ("", " ")
    for money in ("USD", "$")
}

#: dimension -> unit text -> factor to SI
UNITS: dict[str, dict[str, float]] = {
    "bytes": _BYTES,
    "bytes_per_s": {unit + per: factor for unit, factor in _BYTES.items() for per in ("/s", "ps")},
    "flops_per_s": {
        prefix + unit: factor for prefix, factor in _DECIMAL.items() for unit in ("FLOP/s", "FLOPS", "FLOPs")
    },
    "s": _TIME,
    "w": {"mW": 1e-3, "W": 1.0, "kW": 1e3, "MW": 1e6},
    "hz": {prefix + "Hz": factor for prefix, factor in _DECIMAL.items()},
    "usd": _MONEY,
    "usd_per_hour": {"USD/h": 1.0, "$/h": 1.0},
    "usd_per_gpu_hour": {money + per: 1.0 for money in ("USD", "$") for per in ("/GPUh", "/GPU-h", "/GPU/h")},
    "count": {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12},
}
EXAMPLES = {
    "bytes": "80 GiB",
    "bytes_per_s": "200 Gb/s",
    "flops_per_s": "312 TFLOP/s",
    "s": "12.3 s",
    "w": "400 W",
    "hz": "1410 MHz",
    "usd": "2.5 USD",
    "usd_per_hour": "2.5 USD/h",
    "usd_per_gpu_hour": "2.5 USD/GPUh",
    "count": "1.4T",
}
_QUANTITY = re.compile(r"^\s*([-+]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S.*?)?\s*$")


def parse_quantity(value: object, dimension: str, where: str | None = None, *, example: str | None = None) -> float:
    """A quantity in SI units.

    ``value`` is text such as ``"80 GiB"``; ``dimension`` a key of UNITS. Numbers without a unit are accepted for
    ``count`` only. Raises InputError (code MW-E110..MW-E113) naming ``where`` and an ``example`` otherwise.
    """
    example = EXAMPLES[dimension] if example is None else example
    units = UNITS[dimension]
    match = (
        _QUANTITY.match(str(value)) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    )
    if match is None:
        raise InputError(
            "MW-E110",
            _("'{value}' is not a quantity.").format(value=value),
            where=where,
            nearest=_("Write it like '{example}'.").format(example=example),
        )
    number, unit = float(match[1].replace(",", "").replace("_", "")), match[2] or ""
    if unit not in units:
        if not unit:
            raise InputError(
                "MW-E111",
                _("'{value}' has no unit.").format(value=value),
                where=where,
                nearest=_("Write it like '{example}'.").format(example=example),
            )
        raise InputError(
            "MW-E112",
            _("'{unit}' is not a unit of {dimension}.").format(unit=unit, dimension=dimension),
            where=where,
            nearest=_nearest_unit(unit, [known for known in units if known]),
        )
    if number < 0 or not math.isfinite(number * units[unit]):
        raise InputError(
            "MW-E113",
            _("'{value}' must be a finite number, zero or more.").format(value=value),
            where=where,
            nearest=_("Write it like '{example}'.").format(example=example),
        )
    return number * units[unit]


def _nearest_unit(unit: str, known: list[str]) -> str:
    """Capitals matter in units (Mb is an eighth of MB), so every unit that differs in capitals only is offered."""
    alike = [candidate for candidate in known if candidate.casefold() == unit.casefold()]
    if alike:
        return _("Did you mean {name}?").format(name=_(" or ").join(alike))
    return did_you_mean(unit, list(dict.fromkeys(name.strip() for name in known)), show=12, fold_case=False)


def _validator(dimension: str) -> BeforeValidator:
    def parse(value: Any) -> float:
        # Nouns built in code carry SI numbers already; text is where units live.
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        return parse_quantity(value, dimension)

    return BeforeValidator(parse)


Bytes = Annotated[float, _validator("bytes")]
BytesPerS = Annotated[float, _validator("bytes_per_s")]
FlopsPerS = Annotated[float, _validator("flops_per_s")]
Seconds = Annotated[float, _validator("s")]
Watts = Annotated[float, _validator("w")]
Hertz = Annotated[float, _validator("hz")]
Usd = Annotated[float, _validator("usd")]
UsdPerHour = Annotated[float, _validator("usd_per_hour")]


def format_bytes(value: float) -> str:
    """Memory as people write it: GiB above one, MiB below."""
    return f"{value / 2**30:.1f} GiB" if abs(value) >= 2**30 else f"{value / 2**20:.1f} MiB"


def format_seconds(value: float) -> str:
    """A duration with three significant digits and a fitting unit."""
    for factor, unit in ((86400.0, "days"), (3600.0, "h"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if (
            abs(value) >= factor
            and not (unit == "h" and value < 2 * 3600)
            and not (unit == "days" and value < 2 * 86400)
        ):
            return f"{_significant(value / factor)} {unit}"
    return f"{value * 1e9:.0f} ns" if value else "0 s"


#: From how many seconds on, seconds of the unit, text.
_LONG = (
    (2 * 86400.0, 86400.0, N_("{value} days")),
    (2 * 3600.0, 3600.0, N_("{value} hours")),
    (2 * 60.0, 60.0, N_("{value} minutes")),
)


def format_duration(value_s: float, until_s: float | None = None) -> str:
    """A long time in words of the user's language; with ``until_s`` a range in one unit."""
    factor, text = next(
        ((factor, text) for least, factor, text in _LONG if value_s >= least), (1.0, N_("{value} seconds"))
    )
    end = "" if until_s is None else f"-{_significant(until_s / factor)}"
    return _(text).format(value=_significant(value_s / factor) + end)


def format_ratio(value: float) -> str:
    """A ratio in percent, without the sign: 82."""
    return f"{100 * value:.0f}"


def format_usd(value: float) -> str:
    """Money with three significant digits: 940 USD, 18.4k USD, 2.10M USD."""
    for factor, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{_significant(value / factor)}{suffix} USD"
    return f"{_significant(value)} USD"


def format_count(value: float) -> str:
    """A count with k, M, B, T."""
    for factor, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= factor:
            return f"{_significant(value / (1e3 if suffix == 'k' else factor))}{suffix}"
    return f"{value:g}"


def _significant(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:.{digits}f}"
