"""``explain``: what a name means and, for a number of a plan, how it came about, down to the catalog's sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from meshwright import catalog
from meshwright.costmodel import evaluate, rules
from meshwright.errors import InputError, did_you_mean
from meshwright.formula import FORMULAS, Entry, Ledger
from meshwright.i18n import _
from meshwright.specs.fact import Noun
from meshwright.specs.glossary import ERRORS, GLOSSARY, KINDS, LAYOUT_TERMS, MEMORY_TERMS, Term
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.report import Explanation, ExplanationEntry
from meshwright.verbs.document import pick

#: Deepest chain of formulas shown; the model's own is shorter, this only guards against loops.
_DEEPEST = 12
#: Formulas shown side by side for a number that several made.
_MOST_ROOTS = 16
_COMPUTE = ("gemm_time_s", "attention_time_s", "memory_time_s")
_NETWORK = ("tuning_time_s", "ramp_factor")
#: number of a plan -> the formulas that make it, where they have other names
_FORMULAS_OF: Mapping[str, tuple[str, ...]] = {
    "breakdown_s.forward": _COMPUTE,
    "breakdown_s.backward": _COMPUTE,
    "breakdown_s.recompute": _COMPUTE,
    "breakdown_s.tp_comm": _NETWORK,
    "breakdown_s.pp_comm": _NETWORK,
    "breakdown_s.dp_comm": ("exposed_s", *_NETWORK),
    "breakdown_s.bubble": ("one_f_one_b_time_s", "interleaved_time_s"),
    "breakdown_s.launch": ("launch_wait_s",),
    "breakdown_s.contention": ("contention_s",),
    "breakdown_s.optimizer": ("optimizer_time_s",),
    "memory.peak_reserved_bytes": ("reserved_bytes",),
    "memory.by.weights": ("state_bytes",),
    "memory.by.gradients": ("state_bytes",),
    "memory.by.optimizer": ("state_bytes",),
}


def explain(target: str, what: str | None = None, number: int = 1) -> Explanation:
    """What ``target`` means, or how the number ``what`` of layout ``number`` of the plan file ``target`` came about.

    Raises InputError MW-E420 (an unknown name), MW-E421 (the plan has no such number) and those of reading plans.
    """
    if what is not None or Path(target).suffix == ".json" or Path(target).is_file():
        return _of_plan(Path(target), what or "step_time_s", number)
    return _of_name(target)


def _of_name(name: str) -> Explanation:
    kind, unit, sentence, source = meaning(name)
    entry = () if source is None else (ExplanationEntry(name=name, unit=unit, source=source, what=sentence),)
    return Explanation(target=name, what=None, kind=_(KINDS[kind]), sentence=sentence, unit=unit, entries=entry)


def meaning(name: str) -> tuple[str, str | None, str, str | None]:
    """Kind, unit, sentence and source of a name, translated. Raises InputError (MW-E420)."""
    bare = name.strip()
    if (code := bare.upper()) in ERRORS:
        return "error", None, _(ERRORS[code]), None
    if (term := _glossary(bare)) is not None:
        return term.kind, term.unit, _(term.what), None
    if bare in (texts := rules()):
        return "rule", None, _(texts[bare]), None
    constants = catalog.constants().by_name
    if bare in constants:
        constant = constants[bare]
        return "constant", constant.unit, constant.what, f"{constant.source} ({constant.label})"
    if bare in FORMULAS:
        unit, source, what = FORMULAS[bare]
        return "formula", unit, what, source
    known = {*GLOSSARY, *texts, *constants, *FORMULAS, *ERRORS}
    raise InputError(
        "MW-E420",
        _("'{name}' is not a name that Meshwright uses.").format(name=name),
        where="NAME",
        nearest=did_you_mean(bare, sorted(known)),
    )


def _glossary(name: str) -> Term | None:
    """The glossary's entry; ``memory.by.x`` and ``layout.x`` choose between two meanings of a name."""
    head, _dot, last = name.rpartition(".")
    if head.startswith("memory") and last in MEMORY_TERMS:
        return MEMORY_TERMS[last]
    if head == "layout" and last in LAYOUT_TERMS:
        return LAYOUT_TERMS[last]
    return GLOSSARY.get(last)


