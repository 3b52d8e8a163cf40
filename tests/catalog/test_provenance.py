"""Dimensions follow from field names; values carry their facts."""

from __future__ import annotations

import pytest

from meshwright.catalog.provenance import Provenance, dimension_of
from meshwright.errors import InputError
from meshwright.specs.hardware import Gpu, Nic, Node
from meshwright.specs.price import Price


@pytest.mark.parametrize(
    ("field", "dimension"),
    [
        ("memory_bytes", "bytes"),
        ("bytes_per_s", "bytes_per_s"),
        ("peak_flops_per_s", "flops_per_s"),
        ("tdp_w", "w"),
        ("boost_clock_hz", "hz"),
        ("latency_s", "s"),
        ("sm_count", None),
        ("year", None),
        ("gpus_per_node", None),
    ],
)
def test_dimension_of(field: str, dimension: str | None) -> None:
    assert dimension_of(field) == dimension


def test_every_quantity_of_the_hardware_nouns_has_a_dimension() -> None:
    for noun in (Gpu, Nic, Node, Price):
        for name, field in noun.model_fields.items():
            quantity = "BeforeValidator" in f"{field.metadata}{field.annotation}" or name == "peak_flops_per_s"
            quantity &= name != "date"
            assert quantity == (dimension_of(name) is not None), name


def test_a_value_is_parsed_and_remembered() -> None:
    data = {"source": "a", "label": "vendor", "sources": {"a": "Sheet A", "b": "Sheet B"}}
    provenance = Provenance.of(data, "x.toml")
    assert provenance.value("tdp_w", "400 W", "w") == 400.0
    assert provenance.value("tied", True, None) is True
    assert provenance.value("bytes_per_s", {"value": "200 Gb/s", "source": "b"}, "bytes_per_s") == 25e9
    assert provenance.facts["bytes_per_s"].model_dump() == {"text": "200 Gb/s", "source": "Sheet B", "label": "vendor"}
    assert provenance.facts["tied"].text == "true"
    with pytest.raises(InputError, match=r"x.toml: a: 'note' does not belong"):
        provenance.value("a", {"value": 1, "note": "?"}, None)
    with pytest.raises(InputError, match="sources"):
        Provenance.of({"sources": ["a"]}, "x.toml")
