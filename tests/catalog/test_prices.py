"""Prices: every one dated, the newest on-demand first, and what people write for --price."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright import catalog
from meshwright.errors import InputError
from meshwright.specs.price import TIERS, Price

EVERY = catalog.prices()


def test_every_price_is_dated_and_of_a_known_gpu() -> None:
    assert len(EVERY) >= 40
    for each in EVERY:
        assert each.date[:2] == "20", each.name
        assert each.gpu in catalog.names("gpu"), each.name
        assert each.region, each.name
        assert 0.01 < each.usd_per_gpu_hour < 50.0, each.name


@pytest.mark.parametrize("gpu", sorted({each.gpu for each in EVERY}))
def test_on_demand_comes_first_and_the_newest_of_a_tier(gpu: str) -> None:
    found = catalog.prices(gpu)
    assert {each.gpu for each in found} == {gpu}
    order = [(TIERS.index(each.tier), [-int(part) for part in each.date.split("-")]) for each in found]
    assert [tier for tier, _ in order] == sorted(tier for tier, _ in order)
    for tier in TIERS:
        dates = [each.date for each in catalog.prices(gpu, tier=tier)]
        assert dates == sorted(dates, reverse=True)


def test_an_instance_is_divided_by_its_gpus() -> None:
    # AWS p5.48xlarge, eight H100, 55.04 USD an hour on 2026-11-09 (6.88 as the same list prints it a GPU)
    found = catalog.price("aws-p5.48xlarge-on-demand-2026-11-09", "h100")
    assert found.usd_per_gpu_hour == pytest.approx(6.88)


@pytest.mark.parametrize("text", ["2.5 USD/GPUh", "$2.5/GPU-h", "2.50 $/GPU/h"])
def test_a_rate_is_taken_as_said(text: str) -> None:
    found = catalog.price(text, "RTX-4090")
    assert (found.usd_per_gpu_hour, found.tier, found.gpu) == (2.5, "given", "RTX-4090")
    assert found.facts["usd_per_hour"].source == "--price"


def test_a_tier_or_a_provider_means_its_newest() -> None:
    assert catalog.price("spot", "H100") == catalog.prices("H100", tier="spot")[0]
    assert catalog.price("aws", "H100") == catalog.prices("H100", provider="AWS")[0]
    assert catalog.price("lambda", "B200").provider == "Lambda"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("2.5", "MW-E111", "2.5 USD/GPUh"),
        # Of a whole instance or of one GPU? Nobody can tell.
        ("2.5 USD/h", "MW-E112", "USD/GPUh?"),
        ("azzure", "MW-E230", "Azure?"),
        ("aws-p4d.24xlarge-on-demand-2026-11-09", "MW-E230", "H100"),
        ("", "MW-E230", "on-demand"),
        ("$", "MW-E110", "2.5 USD/GPUh"),
    ],
)
def test_what_is_refused(text: str, code: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        catalog.price(text, "H100")
    assert caught.value.code == code
    assert caught.value.where == "--price"
    assert said in str(caught.value)


MINE = """
name = "mine"
source = "invoice"
label = "measured"
provider = "Us"
product = "rack"
gpu = "H100"
gpu_count = 8
tier = "purchase"
region = "here"
date = 2026-05-01
purchase_usd = "280 kUSD"
life_years = 5
[sources]
invoice = "Invoice 12, 2026-05-01"
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A price of the reader's own, in a directory of ``MESHWRIGHT_PATH``."""
    path = tmp_path / "catalog" / "price" / "mine.toml"
    path.parent.mkdir(parents=True)
    path.write_text(MINE)
    monkeypatch.setenv("MESHWRIGHT_PATH", str(tmp_path))
    return path


def test_a_purchase_is_paid_off_over_its_life(mine: Path) -> None:
    found: Price = catalog.price("mine", "H100-80GB-SXM")
    assert found.usd_per_gpu_hour == pytest.approx(280e3 / 8 / (5 * 365.25 * 24))
    assert found.date == "2026-05-01"
    assert catalog.prices("H100", tier="purchase")[0].name == "mine"
    assert catalog.prices("H100")[0].tier == "on-demand"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("life_years = 5", "", "MW-E205"),
        ('"purchase"', '"spot"', "MW-E205"),
        ('"purchase"', '"lease"', "MW-E205"),
        ('purchase_usd = "280 kUSD"', "purchase_usd = 280", "MW-E111"),
        ("date = 2026-05-01", 'date = "May"', "MW-E205"),
    ],
)
def test_a_wrong_price_file_is_refused(mine: Path, old: str, new: str, code: str) -> None:
    mine.write_text(MINE.replace(old, new))
    with pytest.raises(InputError, match=r"mine\.toml") as caught:
        catalog.prices("H100")
    assert caught.value.code == code
