"""The catalog: GPUs, adapters, nodes, models and prices by the names people write, each value with its source.

>>> from meshwright import catalog
>>> catalog.gpu("a100 80gb").memory_bytes / 2**30
80.0
"""

from __future__ import annotations

from typing import cast

from meshwright.catalog.cluster import cluster
from meshwright.catalog.constant_table import constants
from meshwright.catalog.loader import entry, kinds, names
from meshwright.catalog.prices import price, prices
from meshwright.catalog.site_facts import with_site
from meshwright.specs.hardware import Gpu, Nic, Node
from meshwright.specs.model import ModelSpec

__all__ = [
    "cluster",
    "constants",
    "entry",
    "gpu",
    "kinds",
    "model",
    "names",
    "nic",
    "node",
    "price",
    "prices",
    "with_site",
]


def gpu(name: str, *, where: str = "--cluster") -> Gpu:
    """The GPU called ``name``. Raises InputError MW-E201 with the nearest name."""
    return cast("Gpu", entry("gpu", name, where=where))


def nic(name: str, *, where: str = "--cluster") -> Nic:
    """The network adapter called ``name``. Raises InputError MW-E201 with the nearest name."""
    return cast("Nic", entry("nic", name, where=where))


def node(name: str, *, where: str = "--cluster") -> Node:
    """The node called ``name``. Raises InputError MW-E201 with the nearest name."""
    return cast("Node", entry("node", name, where=where))


def model(name: str, *, where: str = "MODEL") -> ModelSpec:
    """The model called ``name``. Raises InputError MW-E201 with the nearest name."""
    return cast("ModelSpec", entry("model", name, where=where))
