"""The first sentence: what was asked, the answer, how sure it is."""

from __future__ import annotations

from typing import Any

from meshwright.cli import numbers
from meshwright.i18n import _
from meshwright.specs.estimate import Estimate
from meshwright.verbs.command import layout_text


def fit(estimate: Estimate) -> str:
    """Whether it fits and by how much."""
    memory = estimate.memory
    spare = memory.capacity_bytes - memory.peak_reserved_bytes
    if memory.fits == "yes":
        return _("fits with {spare} GiB to spare").format(spare=numbers.gib(spare))
    if memory.fits == "tight":
        return _(
            "fits only tightly: may run out of memory by fragmentation (allocated peak {allocated} of {capacity} GiB, "
            "reserved {reserved})"
        ).format(
            allocated=numbers.gib(memory.peak_allocated_bytes),
            capacity=numbers.gib(memory.capacity_bytes),
            reserved=numbers.gib(memory.peak_reserved_bytes),
        )
    over = memory.peak_allocated_bytes - memory.capacity_bytes
    return _("does not fit: {missing} GiB too much").format(missing=numbers.gib(max(over, 0.0)))


def tight_faster(chosen: Estimate, faster: Estimate) -> str:
    """The layout that would be faster but fits only tightly: which, by how much, its memory."""
    return _(
        "Faster by {gain}% but only tight (may run out of memory by fragmentation): {layout}; reserved {reserved} of "
        "{capacity} GiB."
    ).format(
        gain=numbers.percent(1.0 - faster.step_time_s / chosen.step_time_s, 1),
        layout=layout_text(faster.layout).replace(",", " "),
        reserved=numbers.gib(faster.memory.peak_reserved_bytes),
        capacity=numbers.gib(faster.memory.capacity_bytes),
    )


def sentence(model: str, cluster: str, estimate: Estimate) -> str:
    """Model, place, layout, step with interval, rate, MFU and fit in one sentence."""
    low_s, high_s = estimate.step_time_interval_s
    return _(
        "{model} on {cluster}: {step} a step (80%: {interval}) with {layout}; {rate} tokens/s/GPU, {mfu}% MFU, {fit}."
    ).format(
        model=model,
        cluster=cluster,
        step=numbers.step(estimate.step_time_s),
        interval=numbers.interval(low_s, high_s),
        layout=layout_text(estimate.layout).replace(",", " "),
        rate=numbers.digits(estimate.tokens_per_s_per_gpu),
        mfu=numbers.percent(estimate.mfu_ratio),
        fit=fit(estimate),
    )


def training(tokens: float, time_s: float, interval_s: tuple[float, float] | None) -> str:
    """How long the whole training takes."""
    if interval_s is None:
        return _("{tokens} tokens take {time}, failures not counted.").format(
            tokens=numbers.count(tokens), time=numbers.long_time(time_s)
        )
    return _("{tokens} tokens take {time} (80%: {interval}), failures not counted.").format(
        tokens=numbers.count(tokens),
        time=numbers.long_time(time_s),
        interval=numbers.long_time(*interval_s),
    )


def name_of(entry: Any, key: str) -> str:
    """A name out of a plan's description of model or cluster."""
    return str(entry.get(key) or entry.get("name") or "?")
