"""``compare``: one job on several clusters; which is faster, which cheaper, and what a deadline or a budget needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from meshwright import catalog
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.plan.bounds import first
from meshwright.plan.resize import LARGEST_NODES, counts, node_gpus
from meshwright.scoring.interval import is_clear_lead
from meshwright.specs.compare import Candidate, CompareReport, Meets
from meshwright.specs.plan import Assumed
from meshwright.specs.price import Price
from meshwright.specs.report import Progress
from meshwright.specs.request import CompareRequest
from meshwright.specs.scale import Point
from meshwright.units import format_count, format_duration, format_usd, parse_quantity
from meshwright.verbs.document import check_writable, describe, render, write_whole
from meshwright.verbs.points import command_at, in_common, point, sized
from meshwright.verbs.resolve import Resolved, layout_values, resolve, with_site
from meshwright.verbs.searches import Searches, memory_limit
from meshwright.verbs.totals import price_for

#: Tokens a parameter where none were given: Hoffmann et al., Training compute-optimal LLMs, arXiv 2203.15556, table 3.
_TOKENS_PER_PARAMETER = 20.0
#: Searches that a deadline needs on one kind of cluster, for the progress: doublings, then halvings.
_SEARCHES_PER_DEADLINE = 16


@dataclass(frozen=True, slots=True)
class _Limits:
    deadline_s: float | None
    budget_usd: float | None


def compare(request: CompareRequest, on_progress: Callable[[Progress], None] | None = None) -> CompareReport:
    """The fastest layout on each of ``request.clusters``, its time and cost, and what a deadline needs of each kind.

    Without ``tokens`` twenty a parameter are assumed. Ctrl-C (KeyboardInterrupt out of ``on_progress``) returns the
    candidates so far with ``interrupted``. Raises InputError MW-E402 (no cluster), MW-E230 (no such price),
    MW-E110..MW-E113 (no duration, no money) and those of resolving.
    """
    check_writable(request.out)
    limits = _Limits(duration(request.deadline), money(request.budget))
    request, assumed_tokens = _with_tokens(request)
    bases = [resolve(request.model_copy(update={"cluster": text})) for text in _clusters(request)]
    fix = layout_values(request.fix, where="--fix") if request.fix else {}
    prices = _prices(request, bases)
    expected = len(bases) * (1 if limits.deadline_s is None else _SEARCHES_PER_DEADLINE)
    searches = Searches(bases[0].constants, fix, memory_limit(request.max_memory), on_progress, expected=expected)
    candidates: list[Candidate] = []
    for base in bases:
        case = with_site(base)
        outcome = searches.run(case.job, case.cluster)
        if outcome.interrupted and outcome.best is None:
            break
        given = point(case, outcome, prices[case.cluster.gpu.name])
        candidates.append(_candidate(request, base, given, limits, searches, prices))
        if searches.interrupted:
            break
    answer = _report(request, bases, candidates, limits, searches, assumed_tokens, priced=any(prices.values()))
    if request.out is not None and (candidates or not answer.interrupted):
        write_whole(request.out, render("compare", answer))
    return answer


def duration(text: str | None, where: str = "--deadline") -> float | None:
    """``10d`` or ``36h`` in seconds; None for None. Raises InputError MW-E110..MW-E113, MW-E451 for nothing at all."""
    return None if text is None else _above_zero(text, "s", where, "10d")


def money(text: str | None, where: str = "--budget") -> float | None:
    """``2M USD`` or ``$2M`` in USD; None for None. Raises InputError MW-E110..MW-E113, MW-E451 for nothing at all."""
    if text is None:
        return None
    said = text.strip()
    return _above_zero(f"{said[1:]} $" if said.startswith("$") else said, "usd", where, "2M USD")


def _above_zero(text: str, dimension: str, where: str, example: str) -> float:
    value = parse_quantity(text, dimension, where=where, example=example)
    if value <= 0:
        raise InputError(
            "MW-E451",
            _("'{value}' leaves nothing.").format(value=text),
            where=where,
            nearest=_("Write it like '{example}'.").format(example=example),
        )
    return value


def _clusters(request: CompareRequest) -> list[str]:
    texts = [text for text in (*request.clusters, *([request.cluster] if request.cluster else [])) if text.strip()]
    if not texts:
        raise InputError(
            "MW-E402",
            _("no cluster was given."),
            where="--clusters",
            nearest=_("Write it like '{example}'.").format(example="--clusters 8xH100 8xB200"),
        )
    return list(dict.fromkeys(texts))


def _with_tokens(request: CompareRequest) -> tuple[CompareRequest, dict[str, Assumed]]:
    """The request with the tokens of the training, and what was assumed about them."""
    if request.tokens is not None:
        return request, {}
    # Any cluster will do: a model's size is everywhere the same.
    model = resolve(request.model_copy(update={"cluster": _clusters(request)[0]})).job.model
    text = format_count(_TOKENS_PER_PARAMETER * parameter_count(model))
    why = _("20 a parameter (arXiv 2203.15556); --tokens says otherwise")
    return request.model_copy(update={"tokens": text}), {"tokens": Assumed(name="tokens", value=text, why=why)}


def _prices(request: CompareRequest, bases: Sequence[Resolved]) -> dict[str, Price | None]:
    """A price for each GPU: the one said for it, the one said for all, or one that a single provider has for all."""
    gpus = list(dict.fromkeys(base.cluster.gpu.name for base in bases))
    said: dict[str, str] = {}
    for text in request.price:
        named, rate = price_for(text, gpus)
        if named is not None:
            said[named] = rate
        else:
            said |= {gpu: rate for gpu in gpus if gpu not in said}
    usual = usual_prices([gpu for gpu in gpus if gpu not in said])
    return usual | {gpu: catalog.price(text, gpu) for gpu, text in said.items()}


def usual_prices(gpus: Sequence[str]) -> dict[str, Price | None]:
    """A price for each GPU, of one provider where one has them all, so that markets are not compared instead.

    Of several such providers the one with the newest prices; else the usual price of each GPU; None: none is known.
    """
    found = {gpu: next(iter(catalog.prices(gpu)), None) for gpu in gpus}
    known = [gpu for gpu, price in found.items() if price is not None and price.tier == "on-demand"]
    offers = [{price.provider: price for price in reversed(catalog.prices(gpu, tier="on-demand"))} for gpu in known]
    shared = set.intersection(*(set(offer) for offer in offers)) if offers else set()
    if len(known) > 1 and shared:
        newest = max(sorted(shared), key=lambda name: min(offer[name].date for offer in offers))
        found |= {gpu: offer[newest] for gpu, offer in zip(known, offers, strict=True)}
    return found


def _candidate(
    request: CompareRequest,
    base: Resolved,
    given: Point,
    limits: _Limits,
    searches: Searches,
    prices: Mapping[str, Price | None],
) -> Candidate:
    needed: Point | None = None
    why: str | None = None
    assumed = with_site(base).assumed
    if limits.deadline_s is not None and not searches.interrupted:
        try:
            needed, at_needed = needed_nodes(request, base, limits.deadline_s, searches, prices)
            assumed = assumed if at_needed is None else at_needed.assumed
            if needed is None:
                most = counts(base.cluster)[-1]
                why = _("not even {n_gpus} GPUs").format(n_gpus=f"{most:,}")
        except KeyboardInterrupt:
            searches.interrupted = True
    return Candidate(
        as_given=given,
        meets_deadline=meets(limits.deadline_s, median_s(given), given.median_interval_s),
        meets_budget=meets(limits.budget_usd, given.cost_usd, cost_interval(given)),
        needed=needed,
        needed_why_none=why,
        assumed=assumed,
    )


def needed_nodes(
    request: CompareRequest,
    base: Resolved,
    deadline_s: float,
    searches: Searches,
    prices: Mapping[str, Price | None],
) -> tuple[Point | None, Resolved | None]:
    """The fewest whole nodes of this kind that meet the deadline in the median, and their case; None: none do.

    By bisection with a full search at each count, so more nodes must not be slower. A batch that was given stays; a
    count that cannot share it is passed over. Raises KeyboardInterrupt where a search was interrupted.
    """
    full = node_gpus(base.cluster)
    seen: dict[int, tuple[Point, Resolved]] = {}

    def holds(nodes: int) -> bool | None:
        place = sized(request, base, nodes * full)
        outcome = searches.run(place.job, place.cluster)
        if outcome.interrupted:
            raise KeyboardInterrupt
        found = point(place, outcome, prices[place.cluster.gpu.name])
        seen[nodes] = (found, place)
        time_s = median_s(found)
        if time_s is None:
            return None if outcome.rule is not None else False
        return time_s <= deadline_s

    most = len([n for n in counts(base.cluster, LARGEST_NODES) if n >= full])
    nodes = first(range(1, most + 1), holds)
    return (None, None) if nodes is None else seen[nodes]


def meets(limit: float | None, value: float | None, interval: tuple[float, float] | None) -> Meets | None:
    """Whether ``value`` with its interval stays within ``limit``; None where either is not known."""
    if limit is None or value is None:
        return None
    low, high = interval or (value, value)
    if high <= limit:
        return "yes"
    if value <= limit:
        return "likely"
    return "unlikely" if low <= limit else "no"


def median_s(each: Point) -> float | None:
    """The median time of the whole training, failures counted."""
    return None if each.time_to_train_with_failures_s is None else each.time_to_train_with_failures_s["p50"]


def cost_interval(each: Point) -> tuple[float, float] | None:
    """The cost at both ends of the time's interval."""
    time_s = median_s(each)
    if each.cost_usd is None or time_s is None or each.median_interval_s is None:
        return None
    low_s, high_s = each.median_interval_s
    return each.cost_usd * low_s / time_s, each.cost_usd * high_s / time_s


