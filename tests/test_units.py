"""Quantities: text in, SI out, bare numbers refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.units import (
    EXAMPLES,
    UNITS,
    format_bytes,
    format_count,
    format_duration,
    format_ratio,
    format_seconds,
    format_usd,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GiB", "bytes", 80 * 2**30),
        ("80GB", "bytes", 80e9),
        ("3.35 TB/s", "bytes_per_s", 3.35e12),
        ("200 Gb/s", "bytes_per_s", 25e9),
        ("200Gbps", "bytes_per_s", 25e9),
        ("312 TFLOP/s", "flops_per_s", 312e12),
        ("1.4T", "count", 1.4e12),
        ("2048", "count", 2048),
        ("12.3 ms", "s", 0.0123),
        ("1,410 MHz", "hz", 1.41e9),
    ],
)
def test_text_to_si(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "dimension", "code", "hint"),
    [
        ("80", "bytes", "MW-E111", "80 GiB"),
        ("80 GiBs", "bytes", "MW-E112", "GiB"),
        ("200 gb/s", "bytes_per_s", "MW-E112", "GB/s"),
        ("80 TB", "bytes_per_s", "MW-E112", "TB"),
        ("-3 GiB", "bytes", "MW-E113", "80 GiB"),
        ("eighty", "bytes", "MW-E110", "80 GiB"),
        ("", "bytes", "MW-E110", "80 GiB"),
        ("inf GiB", "bytes", "MW-E110", "80 GiB"),
    ],
)
def test_one_clear_refusal(text: str, dimension: str, code: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_quantity(text, dimension, where="--max-memory")
    assert caught.value.code == code
    assert caught.value.where == "--max-memory"
    assert hint in (caught.value.nearest or "")


@pytest.mark.parametrize("dimension", UNITS)
def test_every_example_parses(dimension: str) -> None:
    assert parse_quantity(EXAMPLES[dimension], dimension) > 0


@given(st.floats(min_value=1e-9, max_value=1e15), st.sampled_from(sorted(UNITS["bytes"])))
def test_units_scale(number: float, unit: str) -> None:
    assert math.isclose(parse_quantity(f"{number!r} {unit}", "bytes"), number * UNITS["bytes"][unit])


def test_formats() -> None:
    assert format_bytes(80 * 2**30) == "80.0 GiB"
    assert format_bytes(5 * 2**20) == "5.0 MiB"
    assert format_seconds(1.5e-3) == "1.50 ms"
    assert format_seconds(21.3 * 86400) == "21.3 days"
    assert format_seconds(90) == "90.0 s"
    assert format_count(1.4e12) == "1.40T"
    assert format_count(65_285_660_672) == "65.3B"


def test_long_times_money_and_ratios_in_words() -> None:
    assert format_duration(21.3 * 86400) == "21.3 days"
    assert format_duration(40 * 3600.0, 60 * 3600.0) == "40.0-60.0 hours"
    assert format_duration(90.0) == "90.0 seconds"
    assert format_duration(600.0) == "10.0 minutes"
    assert [format_usd(value) for value in (940.0, 18_400.0, 2.1e6, 3e9)] == [
        "940 USD", "18.4k USD", "2.10M USD", "3.00B USD",
    ]  # fmt: skip
    assert format_ratio(0.824) == "82"


def test_a_message_carries_the_example_of_its_flag() -> None:
    with pytest.raises(InputError, match="10d"):
        parse_quantity("10", "s", where="--deadline", example="10d")
