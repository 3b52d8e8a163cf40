"""``catalog``: what is known by name, and where each value comes from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meshwright import catalog as entries
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import CatalogEntry
from meshwright.specs.hardware import Gpu, Nic, Node
from meshwright.specs.model import ModelSpec
from meshwright.specs.price import Price
from meshwright.specs.report import CatalogField, CatalogListing, CatalogRow
from meshwright.specs.site import Reliability, Site
from meshwright.units import format_bytes, format_count


def catalog(kind: str | None = None, name: str | None = None) -> CatalogListing:
    """Every entry, those of one ``kind``, or the values of the one called ``name`` with their sources.

    ``kind`` may be left out before a name that is known (``mw catalog h100``), and the name of a GPU lists its prices
    (``mw catalog price h100``), those of one tier together, the newest first. Raises InputError MW-E201 (unknown
    name) or MW-E202 (neither a kind nor a name).
    """
    if kind is None:
        rows = [row for each in entries.kinds() for row in _rows(each)]
        return CatalogListing(kind=None, name=None, rows=tuple(rows), fields=())
    if kind not in entries.kinds():
        if name is not None or (found := _kind_of(kind)) is None:
            raise InputError(
                "MW-E202",
                _("'{kind}' is neither a kind of catalog entry nor a name.").format(kind=kind),
                nearest=did_you_mean(kind, [*entries.kinds(), *(n for k in entries.kinds() for n in entries.names(k))]),
            )
        kind, name = found, kind
    if name is None:
        return CatalogListing(kind=kind, name=None, rows=tuple(_rows(kind)), fields=())
    if kind == "price" and (rows := _prices_of(name)):
        return CatalogListing(kind=kind, name=name, rows=tuple(rows), fields=())
    entry = entries.entry(kind, name, where="NAME")
    return CatalogListing(kind=kind, name=entry.name, rows=(_row(kind, entry),), fields=tuple(_fields(entry)))


def _kind_of(name: str) -> str | None:
    for kind in entries.kinds():
        try:
            entries.entry(kind, name)
        except InputError:
            continue
        return kind
    return None


def _prices_of(gpu: str) -> list[CatalogRow]:
    """The prices of a GPU; none where ``gpu`` is not the name of one."""
    if _kind_of(gpu) != "gpu":
        return []
    return [_row("price", price) for price in entries.prices(gpu)]


def _rows(kind: str) -> list[CatalogRow]:
    return [_row(kind, entries.entry(kind, name)) for name in entries.names(kind)]


def _row(kind: str, entry: CatalogEntry) -> CatalogRow:
    return CatalogRow(kind=kind, name=entry.name, aliases=entry.aliases, summary=_SUMMARIES[type(entry)](entry))


def _gpu(gpu: Gpu) -> str:
    peak = gpu.peak_flops_per_s.get("bf16") or gpu.peak_flops_per_s.get("fp16")
    number = f"{peak / 1e12:.0f}" if peak and peak >= 1e13 else f"{(peak or 0.0) / 1e12:.2g}"
    rate = _("{number} TFLOP/s").format(number=number) if peak else _("no matrix unit")
    known = _(" (community)") if gpu.is_community else ""
    return f"{gpu.vendor} {gpu.architecture}, {format_bytes(gpu.memory_bytes)}, {rate}, {gpu.year}{known}"


def _nic(nic: Nic) -> str:
    return f"{nic.kind}, {nic.bytes_per_s * 8 / 1e9:g} Gb/s"


def _node(node: Node) -> str:
    domain = (
        "" if node.scale_up_domain_gpus is None else _(" over {count} GPUs").format(count=node.scale_up_domain_gpus)
    )
    return f"{node.gpus_per_node}x {node.gpu}, {node.scale_up}{domain}, {node.nics_per_node}x {node.nic}"


def _model(model: ModelSpec) -> str:
    return _("{parameters} parameters, {layers} layers, hidden {hidden}, up to {longest} tokens").format(
        parameters=format_count(parameter_count(model)),
        layers=model.n_layers,
        hidden=model.hidden_size,
        longest=model.max_position_embeddings,
    )


def _price(price: Price) -> str:
    # The name holds the provider, the product, the tier and the date.
    return f"{price.gpu}, {price.usd_per_gpu_hour:.2f} USD/GPUh"


def _reliability(record: Reliability) -> str:
    rate = f"{record.failures_per_1000_node_days:g} / 1000 node-days"
    return f"{rate}, {record.n_gpus:,} GPUs {record.architecture}, {record.days:g} d: {record.counts}"


def _site(site: Site) -> str:
    rate_bytes_per_s, restart_s = site.storage_bytes_per_s or 0.0, site.restart_s or 0.0
    return f"PUE {site.pue:g}, {rate_bytes_per_s / 1e9:g} GB/s a node, restart {restart_s / 60:g} min"


_SUMMARIES: Mapping[type[CatalogEntry], Callable[[Any], str]] = {
    Gpu: _gpu,
    Nic: _nic,
    Node: _node,
    ModelSpec: _model,
    Price: _price,
    Reliability: _reliability,
    Site: _site,
}


def _fields(entry: CatalogEntry) -> list[CatalogField]:
    """Every value that was written, with its source; then what follows from them."""
    found = [
        CatalogField(field=field, text=fact.text, source=fact.source, label=fact.label)
        for field, fact in entry.facts.items()
    ]
    if isinstance(entry, ModelSpec):
        found.append(
            CatalogField(
                field="n_parameters",
                text=str(parameter_count(entry)),
                source=_("counted from the fields above"),
                label=None,
            )
        )
    if isinstance(entry, Price):
        rate = f"{entry.usd_per_gpu_hour:.4g} USD/GPUh"
        followed = _("from the fields above, for one GPU")
        found.append(CatalogField(field="usd_per_gpu_hour", text=rate, source=followed, label=None))
    return found
