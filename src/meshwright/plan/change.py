"""Changes applied: one path and its new value on a job, cluster or layout, checked as the nouns check themselves."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from meshwright import catalog
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import Noun
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, parse_layout
from meshwright.specs.plan import Change

_N = TypeVar("_N", bound=Noun)


@dataclass(frozen=True, slots=True)
class Case:
    """What the cost model is asked about: a job on a cluster, cut by a layout."""

    job: TrainingJob
    cluster: Cluster
    layout: Layout


#: Fields that describe where a value came from, not what is trained or where.
_NOT_CHANGED = frozenset({"name", "aliases", "facts", "text", "node_name", "family", "prologue", "layers", "epilogue"})


def paths() -> tuple[str, ...]:
    """Every path that a Change may name."""
    found: list[str] = []
    for root, noun in (("job", TrainingJob), ("cluster", Cluster), ("layout", Layout)):
        found.extend(_paths(root, noun))
    return tuple(found)


def _paths(prefix: str, noun: type[Noun]) -> list[str]:
    found = []
    for name, field in noun.model_fields.items():
        if name in _NOT_CHANGED:
            continue
        found.append(f"{prefix}.{name}")
        if isinstance(field.annotation, type) and issubclass(field.annotation, Noun):
            found.extend(_paths(f"{prefix}.{name}", field.annotation))
    return found


def parse_change(text: str, *, where: str = "--set") -> Change:
    """``path=value`` as a Change; the root may be left out where only one noun has the field.

    Raises InputError MW-E150 (not path=value) or MW-E151 (unknown path).
    """
    path, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not path or not value:
        raise InputError(
            "MW-E150",
            _("'{text}' is not path=value.").format(text=text),
            where=where,
            nearest=_("Write it like '{example}'.").format(example="cluster.nics_per_node=8"),
        )
    known = paths()
    if path not in known:
        ends = [full for full in known if full.split(".", 1)[1] == path or full.endswith(f".{path}")]
        if len(ends) != 1:
            raise InputError(
                "MW-E151",
                _("'{path}' is not something that can be set.").format(path=path),
                where=where,
                nearest=_nearest_path(path, known, ends),
            )
        path = ends[0]
    return Change(path=path, value=value)


def _nearest_path(path: str, known: Iterable[str], ends: list[str]) -> str:
    if ends:
        return _("Several have it: {names}.").format(names=", ".join(ends))
    leaves = {full.rsplit(".", 1)[1]: full for full in known} | {full: full for full in known}
    # The right field of the wrong noun (cluster.pue) is nearer than a field that is spelled alike.
    if (meant := leaves.get(path.rsplit(".", 1)[-1])) is not None:
        return _("Did you mean {name}?").format(name=meant)
    close = difflib.get_close_matches(path, leaves, n=1, cutoff=0.55)
    return did_you_mean(leaves[close[0]] if close else path, known, show=12)


def apply(change: Change, case: Case) -> Case:
    """The case with ``change`` made. Raises InputError (MW-E151, MW-E152) for an unknown path or an unfit value."""
    root, _dot, rest = change.path.partition(".")
    if change.path not in paths():
        raise InputError(
            "MW-E151",
            _("'{path}' is not something that can be set.").format(path=change.path),
            where="--set",
            nearest=did_you_mean(change.path, paths()),
        )
    if root == "job":
        return replace(case, job=_changed(case.job, rest, change))
    if root == "cluster":
        return replace(case, cluster=_changed(case.cluster, rest, change))
    value = change.value
    if isinstance(value, str):
        value = parse_layout(f"{rest}={value}", where="--set")[rest]
    return replace(case, layout=_changed(case.layout, rest, change.model_copy(update={"value": value})))


def apply_all(changes: Iterable[Change], case: Case) -> Case:
    """The case with all ``changes`` made in order."""
    for change in changes:
        case = apply(change, case)
    return case


def _changed(noun: _N, path: str, change: Change) -> _N:
    name, _dot, rest = path.partition(".")
    value = _changed(getattr(noun, name), rest, change) if rest else _named(noun, name, change.value)
    # Fields are handed over as they are: dumping and reading a whole model again would cost more than the estimate.
    fields = {field: getattr(noun, field) for field in type(noun).model_fields}
    try:
        return type(noun).model_validate(fields | {name: value})
    except InputError as error:
        if error.where is not None:
            raise
        # Quantities do not know which field they are read for.
        raise InputError(error.code, error.message, where=f"--set {change.path}", nearest=error.nearest) from None
    except ValidationError as error:
        raise InputError(
            "MW-E152",
            _("{path} cannot be '{value}'.").format(path=change.path, value=change.value),
            where="--set",
            nearest=_allowed(type(noun), name) or error.errors()[0]["msg"] + ".",
        ) from None


def _named(noun: Noun, name: str, value: Any) -> Any:
    """A catalog entry for a field that holds one and was given by name; booleans as people write them."""
    if isinstance(noun, Cluster) and isinstance(value, str):
        if name == "gpu":
            return catalog.gpu(value, where="--set cluster.gpu")
        if name == "nic":
            return catalog.nic(value, where="--set cluster.nic")
    if isinstance(noun, TrainingJob) and name == "model" and isinstance(value, str):
        return catalog.model(value)
    return value


def _allowed(noun: type[Noun], name: str) -> str | None:
    choices = [str(choice) for choice in get_args(noun.model_fields[name].annotation) if isinstance(choice, str)]
    return _("Known: {names}.").format(names=", ".join(choices)) if choices else None
