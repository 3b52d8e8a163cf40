"""The parts of a report, each a pure function of the answer: what it says in words and tables, and its figure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshwright.cli import numbers
from meshwright.cli.assumptions import written
from meshwright.cli.labels import FITS, MEMORY, TERMS, label
from meshwright.cli.layouts import BASE, HEADERS, USUAL
from meshwright.i18n import N_, _
from meshwright.report import figures
from meshwright.report.html import Html, element, joined
from meshwright.report.page import count_head, figure, head, row, section, swatch, table, term
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES, MEMORY_PHASES, Estimate
from meshwright.specs.glossary import GLOSSARY, JOB_TERMS, MEMORY_TERMS
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Assumed, Change, Runner
from meshwright.specs.timeline import Timeline
from meshwright.verbs.report import Drawn

#: The families of a step's terms: what is asked for, what is only there because the work is shared, what waits.
FAMILIES = (
    (N_("Work"), ("forward", "backward", "recompute", "optimizer")),
    (N_("Exposed communication"), ("tp_comm", "cp_comm", "ep_comm", "pp_comm", "dp_comm")),
    (N_("Waiting and slowing"), ("bubble", "launch", "contention", "data", "checkpoint", "straggler")),
)
#: Short names of what the run needs and of key figures.
NAMES = {
    "step_time_s": N_("Step time"),
    "tokens_per_s_per_gpu": N_("Tokens/s per GPU"),
    "mfu_ratio": N_("MFU"),
    "peak_reserved_bytes": N_("Memory peak"),
    "time_to_train_s": N_("Time to train"),
    "time_to_train_with_failures_s": N_("With failures"),
    "misses_bytes": N_("Missing on each GPU"),
    "peak_allocated_bytes": N_("Peak of the nearest layout"),
    "budget_bytes": N_("What a GPU may fill"),
    "cost_usd": N_("Cost"),
    "energy_j": N_("Energy"),
    "checkpoint_bytes": N_("Size of one checkpoint"),
    "checkpoint_bytes_per_s": N_("Write rate for checkpoints"),
    "loader_tokens_per_s": N_("Data loading"),
    "host_bytes": N_("Host memory of one node"),
    "power_w": N_("Power of all GPUs"),
}
PHASES = {
    "load": N_("loading"),
    "first_step": N_("first step"),
    "steady": N_("every later step"),
    "longest": N_("longest sequence"),
    "save": N_("saving a checkpoint"),
}
#: Tasks that one timeline draws; a step with more shows its beginning and its end.
MOST_TASKS = 6000


def opening(kicker: str, verdict: str, *more: str | None) -> Html:
    """The answer in one sentence, before anything else."""
    return element(
        "header",
        element("p", kicker, class_="kicker"),
        element("h1", verdict),
        *(element("p", text, class_="more") for text in more if text),
    )


def key_figures(estimate: Estimate, document: Mapping[str, Any]) -> Html:
    """The numbers that people ask for first; those that the document leaves null are left out."""
    low_s, high_s = estimate.step_time_interval_s
    memory = estimate.memory
    share = min(1.0, memory.peak_reserved_bytes / memory.capacity_bytes)
    fits = _("fits: {fits}").format(fits=label(FITS, memory.fits))
    cells = [
        _key("step_time_s", numbers.step(estimate.step_time_s), _range(numbers.interval(low_s, high_s))),
        _key("tokens_per_s_per_gpu", numbers.digits(estimate.tokens_per_s_per_gpu)),
        _key(
            "mfu_ratio",
            f"{numbers.percent(estimate.mfu_ratio, 1)}%",
            _("HFU {hfu}%").format(hfu=numbers.percent(estimate.hfu_ratio, 1)),
        ),
        _key(
            "peak_reserved_bytes",
            joined(
                numbers.gib(memory.peak_reserved_bytes),
                element("small", _(" of {capacity} GiB").format(capacity=numbers.gib(memory.capacity_bytes))),
            ),
            joined(
                element("div", element("i", style=f"width:{100 * share:.1f}%"), class_=f"meter {memory.fits}"),
                element("span", fits, class_=memory.fits),
            ),
        ),
    ]
    interval_s = document.get("time_to_train_interval_s")
    for name in ("time_to_train_s", "time_to_train_with_failures_s", "cost_usd", "energy_j"):
        value = document.get(name)
        if value is not None:
            aside = _range(numbers.long_time(*interval_s)) if name == "time_to_train_s" and interval_s else None
            cells.append(_key(name, *_quantiles(name, value, aside)))
    return element("dl", *cells, class_="key")


def missing(nearest: Mapping[str, Any]) -> Html | None:
    """By how much the nearest layout misses; None where every layout breaks a rule."""
    if "misses_bytes" not in nearest:
        return None
    names = ("misses_bytes", "peak_allocated_bytes", "budget_bytes")
    return element("dl", *(_key(name, quantity(name, float(nearest[name]))) for name in names), class_="key")


def _key(name: str, value: str, aside: str | None = None) -> Html:
    return element(
        "div",
        element("dt", term(name, _(NAMES[name]))),
        element("dd", value),
        None if aside is None else element("dd", aside, class_="aside"),
    )


def _range(text: str) -> str:
    return _("80%: {interval}").format(interval=text)


def _quantiles(name: str, value: Any, aside: str | None) -> tuple[str, str | None]:
    """A number, or one with quantiles: its median and what follows it."""
    if not isinstance(value, Mapping):
        return quantity(name, float(value)), aside
    rest = [f"{key} {quantity(name, float(value[key]))}" for key in value if key != "p50"]
    return quantity(name, float(value["p50"])), ", ".join(rest)


def quantity(name: str, value: float) -> str:
    """A value of the document with the unit that the glossary gives its name."""
    unit = GLOSSARY[name].unit if name in GLOSSARY else None
    if unit == "s":
        return numbers.long_time(value)
    if unit == "usd":
        return f"${value:,.0f}" if value >= 100 else f"${value:,.2f}"
    for scale, text in _SCALES.get(unit or "", ()):
        if abs(value) >= scale:
            return " ".join((numbers.digits(value / scale), _(text)))
    return numbers.digits(value) if unit is None else f"{numbers.digits(value)} {unit}"


_SCALES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "bytes": ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB")),
    "bytes/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")),
    "J": ((3.6e9, "MWh"), (3.6e6, "kWh")),
    "W": ((1e6, "MW"), (1e3, "kW")),
    "1/s": ((1e6, N_("M tokens/s")), (1.0, N_("tokens/s"))),
}


def asked(
    model: Mapping[str, Any], cluster: Mapping[str, Any], job: Mapping[str, Any], layout: Layout | None, *, fits: bool
) -> Html:
    """What was asked and the layout that answers it (or comes nearest), every word with its meaning."""
    said = {
        "seq_len": f"{job.get('seq_len', 0):,}",
        "global_batch": f"{job.get('global_batch', 0):,}",
        "precision": str(job.get("precision", "")),
        "optimizer": str(job.get("optimizer", "")),
        "attention": str(job.get("attention", "")),
    }
    entries: list[tuple[str, Sequence[str]]] = [
        (_("Model"), [_("{count} parameters").format(count=numbers.count(float(model.get("n_parameters", 0))))]),
        (_("Cluster"), [f"{cluster.get('n_gpus', '?'):,} x {_gpu(cluster)}"]),
        (_("Job"), [joined(term(name, name, JOB_TERMS), f" {value}") for name, value in said.items() if value]),
    ]
    if layout is not None:
        shown = [name for name in (*BASE, *USUAL) if name in BASE or getattr(layout, name) != USUAL[name]]
        entries.append(
            (
                _("Layout") if fits else _("Nearest layout"),
                [joined(term(name, name), f" {written(getattr(layout, name))}") for name in shown],
            )
        )
    return element(
        "dl",
        *(
            joined(element("dt", name), element("dd", *(element("span", value) for value in values)))
            for name, values in entries
        ),
        class_="facts",
    )


def _gpu(cluster: Mapping[str, Any]) -> str:
    gpu = cluster.get("gpu")
    return str(gpu.get("name", "?")) if isinstance(gpu, Mapping) else "?"


def breakdown(estimate: Estimate) -> Html:
    """Where the step goes: the bar and the table, exposed communication apart from work and waiting."""
    total_s = estimate.step_time_s
    factor, unit = numbers.seconds_unit([total_s])
    rows = []
    for family, terms in FAMILIES:
        values_s = {name: estimate.breakdown_s.get(name, 0.0) for name in terms}
        own_s = sum(values_s.values())
        rows.append(row(_(family), _in(own_s, factor), _percent(own_s / total_s), numbers_from=1, class_="group"))
        rows += [
            row(
                joined(swatch(figures.TERM_COLOURS[name]), term(name, label(TERMS, name))),
                _in(value_s, factor),
                _percent(value_s / total_s),
                numbers_from=1,
            )
            for name, value_s in values_s.items()
            if value_s > 0
        ]
    rows.append(row(_("step time"), _in(total_s, factor), _percent(1.0), numbers_from=1, class_="sum"))
    return section(
        _("Where the step goes"),
        figure(figures.step_breakdown([estimate], [""]), _("Stacked bar of the step's terms")),
        table([_("term"), count_head(unit), count_head("%")], rows, class_="scroll narrow"),
        text=_(
            "Terms on the critical path; they add up to the step. Communication counts only where nothing hides it."
        ),
    )


def _in(value_s: float, factor: float) -> str:
    return numbers.at_least(value_s / factor, 3 if factor == 1.0 else 2)


def _percent(ratio: float) -> str:
    return numbers.percent(ratio, 1)


def memory(drawn: Drawn, capacity_bytes: float, estimate: Estimate | None) -> Html:
    """Memory of every pipeline rank by class, and the fullest rank in numbers: by class and by phase."""
    sizes = [dict(zip(drawn.memory.by, values, strict=True)) for values in zip(*drawn.memory.by.values(), strict=True)]
    worst = max(range(len(sizes)), key=lambda rank: sum(sizes[rank].values()))
    by = {name: sizes[worst].get(name, 0.0) for name in MEMORY_CLASSES}
    by["reserve"] = drawn.memory.reserved_bytes[worst] - sum(sizes[worst].values())
    rows = [
        row(
            joined(swatch(figures.MEMORY_COLOURS[name]), term(name, label(MEMORY, name), MEMORY_TERMS)),
            numbers.gib(size),
            _percent(size / capacity_bytes),
            numbers_from=1,
        )
        for name, size in by.items()
        if size > 0
    ]
    total = sum(by.values())
    rows.append(
        row(_("reserved peak"), numbers.gib(total), _percent(total / capacity_bytes), numbers_from=1, class_="sum")
    )
    phases = None
    if estimate is not None:
        phases = table(
            [_("phase of the run"), count_head(_("GiB allocated"))],
            [
                row(term(name, _(PHASES[name])), numbers.gib(estimate.memory.by_phase[name]), numbers_from=1)
                for name in MEMORY_PHASES
                if name in estimate.memory.by_phase
            ],
        )
    return section(
        _("Memory by pipeline rank"),
        figure(
            figures.memory_by_rank(drawn.memory.by, drawn.memory.reserved_bytes, capacity_bytes),
            _("Stacked bars of memory by class, one for each pipeline rank"),
        ),
        element(
            "div",
            table(
                [_("rank {rank}, the fullest").format(rank=worst), count_head("GiB"), count_head(_("% of a GPU"))], rows
            ),
            phases,
            class_="pair" if phases else "narrow",
        ),
        text=_("What one GPU of each pipeline rank holds at its peak. The line is where a GPU is full."),
    )


def timeline(steps: Timeline) -> Html:
    """One step rank by rank; of a step with very many tasks its beginning and its end."""
    extent_s = steps.extent_ns() / 1e9
    n_tasks = len(figures.work_spans(steps))
    cut = n_tasks > MOST_TASKS
    window_s = extent_s * MOST_TASKS / 2 / n_tasks if cut else extent_s
    words = _("Pipeline timeline: what each rank computes when")
    drawn = [figure(figures.step_timeline(steps, 0.0, window_s), words)]
    if cut:
        drawn = [
            element("h3", _("The first {time}").format(time=numbers.step(window_s))),
            *drawn,
            element("h3", _("The last {time}").format(time=numbers.step(window_s))),
            figure(figures.step_timeline(steps, extent_s - window_s, extent_s), words),
        ]
    terms = figures.terms_drawn(steps)
    keys = [
        element("li", swatch(figures.TERM_COLOURS[name]), term(name, label(TERMS, name)))
        for name in BREAKDOWN_TERMS
        if name in terms
    ]
    keys.append(element("li", element("span", class_="swatch idle"), _("waiting")))
    text = _("Forwards and backwards of every pipeline rank, replayed task by task; sends between ranks are left out.")
    zoom = _("Drag to enlarge, double-click to return; --timeline FILE writes every task for Perfetto.")
    return section(
        _("One step, rank by rank"), element("ul", *keys, class_="keys"), *drawn, element("p", zoom), text=text
    )


def candidates(
    layouts: Sequence[Estimate], chosen: int, runners: Sequence[Runner], searched: str, tight: str | None
) -> Html:
    """The layouts found, their steps side by side, and why each other one loses."""
    factor, unit = numbers.seconds_unit(estimate.step_time_s for estimate in layouts)
    every = [estimate.layout for estimate in layouts]
    varying = [name for name in USUAL if len({getattr(layout, name) for layout in every}) > 1]
    columns = [*BASE, *varying]
    lost = {runner.layout_index: runner for runner in runners}
    rows = []
    for index, estimate in enumerate(layouts):
        low_s, high_s = estimate.step_time_interval_s
        rows.append(
            row(
                str(index + 1),
                *(written(getattr(estimate.layout, name)) for name in columns),
                numbers.digits(estimate.step_time_s / factor),
                f"{numbers.digits(low_s / factor)}-{numbers.digits(high_s / factor)}",
                numbers.digits(estimate.tokens_per_s_per_gpu),
                _percent(estimate.mfu_ratio),
                numbers.gib(estimate.memory.peak_reserved_bytes),
                element("td", label(FITS, estimate.memory.fits), class_=estimate.memory.fits),
                numbers_from=1,
                class_="chosen" if index == chosen else None,
            )
        )
    headers = [
        head("#"),
        *(count_head(term(name, HEADERS.get(name, name))) for name in columns),
        count_head(term("step_time_s", _("step")), f" {unit}"),
        count_head(term("step_time_interval_s", _("80%")), f" {unit}"),
        count_head(term("tokens_per_s_per_gpu", _("tokens/s/GPU"))),
        count_head(term("mfu_ratio", _("MFU")), " %"),
        count_head(term("peak_reserved_bytes", _("memory")), " GiB"),
        head(term("fits", _("fits"))),
    ]
    same = [name for name in USUAL if name not in varying and getattr(every[0], name) != USUAL[name]]
    shared = " ".join(f"{name}={written(getattr(every[0], name))}" for name in same)
    return section(
        _("The best layouts"),
        table(headers, rows),
        element("p", _("All of them: {columns}").format(columns=shared), class_="more") if shared else None,
        element("p", tight, class_="note") if tight else None,
        *(_losses(layouts, lost) if lost else ()),
        text=searched,
    )


def _losses(layouts: Sequence[Estimate], lost: Mapping[int, Runner]) -> Iterable[Html]:
    factor, unit = numbers.seconds_unit(value for runner in lost.values() for value in runner.terms_s.values())
    yield element("h3", _("Why the others lose"))
    yield figure(
        figures.step_breakdown(layouts, [f"#{index + 1}" for index in range(len(layouts))]),
        _("Stacked bars of the step's terms, one for each layout"),
    )
    rows = []
    for index, runner in lost.items():
        moved = [
            f"{label(TERMS, name)} {'+' if value_s > 0 else '-'}{numbers.digits(abs(value_s) / factor)} {unit}"
            for name, value_s in sorted(runner.terms_s.items(), key=lambda item: -abs(item[1]))
            if abs(value_s) >= 0.05 * max(map(abs, runner.terms_s.values()))
        ]
        slower = f"+{numbers.percent(runner.slower_ratio - 1, 1)}%"
        rows.append(row(f"#{index + 1}", element("td", slower, class_="number"), ", ".join(moved), numbers_from=9))
    yield table(["#", count_head(term("slower_ratio", _("slower"))), _("terms that differ most")], rows)


def pareto(front: Sequence[Estimate], chosen: Estimate) -> Html | None:
    """Time against memory; nothing to show where one layout beats all."""
    if len(front) < 2:
        return None
    return section(
        _("Time against memory"),
        figure(figures.time_against_memory(front, chosen), _("Pareto front: step time over memory")),
        text=_("Layouts than which none is both faster and smaller. Point at one to see its columns."),
    )


def scaling(n_gpus: Sequence[int], estimates: Sequence[Estimate]) -> Html:
    """The best layout at other sizes of the cluster."""
    rows = [
        row(
            f"{count:,}",
            numbers.step(estimate.step_time_s),
            numbers.digits(count * estimate.tokens_per_s_per_gpu),
            _percent(estimate.tokens_per_s_per_gpu / estimates[0].tokens_per_s_per_gpu),
            numbers_from=0,
        )
        for count, estimate in zip(n_gpus, estimates, strict=True)
    ]
    return section(
        _("More and fewer GPUs"),
        figure(figures.scaling(n_gpus, estimates), _("Scaling curve: tokens a second over GPUs")),
        table(
            [
                count_head(_("GPUs")),
                count_head(_("step")),
                count_head(_("tokens/s, all GPUs")),
                count_head(_("% of no loss")),
            ],
            rows,
            class_="scroll narrow",
        ),
        text=_("The best layout at each size; dashed, the first point's rate a GPU kept."),
    )


def assumed(items: Mapping[str, Assumed]) -> Html | None:
    """What nobody said, why it was taken, and how the step moves with the alternative."""
    if not items:
        return None
    rows = []
    tried = any(item.step_time_ratio is not None for item in items.values())
    for name, item in items.items():
        cells = [
            joined(term(name, name, {**GLOSSARY, **JOB_TERMS}), "=", element("code", written(item.value))),
            item.why,
        ]
        if tried:
            known = item.alternative is not None and item.step_time_ratio is not None
            cells.append(_alternative(name, item.alternative) if known and item.alternative else "")
            moves = numbers.change(item.step_time_ratio) if known and item.step_time_ratio else ""
            cells.append(element("td", moves, class_="number"))
        rows.append(row(*cells, numbers_from=9))
    headers: list[str] = [_("assumed"), _("why")]
    text = _("Nobody said these, so usual values were taken.")
    if tried:
        headers += [_("alternative"), count_head(_("step time then"))]
        text = _("Nobody said these, so usual values were taken; each alternative was evaluated for this layout.")
    return section(_("What was assumed"), table(headers, rows), text=text)


def _alternative(name: str, change: Change) -> str:
    field = change.path.rpartition(".")[2]
    return written(change.value) if field == name else f"{field}={written(change.value)}"


def needs(wanted: Mapping[str, float | None]) -> Html | None:
    """What the run asks of storage, data loading, hosts and power; null values are left out."""
    rows = [
        row(term(name, _(NAMES[name]) if name in NAMES else name), quantity(name, float(value)), numbers_from=1)
        for name, value in wanted.items()
        if value is not None
    ]
    return section(_("What the run needs"), table([], rows, class_="scroll narrow")) if rows else None


def remedies(found: Sequence[Mapping[str, Any]]) -> Html | None:
    """Changes under which it fits, each with its step time."""
    if not found:
        return None
    rows = [
        row(
            ", ".join(f"{change['path']}={written(change['value'])}" for change in remedy["changes"]),
            numbers.step(remedy["step_time_s"]),
            numbers.gib(remedy["peak_reserved_bytes"]),
            element("td", label(FITS, remedy["fits"]), class_=remedy["fits"]),
            numbers_from=1,
        )
        for remedy in found
    ]
    headers = [_("change"), count_head(term("step_time_s", _("step")))]
    headers += [count_head(term("peak_reserved_bytes", _("memory")), " GiB"), head(term("fits", _("fits")))]
    text = _("Each change was evaluated: the step time and the memory are those of the best layout under it.")
    return section(_("What would make it fit"), table(headers, rows), text=text)


def rejected(counts: Mapping[str, int], rules: Mapping[str, str]) -> Html | None:
    """What was not scored, by rule, with what the rule says."""
    if not counts:
        return None
    rows = [
        row(element("code", rule), element("td", f"{count:,}", class_="number"), rules.get(rule, ""), numbers_from=9)
        for rule, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    return section(_("Ruled out before scoring"), table([_("rule"), count_head(_("layouts")), _("what it says")], rows))


def next_command(command: str) -> Html | None:
    """The command to type next."""
    if not command:
        return None
    words = [shlex.quote(word) for word in shlex.split(command)]
    return section(_("Next"), element("pre", element("code", " ".join(words))))
