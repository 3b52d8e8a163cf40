"""The part of a cluster's text that speaks of the network: adapters a node, topology, oversubscription, domain."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from meshwright.catalog import loader
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import Fact
from meshwright.specs.hardware import FabricKind, Nic
from meshwright.specs.limits import NICS_PER_NODE, OVERSUBSCRIPTION, at_most
from meshwright.units import parse_quantity

EXAMPLE = "4x100Gb OPA"
#: Words by which people name a kind of network (folded) -> the kind of the Nic noun.
KINDS = {
    "ib": "infiniband",
    "infiniband": "infiniband",
    "edr": "infiniband",
    "hdr100": "infiniband",
    "hdr": "infiniband",
    "hdr200": "infiniband",
    "ndr": "infiniband",
    "ndr400": "infiniband",
    "xdr": "infiniband",
    "opa": "omni-path",
    "omnipath": "omni-path",
    "roce": "roce",
    "rocev2": "roce",
    "gbe": "ethernet",
    "eth": "ethernet",
    "ethernet": "ethernet",
    "tcp": "ethernet",
    "efa": "efa",
    "slingshot": "slingshot",
    "slingshot11": "slingshot",
    "cxi": "slingshot",
}
_COUNT = re.compile(r"^(\d+)\s*x\s*(.+)$", re.IGNORECASE)
_SPEED = re.compile(
    r"^(?P<number>\d[\d.]*)\s*(?P<prefix>[GT])(?:(?P<ethernet>bE)|(?P<letter>b(?:it)?)?(?P<per>/s|ps)?)(?![a-zA-Z])"
    r"\s*(?P<words>.*)$",
    re.IGNORECASE,
)
_RATIO = re.compile(
    r"^(\d{1,6}(?:\.\d{1,6})?)\s*:\s*(\d{1,6}(?:\.\d{1,6})?)\s*(?:over[- ]?subscri(?:bed|ption))?$", re.IGNORECASE
)
_DOMAIN = re.compile(r"^NVL\s*(\d{1,6})$", re.IGNORECASE)
#: Words for how the adapters meet the switches (folded) -> the word of the Cluster noun.
_TOPOLOGIES: dict[str, FabricKind] = {
    "railoptimised": "rail-optimised",
    "railoptimized": "rail-optimised",
    "railaligned": "rail-optimised",
    "rail": "rail-optimised",
    "rails": "rail-optimised",
    "fattree": "fat-tree",
    "clos": "fat-tree",
    "leafspine": "fat-tree",
    "spineleaf": "fat-tree",
}
_FULL = frozenset({"nonblocking", "fullbisection", "fullbisectionbandwidth", "notoversubscribed"})


@dataclass(slots=True)
class Fabric:
    """What was said of the network; None: nothing."""

    nic: Nic | None = None
    nics_per_node: int | None = None
    oversubscription: float | None = None
    kind: FabricKind | None = None
    scale_up_domain_gpus: int | None = None


def parse_fabric(parts: list[str], usual: Nic | None, where: str) -> Fabric:
    """The comma-separated parts after the machines, such as ``4x100Gb OPA``, ``rail-optimised``, ``2:1
    oversubscribed`` and ``NVL64``.

    ``usual`` is the adapter of the machines named, whose kind stands in where only a speed is given. Raises
    InputError MW-E213 (not understood), MW-E214 (a ratio below one), MW-E215 (no adapters).
    """
    fabric = Fabric()
    for part in parts:
        ratio = _oversubscription(part, where)
        if ratio is not None:
            fabric.oversubscription = ratio
        elif (kind := _TOPOLOGIES.get(loader.fold(part.casefold().removesuffix("fabric").strip()))) is not None:
            fabric.kind = kind
        elif (domain := _DOMAIN.match(part)) is not None:
            fabric.scale_up_domain_gpus = int(domain[1])
        elif fabric.nic is None:
            fabric.nic, fabric.nics_per_node = _adapters(part, usual, where)
        else:
            raise InputError(
                "MW-E213",
                _("'{part}' comes after the adapters were said.").format(part=part),
                where=where,
                nearest=_("Name one kind of adapter a node, such as '{example}'.").format(example=EXAMPLE),
            )
    return fabric


def nic_of(text: str, usual: Nic | None, where: str, *, example: str = EXAMPLE) -> Nic:
    """A Nic by its catalog name, or by speed and kind such as ``200Gb RoCE``; made up where the catalog has none.

    ``example`` is a form that may stand where ``text`` does, for messages. Raises InputError MW-E213.
    """
    written = loader.find("nic", text)
    if written is not None:
        return cast("Nic", loader.build(written))
    match = _SPEED.match(text.strip())
    if match is None:
        raise InputError(
            "MW-E213",
            _("'{text}' is neither a network adapter of the catalog nor a speed and a kind.").format(text=text),
            where=where,
            nearest=_("{guess} Or write it like '{example}'.").format(
                guess=did_you_mean(text, loader.spellings("nic")), example=example
            ),
        )
    return _by_speed(match, text, usual, where, example)


def _by_speed(match: re.Match[str], text: str, usual: Nic | None, where: str, example: str) -> Nic:
    # People write Gb, Gbit, Gbps and plain G for a port's rate; a capital B means bytes and wants its "per second".
    in_bytes = match["letter"] == "B"
    if in_bytes and not match["per"]:
        guess = f"{match['number']}{match['prefix']}b"
        raise InputError(
            "MW-E213",
            _("'{text}' is no rate.").format(text=text),
            where=where,
            nearest=_("Did you mean {name}?").format(name=f"{guess} / {match['number']} {match['prefix']}B/s"),
        )
    unit = f"{match['prefix'].upper()}{'B' if in_bytes else 'b'}/s"
    speed = parse_quantity(f"{match['number']} {unit}", "bytes_per_s", where=where)
    kind = "ethernet" if match["ethernet"] else _kind(match["words"], usual, text, where)
    if speed <= 0:
        raise InputError(
            "MW-E213",
            _("'{text}' carries nothing.").format(text=text),
            where=where,
            nearest=_("Write it like '{example}'.").format(example=example),
        )
    for written in reversed(list(loader.mentioning("nic", kind))):
        nic = cast("Nic", loader.build(written))
        if nic.kind == kind and nic.bytes_per_s == speed:
            return nic
    said = Fact(text=text, source=where, label="inferred")
    return Nic.model_validate(
        {"name": text, "kind": kind, "bytes_per_s": speed, "facts": {"kind": said, "bytes_per_s": said}}
    )


def _kind(words: str, usual: Nic | None, text: str, where: str) -> str:
    found = {KINDS.get(loader.fold(word)) for word in words.split()} or {usual.kind if usual else None}
    if joined := KINDS.get(loader.fold(words)):
        found = {joined}
    if len(found) != 1 or None in found:
        kinds = ("IB", "RoCE", "EFA", "OPA", "GbE")
        raise InputError(
            "MW-E213",
            _("'{text}' names no kind of network that is known.").format(text=text),
            where=where,
            nearest=did_you_mean(words, kinds) if words else _("Known: {names}.").format(names=", ".join(kinds)),
        )
    return str(found.pop())


def _adapters(part: str, usual: Nic | None, where: str) -> tuple[Nic, int | None]:
    whole = loader.find("nic", part)
    if whole is not None:
        return cast("Nic", loader.build(whole)), None
    match = _COUNT.match(part)
    if match is None:
        return nic_of(part, usual, where), None
    if not match[1].strip("0"):
        raise InputError(
            "MW-E215",
            _("'{text}' counts none.").format(text=part),
            where=where,
            nearest=_("Write it like '{example}'.").format(example=EXAMPLE),
        )
    count = at_most(int(match[1][:32]), NICS_PER_NODE, where, "MW-E215")
    return nic_of(match[2], usual, where), count


def _oversubscription(part: str, where: str) -> float | None:
    if loader.fold(part) in _FULL:
        return 1.0
    match = _RATIO.match(part)
    if match is None:
        return None
    down, up = float(match[1]), float(match[2])
    if up <= 0 or down < up:
        turned = f"{up:g}:{down:g}" if down > 0 else "2:1"
        raise InputError(
            "MW-E214",
            _("'{text}' is less than 1:1.").format(text=part),
            where=where,
            nearest=_("Say how much the nodes send over what the spine carries: '{example}'.").format(example=turned),
        )
    if down / up > OVERSUBSCRIPTION:
        raise InputError(
            "MW-E214",
            _("{value} is too large.").format(value=part),
            where=where,
            nearest=_("The most is {most}.").format(most=f"{OVERSUBSCRIPTION:g}:1"),
        )
    return down / up
