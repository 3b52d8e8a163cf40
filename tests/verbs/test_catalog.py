"""The listing: every entry, one kind, one entry with its sources."""

from __future__ import annotations

import pytest

from meshwright.errors import InputError
from meshwright.verbs.catalog import catalog


def test_everything_is_listed_by_kind() -> None:
    rows = catalog().rows
    assert {row.kind for row in rows} == {"gpu", "model", "nic", "node", "price", "reliability", "site"}
    assert all(row.summary for row in rows)
    assert len({(row.kind, row.name) for row in rows}) == len(rows)


def test_one_kind() -> None:
    found = catalog("gpu")
    assert {row.kind for row in found.rows} == {"gpu"}
    assert any("312 TFLOP/s" in row.summary for row in found.rows), "the A100's dense bf16 peak"


def test_one_entry_has_a_source_for_each_value() -> None:
    found = catalog("gpu", "a100 80gb")
    values = {field.field: field for field in found.fields}
    assert values["memory_bytes"].text.startswith("80")
    assert all(field.source and field.label for field in found.fields)


def test_a_model_is_counted() -> None:
    found = catalog("model", "gpt3-175b")
    parameters = int(next(field.text for field in found.fields if field.field == "n_parameters"))
    assert parameters == pytest.approx(175e9, rel=0.01)


def test_a_name_alone_is_enough() -> None:
    assert catalog("h100").name == catalog("gpu", "h100").name


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(InputError, match="gpu"):
        catalog("gpuu")
    with pytest.raises(InputError, match="H100"):
        catalog("gpu", "h10")


def test_an_unknown_name_is_blamed_on_the_argument() -> None:
    with pytest.raises(InputError, match="not a GPU") as caught:
        catalog("gpu", "nope")
    assert caught.value.where == "NAME"


def test_prices_are_listed_for_a_gpu_and_shown_for_one() -> None:
    listed = catalog("price", "h100")
    assert len(listed.rows) > 10
    assert "6.88 USD/GPUh" in listed.rows[0].summary, "AWS's list price of 2026-11-09, the newest on-demand one"
    one = catalog("price", listed.rows[0].name)
    values = {field.field: field for field in one.fields}
    assert values["usd_per_gpu_hour"].text == "6.88 USD/GPUh"
    assert values["date"].text == "2026-11-09"
    assert all(field.source for field in one.fields)


def test_chips_known_from_the_community_alone_are_marked() -> None:
    marked = {row.name for row in catalog("gpu").rows if "community" in row.summary}
    assert {"H20-96GB-SXM", "MLU590", "BR100"} <= marked
    assert not marked & {"H100-80GB-SXM", "MI300X", "Ascend-910B2", "Gaudi3"}


def test_a_node_says_how_far_its_links_reach() -> None:
    rows = {row.name: row.summary for row in catalog("node").rows}
    assert "over 72 GPUs" in rows["GB200-tray"]
    assert "over" not in rows["HGX-H100"]
