"""Sites and records of failures: what is filled in, what stays as said, and that the data is what was counted."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import cast

import pytest

from meshwright import catalog
from meshwright.specs.site import Reliability, Site


def test_everything_is_filled_and_told() -> None:
    cluster, assumed = catalog.with_site(catalog.cluster("8xH100")[0])
    assert cluster.site.pue == 1.2
    assert cluster.site.restart_s == 600.0
    assert cluster.site.storage_bytes_per_s == 1e9
    assert cluster.site.failures_per_1000_node_days == 3.79
    assert {item.name for item in assumed} == set(Site.model_fields) - {"name", "aliases", "facts"}
    for item in assumed:
        assert item.why
        assert item.alternative is not None
        assert item.alternative.value != item.value
        assert item.total is not None


def test_what_was_said_stays() -> None:
    place = catalog.cluster("8xH100")[0]
    said = place.model_copy(update={"site": Site(pue=1.05)})
    cluster, assumed = catalog.with_site(said)
    assert cluster.site.pue == 1.05
    assert "pue" not in {item.name for item in assumed}
    assert catalog.with_site(cluster) == (cluster, ())


@pytest.mark.parametrize(
    ("gpu", "rate"),
    [("8xA100-80GB", 6.5), ("8xH200", 3.79), ("8xB200", 2.89), ("8xV100-32GB", 6.5)],
    ids=["its own", "of its generation", "the only one", "of any: none has it"],
)
def test_the_rate_is_that_of_the_likest_cluster(gpu: str, rate: float) -> None:
    assert catalog.with_site(catalog.cluster(gpu)[0])[0].site.failures_per_1000_node_days == rate


def test_records_are_what_was_counted(shared: Path) -> None:
    """Rates of the catalog against events over node-days of the shared table."""
    records = {name: cast("Reliability", catalog.entry("reliability", name)) for name in catalog.names("reliability")}
    with (shared / "data" / "ops" / "failure_rates.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    counted = 0
    for row in rows:
        alike = [r for r in records.values() if (r.n_gpus, r.days) == (int(row["gpus"]), float(row["window_days"]))]
        rates = {record.failures_per_1000_node_days for record in alike}
        if "attributed" in row["system"]:
            continue
        assert float(row["rate_per_1000_node_days"]) in rates, row["system"]
        if row["events"]:
            node_days = int(row["gpus"]) / int(row["node_gpus"]) * float(row["window_days"])
            assert 1000 * float(row["events"]) / node_days == pytest.approx(next(iter(rates)), rel=0.005)
            counted += 1
    assert counted == 4


def test_interruptions_of_llama_3_add_up(shared: Path) -> None:
    with (shared / "data" / "ops" / "llama3_interruptions.csv").open(encoding="utf-8") as file:
        total = sum(int(row["count"]) for row in csv.DictReader(file))
    record = cast("Reliability", catalog.entry("reliability", "llama-3"))
    assert record.failures_per_1000_node_days == pytest.approx(1000 * total / record.node_days, rel=1e-3)
