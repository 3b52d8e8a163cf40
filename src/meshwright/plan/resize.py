"""The same kind of cluster with another number of GPUs: whole nodes, or a part of one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from meshwright import catalog
from meshwright.catalog import loader
from meshwright.catalog.cluster import racks
from meshwright.catalog.machines import parse_machines
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.specs.hardware import Cluster, Node
from meshwright.specs.limits import GPUS

#: Nodes beyond which no cluster is tried.
LARGEST_NODES = 4096
#: A count with thousands marks before a name: its commas part no fabric.
_THOUSANDS = re.compile(r"^\d{1,3}(?:,\d{3})+(?=\s*x|\s)")


def node_gpus(cluster: Cluster) -> int:
    """GPUs of a full node: those of the catalog's node where the cluster is a part of one."""
    node = loader.find("node", cluster.node_name)
    if cluster.n_nodes > 1 or node is None or cluster.nic.kind == "loopback":
        return cluster.gpus_per_node
    return max(cluster.gpus_per_node, cast("Node", loader.build(node)).gpus_per_node)


def counts(cluster: Cluster, largest_nodes: int = LARGEST_NODES) -> list[int]:
    """GPU counts that exist, ascending: the even parts of a node, then whole nodes."""
    full = node_gpus(cluster)
    parts = [n for n in range(1, full) if full % n == 0]
    most = 1 if cluster.nic.kind == "loopback" else min(largest_nodes, GPUS // full)
    return parts + [full * nodes for nodes in range(1, most + 1)]


def resized(cluster: Cluster, n_gpus: int, *, where: str = "--gpus") -> Cluster:
    """``cluster`` with ``n_gpus`` GPUs of the same kind on the same fabric; its text describes it.

    Raises InputError: MW-E211 (neither whole nodes nor a part of one), MW-E212 (more than this machine has).
    """
    if n_gpus == cluster.n_gpus:
        return cluster
    full = node_gpus(cluster)
    if n_gpus > full and cluster.nic.kind == "loopback":
        raise InputError(
            "MW-E212",
            _("this machine has {usual} cores, not {count}.").format(usual=full, count=n_gpus),
            where=where,
            nearest=_("Name a cluster, such as '{example}'.").format(example="8xH100"),
        )
    if n_gpus > full and n_gpus % full:
        below = n_gpus - n_gpus % full
        raise InputError(
            "MW-E211",
            _("{count} GPUs are no whole number of nodes: {node} has {usual}.").format(
                count=n_gpus, node=cluster.node_name, usual=full
            ),
            where=where,
            nearest=_("Nearest: {counts}.").format(counts=f"{below} / {below + full}"),
        )
    shape = {"n_nodes": max(1, n_gpus // full), "gpus_per_node": min(full, n_gpus)}
    if Path(cluster.text).suffix == ".toml" or cluster.nic.kind == "loopback":
        nics = max(1, round(cluster.nics_per_node * shape["gpus_per_node"] / cluster.gpus_per_node))
        return cluster.model_copy(update={**shape, "nics_per_node": nics})
    # The catalog alone knows what a part of a node looks like; what --set changed is carried over.
    usual = catalog.cluster(cluster.text)[0]
    changed = {
        name: getattr(cluster, name)
        for name in Cluster.model_fields
        if name not in (*shape, "text") and getattr(cluster, name) != getattr(usual, name)
    }
    return catalog.cluster(_text(cluster.text, full, n_gpus))[0].model_copy(update={**shape, **changed})


def _text(text: str, full: int, n_gpus: int) -> str:
    """The text with another count; the fabric behind the comma stays."""
    plain = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text.strip().replace("×", "x"))
    before, comma, fabric = plain.partition(",")
    if (whole := racks(before.strip())) is not None:
        machines, domain = whole
        called, rack = machines.named.called, int(domain.removeprefix("NVL"))
        if n_gpus % rack == 0:
            return f"{n_gpus // rack}x {called} {domain}{comma}{fabric}"
        counted = f"{n_gpus // full}x{full} {called}" if n_gpus >= full else f"{n_gpus}x{called}"
        return f"{counted}, {domain}{comma}{fabric}"
    machines = parse_machines(before.strip(), "--cluster")
    called = machines.named.called
    if n_gpus >= full and machines.named.is_node:
        counted = f"{n_gpus // full} nodes of {called}"
    elif n_gpus >= full and machines.n_gpus is None:
        counted = f"{n_gpus // full}x{full} {called}"
    else:
        counted = f"1x{n_gpus} {called}" if machines.named.is_node else f"{n_gpus}x{called}"
    return f"{counted}{comma}{fabric}"