def _ranking(values: Mapping[int, float]) -> list[int]:
    return sorted(values, key=lambda index: values[index])


def _is_clear(ranked: Sequence[int], points: Sequence[Point], *, by_cost: bool) -> bool | None:
    """Whether the first of the ranking leads the second by more than chance; None with nothing to lead."""
    if len(ranked) < 2:
        return None
    best, following = points[ranked[0]], points[ranked[1]]
    if not by_cost:
        ends = [each.median_interval_s or (0.0, math.inf) for each in (best, following)]
        return is_clear_lead(median_s(best) or 0.0, ends[0], median_s(following) or 0.0, ends[1])
    costs = [cost_interval(each) or (0.0, math.inf) for each in (best, following)]
    clear = is_clear_lead(best.cost_usd or 0.0, costs[0], following.cost_usd or 0.0, costs[1])
    same = _provider(best) == _provider(following)
    apart = (best.cost_range_usd or (0.0, math.inf))[1] < (following.cost_range_usd or (0.0, 0.0))[0]
    # What two providers ask differs by more than what two chips are worth.
    return clear and (same or apart)


def _provider(each: Point) -> str:
    return str((each.price or {}).get("provider") or "")


def _report(
    request: CompareRequest,
    bases: Sequence[Resolved],
    candidates: Sequence[Candidate],
    limits: _Limits,
    searches: Searches,
    assumed_tokens: Mapping[str, Assumed],
    *,
    priced: bool,
) -> CompareReport:
    points = [each.as_given for each in candidates]
    by_time = _ranking({i: time_s for i, p in enumerate(points) if (time_s := median_s(p)) is not None})
    by_cost = _ranking({i: p.cost_usd for i, p in enumerate(points) if p.cost_usd is not None})
    needed = [each.needed for each in candidates]
    by_needed = _ranking({i: p.cost_usd for i, p in enumerate(needed) if p is not None and p.cost_usd is not None})
    fastest_is_clear = _is_clear(by_time, points, by_cost=False)
    cheapest_is_clear = _is_clear(by_cost, points, by_cost=True)
    report = CompareReport(
        verdict="",
        model=describe(bases[0].job, bases[0].cluster)[0],
        tokens=bases[0].job.tokens,
        deadline_s=limits.deadline_s,
        budget_usd=limits.budget_usd,
        candidates=tuple(candidates),
        fastest=by_time[0] if by_time else None,
        fastest_is_clear=fastest_is_clear,
        cheapest=by_cost[0] if by_cost else None,
        cheapest_is_clear=cheapest_is_clear,
        cheapest_needed=by_needed[0] if by_needed else None,
        holds=_holds(candidates, limits),
        assumed=dict(assumed_tokens) | in_common([each.assumed for each in candidates]) if candidates else {},
        searched=searches.searched,
        elapsed_s=searches.elapsed_s,
        interrupted=searches.interrupted,
        next_command=_next_command(request, bases, candidates, by_time, by_needed),
    )
    return report.model_copy(update={"verdict": _verdict(report, by_time, by_cost, priced=priced)})


