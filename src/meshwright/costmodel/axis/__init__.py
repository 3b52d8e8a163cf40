"""Parallel axes, one file each. An axis describes, it never composes:

* ``NAME``, ``RULES`` (rule -> what it demands);
* ``legal(job, cluster, layouts) -> {rule: violated}``, bool arrays of one row a layout;
* ``divides(tensor_kind, layouts)``: by how much the axis divides a kind of tensor (what kinds, each says);
* ``sends(...) -> list[Traffic]``: what it puts on the wire, and over which group of ``mesh.GROUPS``.

Mesh, memory and overlap put the axes together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from meshwright import discovery
from meshwright.costmodel import block as blocks
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Phase = Literal["forward", "backward", "step", "reduction"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """One kind of message: ``count`` collectives of ``size_bytes`` (rows) in a phase of each micro-batch or step.

    ``group`` is a key of ``mesh.GROUPS``; ``hidden_by`` names the work that may run meanwhile (None: nothing does).
    """

    group: str
    collective: str
    size_bytes: FloatArray
    count: FloatArray | float
    phase: Phase
    hidden_by: Literal["forward", "backward", "core_attention"] | None = None


class Axis(Protocol):
    """What a file of this room provides."""

    NAME: str
    RULES: Mapping[str, str]
    legal: Callable[[TrainingJob, Cluster, LayoutBatch], Mapping[str, BoolArray]]


@functools.cache
def axes() -> tuple[Axis, ...]:
    """Every axis."""
    return tuple(cast(Axis, module) for module in discovery.modules("costmodel/axis"))


def rules() -> dict[str, str]:
    """Every rule with what it demands."""
    described = (*axes(), *blocks.kinds().values())
    return {rule: text for module in described for rule, text in getattr(module, "RULES", {}).items()}


def legal(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> dict[str, BoolArray]:
    """Rule -> rows that break it. A row may break several."""
    found: dict[str, BoolArray] = {}
    for axis in axes():
        found.update(axis.legal(job, cluster, layouts))
    return found
