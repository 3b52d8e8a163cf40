"""The part of a cluster's text that speaks of the machines: what they are and how many."""

from __future__ import annotations

import re
from dataclasses import dataclass

from meshwright.catalog import loader
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.limits import GPUS, at_most

EXAMPLES = "8xH100, 256x8 A100-80GB, 16 nodes of p5.48xlarge, local"
# The group before a name is what parts it from its count; ``_after`` decides whether an x in it belongs to the name.
_NODES_OF = re.compile(r"^(\d+)\s*(?:x\s*)?nodes?(\s+(?:of\s+|x\s*)?)(.+)$", re.IGNORECASE)
_COUNTED = re.compile(r"^(\d+)(\s*x\s*|\s+|(?=[A-Za-z]))(.+)$", re.IGNORECASE)
_GRID = re.compile(r"^(\d+)\s*x\s*(\d+)(\s*x\s*|\s+|(?=[A-Za-z]))(.+)$", re.IGNORECASE)
_ON_NODES = re.compile(r"^(\d+)(\s*x\s*|\s+|(?=[A-Za-z]))(.+?)\s+on\s+(\d+)\s+nodes?$", re.IGNORECASE)
_BEHIND = re.compile(r"^([A-Za-z].*?)\s*x\s*(\d{1,9})$", re.IGNORECASE)
_GPUS = re.compile(r"\s+GPUs?$", re.IGNORECASE)
_NAMELESS = re.compile(
    r"^(?:\d+\s*nodes?\s+(?:of\s+|with\s+|x\s*)?)?(?:\d+\s*(?:x\s*)?){0,2}(GPUs?)(?:\s+on\s+\d+\s+nodes?)?$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Named:
    """A GPU or node of the catalog, and the name it was called by."""

    written: loader.Written
    called: str

    @property
    def is_node(self) -> bool:
        """Whether a whole node was named."""
        return self.written.kind == "node"


@dataclass(frozen=True, slots=True)
class Machines:
    """What was said of the machines: ``n_gpus`` in all, or nodes and GPUs a node; the rest follows."""

    named: Named
    n_nodes: int | None = None
    gpus_per_node: int | None = None
    n_gpus: int | None = None


def parse_machines(text: str, where: str) -> Machines:
    """The machines that the text before the first comma names.

    Raises InputError MW-E201 (unknown name), MW-E210 (not understood), MW-E212 (does not divide), MW-E215 (none).
    """
    if (named := _named(text)) is not None:
        return Machines(named, n_nodes=1) if named.is_node else Machines(named, n_gpus=1)
    if (match := _NAMELESS.match(text)) and not _ends_in_name(text[: match.start(1)]):
        raise _nameless(text, match, where)
    if match := _NODES_OF.match(text):
        n_nodes, rest = _positive(match[1], text, where), _after(match[2], match[3])
        if (counted := _COUNTED.match(rest)) and _named(rest) is None:
            name = _after(counted[2], counted[3])
            return Machines(_required(name, where), n_nodes=n_nodes, gpus_per_node=_positive(counted[1], text, where))
        return Machines(_required(rest, where), n_nodes=n_nodes)
    if match := _ON_NODES.match(text):
        return _on_nodes(
            text,
            _positive(match[1], text, where),
            _required(_after(match[2], match[3]), where),
            _positive(match[4], text, where),
            where,
        )
    if (form := _turned(text)) is not None:
        raise InputError(
            "MW-E210",
            _("'{text}' does not describe a cluster.").format(text=text),
            where=where,
            nearest=_("Write it like '{example}'.").format(example=form),
        )
    if (match := _COUNTED.match(text)) is None:
        raise _unknown_machine(text, where) if re.search(r"[A-Za-z]", text) else not_understood(text, where)
    # A name may start with digits (8x4090 PCIe), so the whole rest as a name comes before nodes x GPUs.
    grid, name = _GRID.match(text), _after(match[2], match[3])
    if grid and _named(name) is None and (grid[3] or _named(grid[4]) is not None):
        return Machines(
            _required(_after(grid[3], grid[4]), where),
            n_nodes=_positive(grid[1], text, where),
            gpus_per_node=_positive(grid[2], text, where),
        )
    named, count = _required(name, where), _positive(match[1], text, where)
    return Machines(named, n_nodes=count) if named.is_node else Machines(named, n_gpus=count)


def _turned(text: str) -> str | None:
    """The form that is read, for counts written behind (``A100x8``) or with a star (``8*A100``); None otherwise."""
    plain = re.sub(r"\s*\*\s*", "x", text)
    if (match := _BEHIND.match(plain)) and _named(match[1]) is not None:
        return f"{match[2]}x{match[1]}"
    if plain == text or (match := _GRID.match(plain) or _COUNTED.match(plain)) is None:
        return None
    last = match.lastindex or 1
    return plain if _named(_after(match[last - 1], match[last])) is not None else None


def _after(separator: str, rest: str) -> str:
    """The name behind a count: ``rest``, or with the x of the separator where the name begins with it (``8 X900``)."""
    place = separator.casefold().find("x")
    if place < 0:
        return rest.strip()
    plain, whole = rest.strip(), (separator[place:] + rest).strip()
    apart = place > 0 and place == len(separator) - 1
    first, second = (whole, plain) if apart else (plain, whole)
    found = next((name for name in (first, second) if _named(name) is not None), None)
    if found is not None:
        return found
    return whole if apart and separator.endswith("X") else plain


def _ends_in_name(text: str) -> bool:
    """Whether the last number is a GPU's name, as in ``8x4090 GPUs``."""
    last = re.search(r"(x?)(\d+)\s*$", text, re.IGNORECASE)
    return last is not None and any(_named(name) is not None for name in (last[2], last[1] + last[2]))


def _nameless(text: str, match: re.Match[str], where: str) -> InputError:
    """The error for a count of GPUs without saying which."""
    example = f"{text[: match.start(1)].rstrip()} A100-80GB{text[match.end(1) :]}".strip()
    return InputError(
        "MW-E210",
        _("the GPU's name is missing in '{text}'.").format(text=text),
        where=where,
        nearest=_("Write it like '{example}'.").format(example=example),
    )


def _on_nodes(text: str, count: int, named: Named, n_nodes: int, where: str) -> Machines:
    if count % n_nodes:
        below, above = count - count % n_nodes, count - count % n_nodes + n_nodes
        near = " / ".join(str(n) for n in (below, above) if n)
        raise InputError(
            "MW-E212",
            _("{count} GPUs do not divide over {n_nodes} nodes.").format(count=count, n_nodes=n_nodes),
            where=where,
            nearest=_("Nearest: {counts}.").format(counts=near),
        )
    return Machines(named, n_nodes=n_nodes, gpus_per_node=count // n_nodes)


def _named(text: str) -> Named | None:
    called = _GPUS.sub("", text.strip())
    written = loader.find("gpu", called) or loader.find("node", called)
    return None if written is None else Named(written, called)


def _required(text: str, where: str) -> Named:
    found = _named(text)
    if found is None:
        raise _unknown_machine(_GPUS.sub("", text.strip()), where)
    return found


def _unknown_machine(name: str, where: str) -> InputError:
    """The error for a name that is neither a GPU nor a node, with the nearest of both."""
    known = [*loader.spellings("gpu"), *loader.spellings("node")]
    return InputError(
        "MW-E201",
        _("'{name}' is neither a GPU nor a node of the catalog.").format(name=name),
        where=where,
        nearest=did_you_mean(name, known),
    )


def _positive(digits: str, text: str, where: str) -> int:
    if not digits.strip("0"):
        raise InputError(
            "MW-E215",
            _("'{text}' counts none.").format(text=text),
            where=where,
            nearest=_("Known forms: {examples}.").format(examples=EXAMPLES),
        )
    # Python refuses to read thousands of digits as one number.
    return at_most(int(digits[:32]), GPUS, where, "MW-E215")


def not_understood(text: str, where: str) -> InputError:
    """The error for text that has no form of a cluster's."""
    return InputError(
        "MW-E210",
        _("'{text}' does not describe a cluster.").format(text=text),
        where=where,
        nearest=_("Known forms: {examples}.").format(examples=EXAMPLES),
    )
