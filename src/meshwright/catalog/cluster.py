"""A cluster from the text people write, or from their TOML file.

Text: ``8xH100`` - ``256x8 A100-80GB`` (nodes x GPUs) - ``2048xA100-80GB`` (whole usual nodes) - ``16 nodes of
p5.48xlarge`` - ``64 H100 on 8 nodes`` - ``2x GB200 NVL72`` (racks) - ``local`` (the CPU cores of this machine), then,
after commas, adapters a node (``4x100Gb OPA``, ``8xNDR``), ``2:1 oversubscribed``, ``rail-optimised`` or ``fat-tree``,
and ``NVL64`` for an NVLink domain of 64 GPUs.

File (``.toml``): ``n_nodes``, and ``node`` (a catalog name) or ``gpu`` with ``gpus_per_node``; optionally ``nic`` (a
catalog name or ``"200 Gb/s RoCE"``), ``nics_per_node``, ``scale_up``, ``host_memory_bytes`` (``"1 TiB"``),
``cpu_vendor``, ``fabric`` (``"rail-optimised"``), ``oversubscription`` (2.0 for 2:1), ``scale_up_domain_gpus``.

A GPU that no node of the catalog is the usual one for (one of your own) gets a node made up around it, each value
of which is reported as assumed; over several nodes the adapters have to be said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from meshwright.catalog import loader
from meshwright.catalog.fabric import Fabric, nic_of, parse_fabric
from meshwright.catalog.machines import EXAMPLES, Machines, Named, not_understood, parse_machines
from meshwright.catalog.provenance import dimension_of
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import Fact
from meshwright.specs.hardware import Cluster, Gpu, Nic, Node
from meshwright.specs.limits import NICS_PER_NODE
from meshwright.specs.plan import Assumed, Change
from meshwright.units import format_bytes, parse_quantity

_FILE_KEYS = (
    "n_nodes",
    "node",
    "gpu",
    "gpus_per_node",
    "nic",
    "nics_per_node",
    "scale_up",
    "scale_up_domain_gpus",
    "host_memory_bytes",
    "cpu_vendor",
    "fabric",
    "oversubscription",
)
_FILE_COUNTS: tuple[str, ...] = ("n_nodes", "gpus_per_node", "nics_per_node", "scale_up_domain_gpus")
#: What the usual node of a GPU answers where a file does not.
_FROM_NODE = ("gpus_per_node", "scale_up", "nic", "nics_per_node", "host_memory_bytes", "cpu_vendor")
#: The node that is made up around a GPU without a usual one; its host memory is three times that of its GPUs, as in
#: NVIDIA's DGX A100 and DGX H100 (2 TB to 640 GB, their data sheets).
_MADE_UP_GPUS = 8
_MADE_UP_NIC = "IB-NDR"
_HOST_OVER_GPU_MEMORY = 3.0
_RACKS = re.compile(r"^(?:(\d{1,6})\s*x?\s*)?(\S.*?)[-\s]*NVL\s*(\d{1,4})$", re.IGNORECASE)
_THOUSANDS = re.compile(r"^\d{1,3}(?:,\d{3})+(?=\s*x|\s)")


def cluster(text: str, *, where: str = "--cluster") -> tuple[Cluster, tuple[Assumed, ...]]:
    """The cluster that ``text`` describes, and what had to be assumed for it.

    Raises InputError: MW-E201 (unknown name), MW-E210 (not understood), MW-E211 (not whole nodes), MW-E212 (does not
    fit the nodes), MW-E213/214 (network), MW-E215 (none of something), MW-E216 (a cluster file's keys).
    """
    said = text.strip()
    if _is_file(said):
        return _from_file(Path(said).expanduser(), where)
    plain = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), said.replace("×", "x"))
    machines_text, *fabric_parts = (part.strip() for part in plain.split(","))
    if not machines_text:
        raise not_understood(said, where)
    if loader.fold(machines_text) == "local" and not fabric_parts:
        return _local(said)
    if (found := racks(machines_text)) is not None:
        machines, rack = found
        built, assumed = _assembled(said, machines, [rack, *filter(None, fabric_parts)], where)
        value = _("{count} nodes of {gpus} GPUs").format(count=built.n_nodes, gpus=built.gpus_per_node)
        why = _("{name} names whole racks of {gpus} GPUs").format(name=machines_text, gpus=built.scale_up_domain_gpus)
        nodes = Assumed(name="node", value=value, why=why)
        return built, (nodes, *(each for each in assumed if each.name != "node"))
    try:
        machines = parse_machines(machines_text, where)
    except InputError:
        # Only where the text means nothing: a directory may be called 8xH100.
        if _is_directory(said):
            raise _directory(said, where) from None
        raise
    return _assembled(said, machines, [part for part in fabric_parts if part], where)


def racks(text: str) -> tuple[Machines, str] | None:
    """The machines of ``2x GB200 NVL72``, racks whose GPUs one NVLink domain joins, and the word for the domain."""
    if (match := _RACKS.match(text)) is None or (written := loader.find("gpu", match[2])) is None:
        return None
    node, domain = _usual_node(written), int(match[3])
    if node is None or node.scale_up_domain_gpus is None:
        return None
    n_nodes = int(match[1] or 1) * max(domain // node.gpus_per_node, 1)
    return Machines(Named(written, match[2]), n_nodes=n_nodes, gpus_per_node=node.gpus_per_node), f"NVL{domain}"


def _assembled(
    text: str, machines: Machines, fabric_parts: list[str], where: str, *, nic_follows: bool = False
) -> tuple[Cluster, tuple[Assumed, ...]]:
    """The cluster of the machines and the fabric said; ``nic_follows``: the adapter is said elsewhere."""
    named = machines.named
    usual: Node | None
    if named.is_node:
        node = usual = cast("Node", loader.build(named.written))
        gpu = cast("Gpu", loader.entry("gpu", node.gpu, where=where))
    else:
        gpu = cast("Gpu", loader.build(named.written))
        usual = _usual_node(named.written)
        node = usual or _made_up(gpu, machines)
    n_nodes, gpus_per_node = _shape(machines, node, where)
    usual_nic = cast("Nic", loader.entry("nic", node.nic, where=where))
    usual_nics = min(NICS_PER_NODE, max(1, round(node.nics_per_node * gpus_per_node / node.gpus_per_node)))
    fabric = parse_fabric(fabric_parts, usual_nic if usual is not None else None, where)
    if usual is None and n_nodes > 1 and fabric.nic is None and not nic_follows:
        raise _no_adapters(text, gpu, where)
    domain = fabric.scale_up_domain_gpus or _domain(node, n_nodes, gpus_per_node)
    built = Cluster(
        text=text,
        gpu=gpu,
        nic=fabric.nic or usual_nic,
        node_name=node.name,
        n_nodes=n_nodes,
        gpus_per_node=gpus_per_node,
        nics_per_node=fabric.nics_per_node or usual_nics,
        scale_up=node.scale_up if gpus_per_node > 1 or domain is not None else "none",
        scale_up_domain_gpus=domain,
        host_memory_bytes=node.host_memory_bytes,
        cpu_vendor=node.cpu_vendor,
        fabric=fabric.kind or "fat-tree",
        oversubscription=fabric.oversubscription or 1.0,
    )
    if usual is None:
        return built, tuple(_assumptions_of_made_up(built, machines, fabric))
    return built, tuple(_assumptions(built, machines, fabric))


def _domain(node: Node, n_nodes: int, gpus_per_node: int) -> int | None:
    """GPUs of the node's scale-up domain where each of several nodes gives ``gpus_per_node`` of its own to the job.

    A single node keeps the whole domain, as more of its GPUs and more nodes are what a larger cluster would have.
    """
    whole = node.scale_up_domain_gpus
    if whole is None or n_nodes > 1:
        return None if whole is None else whole // node.gpus_per_node * gpus_per_node
    return whole if whole % gpus_per_node == 0 else None


def _made_up(gpu: Gpu, machines: Machines) -> Node:
    """A node around a GPU that has no usual one; ``_assumptions_of_made_up`` says what of it nobody gave."""
    count = machines.gpus_per_node or min(_MADE_UP_GPUS, machines.n_gpus or _MADE_UP_GPUS)
    return Node(
        name=f"{gpu.name} node",
        gpu=gpu.name,
        gpus_per_node=count,
        scale_up="nvswitch" if gpu.scale_up_bytes_per_s > 0 and count == _MADE_UP_GPUS else "pcie",
        nic=_MADE_UP_NIC,
        nics_per_node=count,
        host_memory_bytes=_HOST_OVER_GPU_MEMORY * gpu.memory_bytes * count,
        cpu_vendor="other",
    )


def _no_adapters(text: str, gpu: Gpu, where: str) -> InputError:
    return InputError(
        "MW-E210",
        _("no node of the catalog is the usual one for {gpu}, and no adapters were said.").format(gpu=gpu.name),
        where=where,
        nearest=_('Write nic = "{nic}" in it.').format(nic="400Gb IB")
        if _is_file(text)
        else _("Write it like '{example}'.").format(example=f"{text}, 8x400Gb IB"),
    )


def _shape(machines: Machines, node: Node, where: str) -> tuple[int, int]:
    """Nodes and GPUs a node; a count of GPUs is whole usual nodes, or one node in part."""
    usual, n_gpus = node.gpus_per_node, machines.n_gpus
    if n_gpus is None:
        gpus_per_node = machines.gpus_per_node or usual
        if machines.named.is_node and gpus_per_node > usual:
            raise InputError(
                "MW-E212",
                _("{node} has {usual} GPUs, not {count}.").format(node=node.name, usual=usual, count=gpus_per_node),
                where=where,
                nearest=_("Nearest: {counts}.").format(counts=f"{machines.n_nodes}x{usual}"),
            )
        return machines.n_nodes or 1, gpus_per_node
    if n_gpus <= usual:
        return 1, n_gpus
    if n_gpus % usual:
        below = n_gpus - n_gpus % usual
        even = max(n for n in range(1, usual + 1) if n_gpus % n == 0)
        raise InputError(
            "MW-E211",
            _("{count} GPUs are no whole number of nodes: {node} has {usual}.").format(
                count=n_gpus, node=node.name, usual=usual
            ),
            where=where,
            nearest=_("Nearest: {counts}; or say the nodes, as in '{example}'.").format(
                counts=f"{below} / {below + usual}", example=f"{n_gpus // even}x{even} {machines.named.called}"
            ),
        )
    return n_gpus // usual, usual


def _assumptions(built: Cluster, machines: Machines, fabric: Fabric) -> list[Assumed]:
    found: list[Assumed] = []
    named = machines.named
    if loader.fold(named.called) in {loader.fold(name) for name in named.written.names("short_names")}:
        found.append(Assumed(name="gpu", value=built.gpu.name, why=_("the name leaves the variant open")))
    if not named.is_node:
        text = _("{node}, 1 GPU a node") if built.gpus_per_node == 1 else _("{node}, {count} GPUs a node")
        value = text.format(node=built.node_name, count=built.gpus_per_node)
        found.append(Assumed(name="node", value=value, why=_("the usual node of this GPU; none was named")))
    if built.n_nodes == 1:
        return found
    return [*found, *_assumptions_of_fabric(built, machines, fabric)]


def _assumptions_of_made_up(built: Cluster, machines: Machines, fabric: Fabric) -> Iterator[Assumed]:
    """What was assumed around a GPU without a usual node: each value of the node that nobody said."""
    unknown = _("no node of the catalog is the usual one for this GPU")
    if machines.gpus_per_node is None and built.n_nodes > 1:
        yield Assumed(name="node", value=_("{count} GPUs a node").format(count=built.gpus_per_node), why=unknown)
    if built.gpus_per_node > 1:
        other = "pcie" if built.scale_up == "nvswitch" else "nvswitch"
        useful = built.gpu.scale_up_bytes_per_s > 0
        change = Change(path="cluster.scale_up", value=other) if useful else None
        yield Assumed(name="scale_up", value=built.scale_up, why=unknown, alternative=change)
    host = format_bytes(built.host_memory_bytes)
    yield Assumed(name="host_memory_bytes", value=host, why=_("three times the memory of the node's GPUs"))
    yield Assumed(name="cpu_vendor", value=built.cpu_vendor, why=unknown)
    if fabric.nics_per_node is None:
        yield _assumed_fabric(built, _("one adapter a GPU; {reason}").format(reason=unknown))
    if built.n_nodes > 1 and fabric.oversubscription is None:
        yield _full_bisection()


def _assumptions_of_fabric(built: Cluster, machines: Machines, fabric: Fabric) -> Iterator[Assumed]:
    """What was assumed between several nodes of the catalog."""
    if fabric.nics_per_node is None and (not machines.named.is_node or fabric.nic is not None):
        yield _assumed_fabric(
            built,
            _("the usual adapters of this node; none were named")
            if fabric.nic is None
            else _("the usual number of adapters of this node; none was said"),
        )
    if fabric.oversubscription is None:
        yield _full_bisection()


def _assumed_fabric(built: Cluster, why: str) -> Assumed:
    other = built.nics_per_node // 2 if built.nics_per_node > 1 else 2
    # Between the GPUs of one node no adapter matters.
    change = Change(path="cluster.nics_per_node", value=other) if built.n_nodes > 1 else None
    return Assumed(name="fabric", value=f"{built.nics_per_node}x {built.nic.name}", why=why, alternative=change)


def _full_bisection() -> Assumed:
    return Assumed(
        name="oversubscription",
        value=1.0,
        why=_("a full-bisection fabric, as nothing else was said"),
        alternative=Change(path="cluster.oversubscription", value=2.0),
    )


def _usual_node(gpu: loader.Written) -> Node | None:
    """The node whose file lists this GPU under ``usual_for``, or None; a later directory overrides an earlier one."""
    folded = loader.fold(gpu.name)
    usual = next(
        (
            written
            for written in loader.mentioning("node", gpu.name)
            if folded in {loader.fold(name) for name in written.names("usual_for")}
        ),
        None,
    )
    return None if usual is None else cast("Node", loader.build(usual))


def _local(text: str) -> tuple[Cluster, tuple[Assumed, ...]]:
    """This machine: each CPU core a rank, its memory shared evenly, talking over the loopback device."""
    node = cast("Node", loader.entry("node", "local"))
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    memory_bytes = _physical_memory_bytes() or node.host_memory_bytes
    said = _("{cores} CPU cores, {memory}").format(cores=cores, memory=format_bytes(memory_bytes))
    core = cast("Gpu", loader.entry("gpu", node.gpu))
    fact = Fact(text=f"{format_bytes(memory_bytes)} / {cores}", source=_("counted on this machine"), label="measured")
    gpu = core.model_copy(update={"memory_bytes": memory_bytes / cores, "facts": {**core.facts, "memory_bytes": fact}})
    built = Cluster(
        text=text,
        gpu=gpu,
        nic=cast("Nic", loader.entry("nic", node.nic)),
        node_name=node.name,
        n_nodes=1,
        gpus_per_node=cores,
        nics_per_node=1,
        scale_up=node.scale_up,
        host_memory_bytes=memory_bytes,
        cpu_vendor=node.cpu_vendor,
    )
    return built, (Assumed(name="node", value=said, why=_("counted on this machine; a core's speed is nominal")),)


def _physical_memory_bytes() -> float | None:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return None


def _is_file(text: str) -> bool:
    return text.casefold().endswith(".toml")


def _is_directory(text: str) -> bool:
    try:
        return Path(text).expanduser().is_dir()
    except (OSError, ValueError, RuntimeError):
        # Too long for the file system, a NUL, or the home of a user that there is not.
        return False


def _directory(text: str, where: str) -> InputError:
    return InputError(
        "MW-E216",
        _("'{path}' is a directory.").format(path=text),
        where=where,
        nearest=_("Known forms: {examples}.").format(examples=f"{EXAMPLES}, cluster.toml"),
    )


def _from_file(path: Path, where: str) -> tuple[Cluster, tuple[Assumed, ...]]:
    try:
        found = path.is_file()
    except PermissionError as error:
        raise loader.unreadable("MW-E216", path, error) from None
    except (OSError, ValueError):
        # A name too long for the file system, or with a NUL in it, is no path.
        found = False
    if not found:
        if _is_directory(str(path)):
            raise _directory(str(path), where)
        raise InputError(
            "MW-E216",
            _("there is no file '{path}'.").format(path=path),
            where=where,
            nearest=_("Known forms: {examples}.").format(examples=EXAMPLES),
        )
    data, place = loader.read_toml(path), path.name
    for key in data:
        if key not in _FILE_KEYS:
            raise InputError(
                "MW-E216", _("unknown field."), where=f"{place}: {key}", nearest=did_you_mean(key, _FILE_KEYS)
            )
    named_key = "node" if "node" in data else "gpu"
    if missing := [key for key in ("n_nodes", named_key) if key not in data]:
        raise InputError("MW-E216", _("missing: {fields}.").format(fields=", ".join(missing)), where=place)
    called = str(data[named_key])
    written = loader.find(named_key, called)
    if written is None:
        raise loader.unknown(named_key, called, f"{place}: {named_key}")
    counts: dict[str, int] = {key: _count(data[key], f"{place}: {key}") for key in _FILE_COUNTS if key in data}
    machines = Machines(Named(written, called), n_nodes=counts["n_nodes"], gpus_per_node=counts.get("gpus_per_node"))
    built, assumed = _assembled(str(path), machines, [], place, nic_follows="nic" in data)
    whole = _with_file(built, data, counts, place)
    if named_key == "gpu" and _usual_node(written) is None:
        return whole, tuple(_still_made_up(assumed, data, whole))
    return whole, tuple(_still_assumed(assumed, data, whole))


def _with_file(built: Cluster, data: dict[str, Any], counts: dict[str, int], place: str) -> Cluster:
    """The cluster with what its file says beyond the machines."""
    changed: dict[str, Any] = {"nics_per_node": counts.get("nics_per_node", built.nics_per_node)}
    if "nic" in data:
        changed["nic"] = nic_of(str(data["nic"]), built.nic, f"{place}: nic", example="100Gb OPA")
    if "scale_up_domain_gpus" in counts:
        changed["scale_up_domain_gpus"] = counts["scale_up_domain_gpus"]
    for key in ("scale_up", "cpu_vendor", "fabric", "oversubscription"):
        if key in data:
            changed[key] = data[key]
    if "host_memory_bytes" in data:
        dimension = dimension_of("host_memory_bytes") or "bytes"
        changed["host_memory_bytes"] = parse_quantity(
            data["host_memory_bytes"], dimension, where=f"{place}: host_memory_bytes"
        )
    values = {name: getattr(built, name) for name in Cluster.model_fields}
    try:
        return Cluster.model_validate(values | changed)
    except ValidationError as error:
        raise loader.field_error(error, Cluster, place) from None


def _still_assumed(assumed: tuple[Assumed, ...], data: dict[str, Any], built: Cluster) -> Iterator[Assumed]:
    """The assumptions about what the file does not say, each speaking of only that."""
    # One node has no use for adapters.
    of_node = [key for key in _FROM_NODE if key not in data and (built.n_nodes > 1 or not key.startswith("nic"))]
    for each in assumed:
        if each.name == "node":
            if of_node:
                why = _("the usual node of this GPU; the file does not say {fields}").format(fields=", ".join(of_node))
                yield each.model_copy(update={"value": built.node_name, "why": why})
        elif each.name == "fabric" and "nics_per_node" not in data:
            why = _("the usual number of adapters of this node; none was said") if "nic" in data else each.why
            yield each.model_copy(update={"value": f"{built.nics_per_node}x {built.nic.name}", "why": why})
        elif each.name not in data and each.name != "fabric":
            yield each


def _still_made_up(assumed: tuple[Assumed, ...], data: dict[str, Any], built: Cluster) -> Iterator[Assumed]:
    """Of what was made up around a GPU, that which the file does not say."""
    for each in assumed:
        if each.name == "fabric":
            if "nics_per_node" not in data:
                yield _assumed_fabric(built, each.why)
        elif each.name not in data:
            yield each


def _count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(
            "MW-E215", _("{value} is not a whole number above zero.").format(value=repr(value)), where=where
        )
    return value
