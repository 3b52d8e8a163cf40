"""What surrounds a cluster where nobody said it: the usual site, and the failures of the likest real cluster."""

from __future__ import annotations

import re
from typing import cast

from meshwright.catalog import loader
from meshwright.i18n import _
from meshwright.specs.hardware import Cluster
from meshwright.specs.plan import Assumed, Change
from meshwright.specs.site import Reliability, Site

#: The entries of ``catalog/site`` that are assumed and compared with.
_USUAL, _OTHER = "usual", "modest"
#: field -> the number of an answer that shows best how it moves with the field
SHOWN_BY = {
    "pue": "energy_j",
    "storage_bytes_per_s": "time_to_train_with_failures_s",
    "restart_s": "time_to_train_with_failures_s",
    "failures_per_1000_node_days": "time_to_train_with_failures_s",
}


def with_site(cluster: Cluster) -> tuple[Cluster, tuple[Assumed, ...]]:
    """The cluster with every field of its site filled, and what was assumed for that."""
    usual, other = (cast("Site", loader.entry("site", name)) for name in (_USUAL, _OTHER))
    record, differs = _records(cluster.gpu.architecture)
    values, alternatives = ({name: fact.text for name, fact in each.facts.items()} for each in (usual, other))
    why = {name: _("as in {source}").format(source=_shortened(fact.source)) for name, fact in usual.facts.items()}
    rate = "failures_per_1000_node_days"
    values[rate], alternatives[rate] = (f"{each.failures_per_1000_node_days:g}" for each in (record, differs))
    why[rate] = _("{name}; the other: {other}").format(name=record.name, other=differs.name)
    missing = [name for name in SHOWN_BY if getattr(cluster.site, name) is None]
    assumed = tuple(
        Assumed(
            name=name,
            value=values[name],
            why=why[name],
            alternative=Change(path=f"cluster.site.{name}", value=alternatives[name]),
            total=SHOWN_BY[name],
        )
        for name in missing
    )
    # Only what was said has facts of its own; what is filled in is told as assumed.
    said = {name: getattr(cluster.site, name) for name in type(cluster.site).model_fields if name not in missing}
    site = Site.model_validate(said | {name: values[name] for name in missing})
    return cluster.model_copy(update={"site": site}), assumed


def _shortened(source: str) -> str:
    """A source as people cite it in passing: its arXiv number, else what stands before the first colon."""
    found = re.search(r"arXiv \d{4}\.\d+", source)
    return found[0] if found else source.split(":", maxsplit=1)[0]


def _records(architecture: str) -> tuple[Reliability, Reliability]:
    """The record of this architecture (of any, where none has it) that watched longest, and one that differs most."""
    every = [cast("Reliability", loader.entry("reliability", name)) for name in loader.names("reliability")]
    alike = [each for each in every if each.architecture == architecture] or every
    chosen = max(alike, key=lambda each: each.node_days)
    others = [each for each in (alike if len(alike) > 1 else every) if each is not chosen]

    def distance(other: Reliability) -> float:
        ratio = other.failures_per_1000_node_days / chosen.failures_per_1000_node_days
        return max(ratio, 1.0 / ratio)

    return chosen, max(others, key=distance, default=chosen)
