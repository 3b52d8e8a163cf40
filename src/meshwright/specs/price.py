"""Price: what a GPU costs by the hour, at one provider, on one date."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from meshwright.specs.fact import CatalogEntry
from meshwright.units import Usd, UsdPerHour

#: How a GPU is paid for. ``given``: a rate the reader stated. Where nothing was chosen the first one known counts.
Tier = Literal["on-demand", "given", "reserved-1y", "reserved-3y", "capacity-block", "spot", "purchase"]
TIERS: tuple[Tier, ...] = get_args(Tier)
HOURS_PER_YEAR = 8766.0


class Price(CatalogEntry):
    """What ``gpu_count`` GPUs of one product cost: ``usd_per_hour`` rented, or ``purchase_usd`` over ``life_years``.

    ``date`` is when the price held, as precise as it is known: ``2026``, ``2026-11`` or ``2026-11-09``. A purchase
    counts the hardware alone, paid off in equal parts and used all the time; energy, space and people come on top.
    """

    provider: str
    product: str
    gpu: str
    gpu_count: PositiveInt
    tier: Tier
    region: str
    date: Annotated[str, BeforeValidator(str), Field(pattern=r"^(\d{4}(-\d{2}(-\d{2})?)?)?$")]
    usd_per_hour: UsdPerHour | None = None
    purchase_usd: Usd | None = None
    life_years: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _one_of(self) -> Price:
        bought = self.purchase_usd is not None and self.life_years is not None
        if (self.tier == "purchase") != bought or (self.usd_per_hour is None) != bought:
            raise ValueError("a purchase has purchase_usd and life_years, any other tier usd_per_hour")
        return self

    @property
    def usd_per_gpu_hour(self) -> float:
        """USD for one GPU for one hour."""
        if self.usd_per_hour is not None:
            return self.usd_per_hour / self.gpu_count
        return (self.purchase_usd or 0.0) / ((self.life_years or 1.0) * HOURS_PER_YEAR * self.gpu_count)