def _holds(candidates: Sequence[Candidate], limits: _Limits) -> bool:
    """Whether any candidate does what was asked for, as given or with the nodes that the deadline needs."""

    def affordable(each: Point) -> bool:
        return limits.budget_usd is None or (each.cost_usd is not None and each.cost_usd <= limits.budget_usd)

    def in_time(each: Point) -> bool:
        return limits.deadline_s is None or (median_s(each) or math.inf) <= limits.deadline_s

    points = [
        p for each in candidates for p in (each.as_given, each.needed) if p is not None and p.estimate is not None
    ]
    return any(affordable(each) and in_time(each) for each in points)


def _next_command(
    request: CompareRequest,
    bases: Sequence[Resolved],
    candidates: Sequence[Candidate],
    by_time: Sequence[int],
    by_needed: Sequence[int],
) -> str:
    with_needed = list(by_needed) or [i for i, each in enumerate(candidates) if each.needed is not None]
    for index in with_needed:
        needed = candidates[index].needed
        if needed is not None:
            place = sized(request, bases[index], needed.n_gpus)
            return command_at("plan", request, place.cluster, place.job, fix=request.fix, max_memory=request.max_memory)
    base = bases[by_time[0] if by_time else 0]
    verb = "plan" if by_time else "fit"
    flags = {"fix": request.fix} if by_time else {"layout": request.fix}
    return command_at(verb, request, base.cluster, base.job, **flags, max_memory=request.max_memory)


