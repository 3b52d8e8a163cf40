"""``explain``: what a name means and, for a number of a plan, how it came about, down to the catalog's sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from meshwright import catalog, discovery
from meshwright.costmodel import evaluate, rules
from meshwright.errors import InputError, did_you_mean
from meshwright.formula import FORMULAS, Ledger
from meshwright.i18n import N_, _
from meshwright.specs.glossary import (
    ERRORS,
    GLOSSARY,
    JOB_TERMS,
    KINDS,
    LAYOUT_TERMS,
    MEMORY_TERMS,
    PRINTED,
    WORDS,
    Term,
)
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.report import Explanation, ExplanationEntry
from meshwright.verbs.derivation import MADE_OF, Derivation, arithmetic, why_zero
from meshwright.verbs.document import Picked, pick_from, read_answer

#: What ``rejected.memory`` counts, which is no rule of the layouts.
_NO_ROOM = N_("Layouts that keep every rule but do not fit the memory.")
#: kind -> the room of its modules and the attribute that holds the name
_PARTS = {
    "schedule": ("costmodel/schedule", "NAME"),
    "block": ("costmodel/block", "KIND"),
    "collective": ("costmodel/collective", "NAME"),
}
#: A number of one layout by its place in a plan's document (from 0).
_PLACE = re.compile(r"^(?:(layouts|pareto)\.(\d{1,9})|(tight_faster))\.(.+)$")


def explain(target: str | Path, what: str | None = None, number: int = 1) -> Explanation:
    """What ``target`` means, or how the number ``what`` of layout ``number`` of the plan file ``target`` came about.

    ``what`` may be a path of the document (``layouts.1.step_time_s``, from 0). Raises InputError MW-E420 (an unknown
    name), MW-E421 (the plan has no such number) and those of reading plans.
    """
    if not isinstance(target, str | Path) or not str(target).strip():
        raise InputError("MW-E420", _("no name was given."), where="NAME")
    target = str(target)
    if what is not None or Path(target).suffix == ".json" or Path(target).is_file():
        return _of_plan(Path(target), what or "step_time_s", number)
    return _of_name(target)


def _of_name(name: str) -> Explanation:
    (full, kind, unit, sentence, source), *more = _meanings(name)
    others = tuple(
        ExplanationEntry(name=other, unit=unit, source=origin, what=": ".join((_(KINDS[sort]), text)))
        for other, sort, unit, text, origin in more
    )
    entry = () if source is None else (ExplanationEntry(name=full, unit=unit, source=source),)
    return Explanation(
        target=name, what=None, kind=_(KINDS[kind]), sentence=sentence, unit=unit, entries=(*entry, *others)
    )


class Meaning(NamedTuple):
    """One meaning of a name: the full name, its kind (of KINDS), unit, translated sentence, and source."""

    name: str
    kind: str
    unit: str | None
    sentence: str
    source: str | None = None


def _meanings(name: str) -> list[Meaning]:
    """Every meaning of a name, the likeliest first. Raises InputError (MW-E420) where there is none."""
    bare = name.strip()
    texts, constants = rules(), catalog.constants().by_name
    found = _in_glossary(bare) or _in_glossary(_printed(bare)) or _in_glossary(bare.casefold())
    if (code := bare.upper()) in ERRORS:
        found.append(Meaning(code, "error", None, _(ERRORS[code])))
    if bare in texts:
        found.append(Meaning(bare, "rule", None, _(texts[bare])))
    if bare in constants:
        constant = constants[bare]
        source = f"{constant.source} ({constant.label})"
        found.append(Meaning(bare, "constant", constant.unit, constant.what, source))
    if bare in FORMULAS and not found:
        unit, source, what = FORMULAS[bare]
        found.append(Meaning(bare, "formula", unit, _(what) if what else "", source))
    parts = {} if found else _parts()
    if bare in parts:
        found.append(parts[bare])
    if found:
        return found
    raise InputError(
        "MW-E420",
        _("'{name}' is not a name that Meshwright uses.").format(name=name),
        where="NAME",
        nearest=did_you_mean(
            bare, dict.fromkeys([*GLOSSARY, *WORDS, *PRINTED, *texts, *constants, *FORMULAS, *ERRORS, *parts])
        ),
    )


def _parts() -> dict[str, Meaning]:
    """The schedules, kinds of blocks and collectives there are, dropped-in ones too, by their modules' first lines."""
    found: dict[str, Meaning] = {}
    for kind, (room, attribute) in _PARTS.items():
        for module in discovery.modules(room):
            name = str(getattr(module, attribute, ""))
            first, *_more = (module.__doc__ or "").strip().split("\n")
            found.setdefault(name, Meaning(name, kind, None, _(first) if first else name))
    return found


