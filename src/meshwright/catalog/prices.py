"""Prices of a GPU: those the catalog knows, newest first, and the one that a text means."""

from __future__ import annotations

from typing import cast

from meshwright.catalog import loader
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import Fact
from meshwright.specs.price import TIERS, Price
from meshwright.units import parse_quantity

_EXAMPLE = "2.5 USD/GPUh"


def prices(gpu: str | None = None, *, tier: str | None = None, provider: str | None = None) -> tuple[Price, ...]:
    """The prices of the GPU called ``gpu`` (any GPU where None), on-demand ones before other tiers.

    Within a tier the newest comes first, and of one day the cheapest. Raises InputError MW-E201 for an unknown GPU,
    MW-E203..MW-E206 for a wrong file.
    """
    called = None
    if gpu is not None:
        entry = loader.entry("gpu", gpu, where="--price")
        called = {loader.fold(name) for name in (entry.name, *entry.aliases)}
    found = [
        cast("Price", loader.build(written))
        for written in loader.written_entries("price")
        if called is None or loader.fold(str(written.data.get("gpu"))) in called
    ]
    found = [
        each
        for each in found
        if (tier is None or each.tier == tier)
        and (provider is None or loader.fold(each.provider) == loader.fold(provider))
    ]
    found.sort(key=lambda each: each.usd_per_gpu_hour)
    found.sort(key=lambda each: each.date, reverse=True)
    return tuple(sorted(found, key=lambda each: TIERS.index(each.tier)))


def price(text: str, gpu: str, *, where: str = "--price") -> Price:
    """The price that ``text`` means for the GPU called ``gpu``.

    ``text``: a rate (``2.5 USD/GPUh``), the name of a catalog price, or a tier or provider, of which the newest
    counts. Raises InputError MW-E230 (no such price for this GPU), MW-E110..MW-E113 (not a rate).
    """
    said = text.strip()
    canonical = loader.entry("gpu", gpu, where=where).name
    if said.startswith(("$", *"+-.0123456789")):
        return _given(said, canonical, where)
    known = prices(canonical)
    folded = loader.fold(said)
    found = next(
        (each for each in known if folded in {loader.fold(name) for name in (each.name, *each.aliases)}), None
    ) or next((each for each in known if folded in {loader.fold(each.tier), loader.fold(each.provider)}), None)
    if found is None:
        words = dict.fromkeys(word for each in known for word in (each.tier, each.provider, each.name))
        raise InputError(
            "MW-E230",
            _("'{text}' is no price of the catalog for {gpu}.").format(text=said, gpu=canonical),
            where=where,
            nearest=_("{guess} Or write it like '{example}'.").format(guess=did_you_mean(said, words), example=_EXAMPLE)
            if words
            else _("Write it like '{example}'.").format(example=_EXAMPLE),
        )
    return found


def _given(text: str, gpu: str, where: str) -> Price:
    """The rate that was typed, for one GPU and hour; ``$2.5/GPUh`` as well as ``2.5 $/GPUh``."""
    number, slash, per = text.removeprefix("$").partition("/")
    turned = f"{number} ${slash}{per}" if text.startswith("$") else text
    rate = parse_quantity(turned, "usd_per_gpu_hour", where=where)
    fact = Fact(text=text, source=where, label="inferred")
    return Price(
        name=text,
        facts={"usd_per_hour": fact},
        provider="",
        product="",
        gpu=gpu,
        gpu_count=1,
        tier="given",
        region="",
        date="",
        usd_per_hour=rate,
    )