def _verdict(report: CompareReport, by_time: Sequence[int], by_cost: Sequence[int], *, priced: bool) -> str:
    points = [each.as_given for each in report.candidates]
    model = str(report.model["name"])
    if not points:
        return _("{model}: nothing was searched yet.").format(model=model)
    said = []
    if report.deadline_s is not None:
        said.append(_needs(report, model))
    if not by_time:
        if report.deadline_s is None:
            said.append(_("{model} fits on none of these clusters.").format(model=model))
    elif len(points) > 1:
        said.append(_fastest(report, points, by_time))
    if by_cost and len(points) > 1:
        said.append(_cheapest(report, points, by_cost))
    if not priced:
        said.append(_("No price is known for these GPUs; --price gives one."))
    elif report.budget_usd is not None:
        within = [
            p.cluster
            for p, each in zip(points, report.candidates, strict=True)
            if each.meets_budget in ("yes", "likely")
        ]
        said.append(
            _("Within {budget}: {clusters}.").format(
                budget=format_usd(report.budget_usd), clusters=", ".join(within) or _("none of them")
            )
        )
    if not said:
        given = points[0]
        said.append(
            _("{model} on {cluster}: {tokens} tokens take {time}.").format(
                model=model,
                cluster=given.cluster,
                tokens=format_count(report.tokens or 0.0),
                time=format_duration(median_s(given) or 0.0),
            )
        )
    return " ".join(said)


def _needs(report: CompareReport, model: str) -> str:
    """How many GPUs of each kind meet the deadline, the cheapest first where costs are known."""
    assert report.deadline_s is not None
    names: dict[str, str] = {
        "model": model,
        "tokens": format_count(report.tokens or 0.0),
        "deadline": format_duration(report.deadline_s),
    }
    parts = []
    for each in report.candidates:
        if each.needed is None:
            continue
        needed = each.needed
        text = needed.cluster
        if needed.cost_usd is not None:
            text = _("{cluster} ({cost})").format(cluster=text, cost=format_usd(needed.cost_usd))
        parts.append(text)
    if not parts and report.interrupted:
        return _("How many GPUs train {model} on {tokens} tokens in {deadline} was not found yet.").format(**names)
    if not parts:
        return _("No number of these GPUs trains {model} on {tokens} tokens in {deadline}.").format(**names)
    return _("{model} on {tokens} tokens in {deadline} takes {needed}.").format(**names, needed=_(" or ").join(parts))


def _fastest(report: CompareReport, points: Sequence[Point], by_time: Sequence[int]) -> str:
    best = points[by_time[0]]
    names = {"cluster": best.cluster, "time": format_duration(median_s(best) or 0.0)}
    if len(by_time) < 2:
        return _("Only {cluster} holds it as given: {time}.").format(**names)
    other = points[by_time[1]]
    names |= {
        "other": other.cluster,
        "ratio": f"{(median_s(other) or 0.0) / (median_s(best) or 1.0):.2g}",
    }
    if report.fastest_is_clear:
        return _("{cluster} is the fastest: {time}, {ratio} times as fast as {other}.").format(**names)
    return _(
        "{cluster} looks fastest ({time}), but its lead over {other} ({ratio} times) lies within the intervals."
    ).format(**names)


def _cheapest(report: CompareReport, points: Sequence[Point], by_cost: Sequence[int]) -> str:
    best = points[by_cost[0]]
    names = {"cluster": best.cluster, "cost": format_usd(best.cost_usd or 0.0)}
    # A point without a layout has no price either, which says nothing of the catalog.
    unknown = [each.cluster for each in points if each.price is None and each.estimate is not None]
    if len(by_cost) < 2:
        return (
            _("{cluster} costs {cost}; no price is known for {others}.").format(**names, others=", ".join(unknown))
            if unknown
            else _("{cluster} costs {cost}.").format(**names)
        )
    other = points[by_cost[1]]
    names |= {"other": other.cluster, "other_cost": format_usd(other.cost_usd or 0.0)}
    if report.cheapest_is_clear:
        return _("{cluster} is the cheapest: {cost} against {other_cost} for {other}.").format(**names)
    return _(
        "{cluster} looks cheapest ({cost} against {other_cost} for {other}), but the difference lies within the "
        "intervals and prices."
    ).format(**names)