def _in_glossary(name: str) -> list[Meaning]:
    """The glossary's meanings; a dotted name such as ``memory.by.optimizer`` has one, a bare name may have several."""
    if (term := _glossary(name)) is None:
        term = WORDS.get(name)
    found = [] if term is None else [Meaning(name, term.kind, term.unit, _(term.what))]
    if "." in name:
        return found
    for prefix, terms in (("memory.by", MEMORY_TERMS), ("layout", LAYOUT_TERMS), ("job", JOB_TERMS), ("word", WORDS)):
        if name in terms and terms[name] is not term:
            other = terms[name]
            full = name if prefix == "word" else f"{prefix}.{name}"
            found.append(Meaning(full, other.kind, other.unit, _(other.what)))
    return found


def _printed(word: str) -> str:
    """The name behind a word that a page prints, in English or in the present language."""
    for shown, name in PRINTED.items():
        if word.casefold() in (shown.casefold(), _(shown).casefold()):
            return name
    return next((name for name in WORDS if _(name) == word), word)


def _glossary(name: str) -> Term | None:
    """The glossary's entry; ``memory.by.x`` and ``layout.x`` choose between two meanings of a name."""
    head, _dot, last = name.rpartition(".")
    if head == "rejected":
        if last == "memory":
            return Term("result", None, _NO_ROOM)
        return Term("rule", None, rules()[last]) if last in rules() else GLOSSARY["rejected"]
    if head.endswith(".terms_s"):
        return GLOSSARY["terms_s"]
    for prefix, terms in (("memory", MEMORY_TERMS), ("layout", LAYOUT_TERMS), ("job", JOB_TERMS)):
        if head.startswith(prefix) and last in terms:
            return terms[last]
    return GLOSSARY.get(last)


def _of_plan(path: Path, what: str, number: int) -> Explanation:
    document = read_answer(path)
    if (match := _PLACE.match(what)) and (layouts := _layouts_at(document, match)) is not None:
        # The layout of that place stands in for the plan's, so that its own formulas are shown.
        number = int(match[2] or 0) + 1
        found = _of_layout(document | {"layouts": layouts}, path, match[4], number)
        return found.model_copy(update={"what": what})
    return _of_layout(document, path, what, number)


def _layouts_at(document: Mapping[str, Any], match: re.Match[str]) -> list[Any] | None:
    """The layouts that a path speaks of; None where the document holds none of that name."""
    found = document.get(match[1] or match[3])
    if isinstance(found, Mapping):
        return [found]
    return found if isinstance(found, list) and found else None


def _of_layout(document: dict[str, Any], path: Path, what: str, number: int) -> Explanation:
    picked = pick_from(document, path, number) if document.get("layouts", True) else None
    values = _values(document, {} if picked is None else picked.estimate)
    inside = None if what in values else _inside(document, what)
    key, value = _look_up(values, what, path) if inside is None else (what, inside)
    if inside is not None:
        # Not of the layout picked, whose formulas would show other values.
        picked = None
    term = _glossary(key) or WORDS.get(key)
    leaf = key.rsplit(".", 1)[-1]
    sentences = [_(term.what)] if term else []
    unit = term.unit if term else None
    entries: tuple[ExplanationEntry, ...] = ()
    if value == 0 and picked is not None and key.startswith(("breakdown_s.", "memory.by.")):
        sentences.append(why_zero(key, picked.layout))
    elif value is None:
        sentences.append(_why_none(leaf))
    else:
        entries = _derived(key, value, unit, picked, values)
        if not entries and (term is None or term.kind not in ("layout", "job", "cluster")):
            sentences.append(_("No formula is recorded for it."))
        elif (calls := MADE_OF.get(key)) is not None and calls.how:
            sentences.append(_(calls.how))
    also = [name for name in _full_names(values, leaf) if key not in (name, what)]
    if also and inside is None and not key.startswith("rejected."):
        sentences.append(_("The same name also stands for {names}.").format(names=", ".join(also)))
    return Explanation(
        target=str(path),
        what=key,
        kind=_(KINDS[term.kind if term else "result"]),
        sentence=" ".join(sentences) or leaf,
        value=_short(value),
        unit=unit,
        entries=entries,
    )


