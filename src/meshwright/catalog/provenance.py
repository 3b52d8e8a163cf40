"""Values of a catalog file: text with a unit in, SI number and Fact out; what has no unit or no source is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import Fact, Label
from meshwright.units import parse_quantity

LABELS: tuple[str, ...] = get_args(Label)

#: How a field's name ends -> its dimension in ``units.UNITS``; the longest ending counts.
_ENDINGS = (
    ("_bytes_per_s", "bytes_per_s"),
    ("_flops_per_s", "flops_per_s"),
    ("_bytes", "bytes"),
    ("_hz", "hz"),
    ("_w", "w"),
    ("_usd", "usd"),
    ("_usd_per_hour", "usd_per_hour"),
    ("_s", "s"),
)


@dataclass(slots=True)
class Provenance:
    """The source and label defaults of one file, and the facts collected while its values are read.

    ``sources`` maps a short key to the full reference; ``place`` is the file as messages name it.
    """

    place: str
    source: str | None
    label: str | None
    sources: Mapping[str, str]
    facts: dict[str, Fact] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any], place: str, *, assumed_source: str | None = None) -> Provenance:
        """Read ``source``, ``label`` and ``[sources]`` of a file.

        ``assumed_source`` stands in where a file that describes the reader's own thing names none (label: inferred).
        Raises InputError MW-E204 where they are not text.
        """
        sources = data.get("sources", {})
        if not isinstance(sources, Mapping) or not all(isinstance(text, str) for text in sources.values()):
            raise InputError("MW-E204", _("[sources] must be a table of references as text."), where=place)
        source, label = data.get("source"), data.get("label")
        known: dict[str, str] = dict(sources)
        if source is None and assumed_source is not None:
            source, label = assumed_source, label or "inferred"
            known[assumed_source] = assumed_source
        return cls(place, source, label, known)

    def value(self, name: str, written: Any, dimension: str | None) -> Any:
        """The SI value of one field (``name`` dotted where nested), recorded as a Fact.

        ``written`` is text, a number, a truth value, or ``{ value, source, label }``. Raises InputError: MW-E204
        (no source or label), MW-E110..113 (not a quantity of ``dimension``), each naming file and field.
        """
        where = f"{self.place}: {name}"
        source, label = self.source, self.label
        if isinstance(written, Mapping):
            if odd := [key for key in written if key not in ("value", "source", "label")]:
                raise InputError(
                    "MW-E204",
                    _("'{key}' does not belong to a value.").format(key=odd[0]),
                    where=where,
                    nearest=_("A value has value, source and label."),
                )
            source, label = written.get("source", source), written.get("label", label)
            written = written["value"]
        self.facts[name] = self._fact(written, source, label, where)
        return written if dimension is None else parse_quantity(written, dimension, where=where)

    def _fact(self, written: Any, source: Any, label: Any, where: str) -> Fact:
        if not isinstance(source, str) or source not in self.sources:
            unknown = _("source '{source}' is not in [sources].").format(source=source)
            raise InputError(
                "MW-E204",
                _("no source.") if source is None else unknown,
                where=where,
                nearest=did_you_mean(source, self.sources)
                if isinstance(source, str) and self.sources
                else _('Give the file source = "key", and [sources] key = "title, date, address".'),
            )
        if not isinstance(label, str) or label not in LABELS:
            raise InputError(
                "MW-E204",
                _("'{label}' is not a label.").format(label=label) if label else _("no label."),
                where=where,
                nearest=did_you_mean(str(label or ""), LABELS, show=len(LABELS)),
            )
        text = ("true" if written else "false") if isinstance(written, bool) else str(written)
        return Fact(text=text, source=self.sources[source], label=cast("Label", label))


def dimension_of(field_name: str) -> str | None:
    """The dimension of a field by the end of its name (``memory_bytes`` -> ``bytes``); None: a plain value."""
    return next((dimension for ending, dimension in _ENDINGS if f"_{field_name}".endswith(ending)), None)


def is_value(written: Any) -> bool:
    """Whether ``written`` is one value (plain, or a table with ``value``) rather than a nested table of values."""
    return not isinstance(written, Mapping) or "value" in written