def _of_plan(path: Path, what: str, number: int) -> Explanation:
    picked = pick(path, number)
    key, value = _look_up(picked.estimate, what, path)
    ledger = Ledger()
    evaluate(picked.job, picked.cluster, LayoutBatch.of([picked.layout]), catalog.constants(), ledger=ledger)
    term = _glossary(key)
    leaf = key.rsplit(".", 1)[-1]
    return Explanation(
        target=str(path),
        what=key,
        kind=_(KINDS[term.kind if term else "result"]),
        sentence=_(term.what) if term else leaf,
        value=value,
        unit=term.unit if term else None,
        entries=tuple(_Flow(ledger).tree(entry) for entry in _roots(ledger, key)),
    )


def _look_up(estimate: Mapping[str, Any], what: str, path: Path) -> tuple[str, Any]:
    """The full dotted key and the value of ``what``, given in full or by its last word."""
    flat = dict(_flatten(estimate))
    if what in flat:
        return what, flat[what]
    for key, value in flat.items():
        if key.rsplit(".", 1)[-1] == what:
            return key, value
    leaves = {key.rsplit(".", 1)[-1]: None for key in flat}
    raise InputError(
        "MW-E421",
        _("the plan has no '{what}'.").format(what=what),
        where=str(path),
        nearest=did_you_mean(what, leaves),
    )


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        yield f"{prefix}{name}", value
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")


def _roots(ledger: Ledger, key: str) -> list[Entry]:
    """The formulas that a number came from: those named for it, else the step's."""
    leaf = key.rsplit(".", 1)[-1]
    for names in ((leaf,), _FORMULAS_OF.get(key, ())):
        if named := [entry for name in names for entry in ledger.find(name)]:
            return named[:_MOST_ROOTS]
    if key.startswith("memory."):
        # A sum over blocks and micro-batches in flight; no single formula holds it.
        return []
    return ledger.find("step_time_s")[:1]


def _walk(entries: list[Entry]) -> list[Entry]:
    found = []
    for entry in entries:
        found.append(entry)
        found.extend(_walk(entry.children))
    return found


def _results(entry: Entry) -> tuple[Any, ...]:
    return entry.result if isinstance(entry.result, tuple) else (entry.result,)


class _Flow:
    """The recorded calls as a tree of data: an argument that is another formula's result has that formula below it."""

    def __init__(self, ledger: Ledger) -> None:
        self.sources = ledger.sources
        self.order = {id(entry): place for place, entry in enumerate(_walk(ledger.roots))}
        self.entries = _walk(ledger.roots)

    def tree(self, entry: Entry, above: int = 0) -> ExplanationEntry:
        """``entry`` with its arguments, each with what it came from, and the formulas it called itself."""
        arguments = (
            self._argument(name, value, entry, above)
            for name, value in entry.arguments.items()
            if not isinstance(value, Noun)
        )
        children = [argument for argument in arguments if argument is not None]
        if above < _DEEPEST:
            shown = {child.name for child in children}
            children.extend(self.tree(child, above + 1) for child in entry.children if child.name not in shown)
        return ExplanationEntry(
            name=entry.name,
            value=_plain(entry.result),
            unit=entry.unit,
            source=entry.source,
            what=entry.what,
            children=tuple(children),
        )

    def _argument(self, name: str, value: Any, user: Entry, above: int) -> ExplanationEntry | None:
        if above < _DEEPEST and (maker := self._maker(value, user)) is not None:
            return self.tree(maker, above + 1)
        plain = _plain(value)
        if plain is None:
            return None
        return ExplanationEntry(name=name, value=plain, source=self._source(name, plain))

    def _source(self, name: str, value: Any) -> str | None:
        """Where a value comes from; what was derived from a catalog value says so."""
        if name not in self.sources:
            return None
        written, source = self.sources[name]
        return source if written == value else _("from {value}: {source}").format(value=written, source=source)

    def _maker(self, value: Any, user: Entry) -> Entry | None:
        """The last formula before ``user`` whose result is ``value``; none for zeros, ones and single flags."""
        if not isinstance(value, np.ndarray | float | np.floating) or np.isin(value, (0.0, 1.0)).all():
            return None
        for entry in reversed(self.entries[: self.order[id(user)]]):
            if any(_same(result, value) for result in _results(entry)):
                return entry
        return None


def _same(result: Any, value: Any) -> bool:
    if result is value:
        return True
    if not isinstance(result, np.ndarray | float | np.floating):
        return False
    one, other = np.asarray(result, float).ravel(), np.asarray(value, float).ravel()
    return one.shape == other.shape and bool(np.array_equal(one, other))


def _plain(value: Any) -> Any:
    """A number, a short list of numbers, or text; None for what has no short form."""
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        return flat[0].item() if flat.size == 1 else [item.item() for item in flat[:8]]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, int | float | str | bool) else None