def _why_none(leaf: str) -> str:
    """The sentence for a value that is null."""
    if leaf.startswith("time_to_train") or leaf in ("cost_usd", "energy_j"):
        return _("It has no value here: no --tokens were given.")
    return _("It has no value here.")


def _derived(
    key: str, value: Any, unit: str | None, picked: Picked | None, values: Mapping[str, Any]
) -> tuple[ExplanationEntry, ...]:
    """The formula calls behind a number, or the arithmetic; nothing where there is neither."""
    if picked is None:
        return ()

    def known(name: str) -> Any:
        if name == "peak_flops_per_s":
            return picked.cluster.gpu.peak_flops_per_s.get(picked.job.precision)
        return next((values[full] for full in _full_names(values, name)), None)

    if plain := arithmetic(key, value, unit, known):
        return plain
    ledger = Ledger()
    evaluate(picked.job, picked.cluster, LayoutBatch.of([picked.layout]), catalog.constants(), ledger=ledger)
    return Derivation(ledger, picked.layout).of(key)


def _values(document: Mapping[str, Any], estimate: Mapping[str, Any]) -> dict[str, Any]:
    """Every value of an answer by its full name: those of the layout first, then those of the whole."""
    whole = {name: value for name, value in document.items() if name not in estimate and name != "schema"}
    values = dict(_flatten(estimate)) | dict(_flatten(whole))
    ends = values.get("memory.capacity_bytes"), values.get("memory.peak_reserved_bytes")
    if isinstance(ends[0], int | float) and isinstance(ends[1], int | float):
        # The page prints it beside the classes of memory; the document leaves the subtraction to its reader.
        values["free"] = max(0.0, ends[0] - ends[1])
    return values


def _inside(document: Any, what: str) -> Any:
    """The value at a path through lists, such as ``runners_up.0.slower_ratio``; None where it leads nowhere."""
    if not re.search(r"\.\d", what):
        return None
    for step in what.split("."):
        if isinstance(document, list) and step.isdecimal() and int(step[:9]) < len(document):
            document = document[int(step[:9])]
        elif isinstance(document, Mapping) and step in document:
            document = document[step]
        else:
            return None
    return document


def _look_up(flat: Mapping[str, Any], what: str, path: Path) -> tuple[str, Any]:
    """The full dotted key and the value of ``what``, given in full, by its last word or as the page prints it."""
    for name in dict.fromkeys((what, _printed(what))):
        if full := _full_names(flat, name):
            return full[0], flat[full[0]]
    leaves = dict.fromkeys(key.rsplit(".", 1)[-1] for key in flat)
    raise InputError(
        "MW-E421",
        _("the plan has no '{what}'.").format(what=what),
        where=str(path),
        nearest=did_you_mean(what, leaves),
    )


def _full_names(flat: Mapping[str, Any], name: str) -> list[str]:
    """The keys that ``name`` may mean, a term of the step before a class of memory before the rest."""
    if name in flat:
        return [name]
    found = [key for key in flat if key.rsplit(".", 1)[-1] == name and ".facts." not in key]
    return sorted(found, key=lambda key: (not key.startswith("breakdown_s."), not key.startswith("memory.by.")))


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        yield f"{prefix}{name}", value
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")


def _short(value: Any) -> Any:
    """A value as it is shown; of lists of whole layouts and the like only their number."""
    if isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
        return _("{count} entries").format(count=len(value))
    return value
