"""The first sentence: what was asked, the answer, how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.cli import numbers
from meshwright.costmodel.interval import OFF_GROUND
from meshwright.i18n import _
from meshwright.specs.estimate import Estimate
from meshwright.specs.plan import Bought, Condition, Totals
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


def not_validated(estimate: Estimate) -> str | None:
    """What of the layout no measured run was compared with; None where nothing is."""
    if not estimate.not_validated:
        return None
    reasons = ", ".join(_(OFF_GROUND[reason]) for reason in estimate.not_validated)
    return _("Not validated by measured runs, so the interval is wider: {reasons}.").format(reasons=reasons)


def training(tokens: float, time_s: float, interval_s: tuple[float, float] | None, whole: Totals) -> str:
    """How long the whole training takes without and with failures, what it costs and draws."""
    if interval_s is None:
        said = _("{tokens} tokens take {time} without failures").format(
            tokens=numbers.count(tokens), time=numbers.long_time(time_s)
        )
    else:
        said = _("{tokens} tokens take {time} without failures (80%: {interval})").format(
            tokens=numbers.count(tokens),
            time=numbers.long_time(time_s),
            interval=numbers.long_time(*interval_s),
        )
    failing = whole.time_to_train_with_failures_s
    if failing is None or whole.energy_j is None or whole.mean_power_w is None:
        return _("{sentence}.").format(sentence=said)
    said = _("{sentence}, {p50} with them (90%: at most {p90}).").format(
        sentence=said, p50=numbers.long_time(failing["p50"]), p90=numbers.long_time(failing["p90"])
    )
    drawn = _("It draws {energy}, {power} on average.").format(
        energy=numbers.energy(whole.energy_j), power=numbers.power(whole.mean_power_w)
    )
    return " ".join(filter(None, (said, _cost(whole), drawn)))


def _cost(whole: Totals) -> str:
    if whole.cost_usd is None or whole.price is None:
        return ""
    paid = ", ".join(str(whole.price[name]) for name in ("provider", "tier", "date") if whole.price[name])
    return _("It costs {cost} at {rate} USD a GPU-hour ({paid}).").format(
        cost=numbers.usd(whole.cost_usd), rate=numbers.digits(whole.price["usd_per_gpu_hour"]), paid=paid
    )


def condition(asked: Condition) -> str:
    """Whether a limit is kept, by how much, and which larger cluster would keep it."""
    if asked.name == "deadline":
        limit, value = numbers.long_time(asked.limit), numbers.long_time(asked.value)
    else:
        limit, value = numbers.usd(asked.limit), numbers.usd(asked.value)
    name = {"deadline": _("deadline"), "budget": _("budget")}[asked.name]
    if asked.met:
        return _("The {name} of {limit} is kept: {value}.").format(name=name, limit=limit, value=value)
    said = _("The {name} of {limit} is missed: the nearest is {value} ({change}).").format(
        name=name, limit=limit, value=value, change=numbers.change(asked.value / asked.limit)
    )
    if asked.remedy is None:
        return said
    return said + " " + _("{path}={setting} keeps it.").format(path=asked.remedy.path, setting=asked.remedy.value)


def needed(needs: Mapping[str, float | None], whole: Totals) -> str:
    """What storage, loader, hosts and building must deliver."""
    every_s = (whole.failures or {}).get("checkpoint_interval_s")
    said = _(
        "Checkpoints of {size} at {rate}/s, best every {every}; {tokens} tokens/s from the loader; {host} of memory a "
        "host; {power} at peak."
    )
    return said.format(
        size=numbers.size(needs["checkpoint_bytes"] or 0.0),
        rate=numbers.size(needs["checkpoint_bytes_per_s"] or 0.0),
        every=numbers.long_time(every_s) if every_s is not None else "-",
        tokens=numbers.count(needs["loader_tokens_per_s"] or 0.0),
        host=numbers.size(needs["host_bytes"] or 0.0),
        power=numbers.power(needs["power_w"] or 0.0),
    )


def buys(bought: Bought) -> str:
    """What twice the adapters of a node buy."""
    return _("Twice the adapters ({count} a node): {change} a step.").format(
        count=bought.change.value, change=numbers.change(bought.step_time_ratio)
    )


def name_of(entry: Any) -> str:
    """A name out of a plan's description of model or cluster."""
    return str(entry.get("name") or entry.get("text") or "?")
