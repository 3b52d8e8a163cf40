"""Block kinds, one file each. A file defines, for its ``KIND``:

* ``parameters(model, block) -> Parameters``: elements, TP-sharded and replicated;
* ``operators(model, block, shapes) -> list[Operator]``: the forward pass of one micro-batch on one rank;
* ``saved(model, block, shapes) -> list[Saved]``: activations kept for the backward;
* ``TP_REDUCE``: the phases (``forward``, ``backward``) in which tensor parallelism reduces over the block's boundary;
* ``MODULE`` (optional): the recompute module that such a reduction belongs to; without it the one named like the kind;
* ``tp_reductions(model, block, shapes) -> (count, size ratio)`` (optional): how many reductions such a phase has and
  what each moves, (r,), against one activation of the model; without it one of one activation;
* ``legal(model, block, layouts) -> mapping rule -> violated`` (optional): what the block refuses, and ``RULES``
  (optional): what each rule that no axis has says;
* ``sequence_exchange(model, block, shapes) -> (query_bytes, key_value_bytes)`` (optional): what one rank holds of one
  micro-batch, (r,) each, that every other part of a sequence cut by context parallelism has to meet; a kind that is
  ``RECURRENT`` (optional) gives the bytes of its state in the place of the second;
* ``expert_exchange(model, block, shapes) -> bytes`` (optional): what one rank sends to the experts in one micro-batch's
  forward, (r,), all of its tokens' top-k copies, before any is kept at home.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from meshwright import discovery
from meshwright.costmodel.operator import FloatArray, Operator, Parameters, Saved, Shapes
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec


class BlockKind(Protocol):
    """What a file of this room provides."""

    KIND: str
    TP_REDUCE: tuple[str, ...]

    def parameters(self, model: ModelSpec, block: BlockSpec) -> Parameters: ...

    def operators(self, model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]: ...

    def saved(self, model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]: ...


@functools.cache
def _kinds(_path: str) -> Mapping[str, BlockKind]:
    return {module.KIND: cast(BlockKind, module) for module in discovery.modules("costmodel/block")}


def kinds() -> Mapping[str, BlockKind]:
    """Every block kind by name."""
    return _kinds(os.environ.get("MESHWRIGHT_PATH", ""))


def kind(block: BlockSpec) -> BlockKind:
    """The kind of ``block``. Raises InputError (MW-E301) for an unknown one."""
    known = kinds()
    if block.kind not in known:
        raise InputError(
            "MW-E301",
            _("unknown block kind '{kind}'.").format(kind=block.kind),
            where="model",
            nearest=did_you_mean(block.kind, known),
        )
    return known[block.kind]


def violations(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """The rules that ``block`` breaks in each layout; empty where its kind refuses nothing."""
    legal = getattr(kind(block), "legal", None)
    return legal(model, block, layouts) if legal else {}


def tp_reductions(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[float, FloatArray]:
    """Reductions of ``block`` in each phase of its ``TP_REDUCE``, and the size of each over one activation, (r,)."""
    reductions = getattr(kind(block), "tp_reductions", None)
    return reductions(model, block, shapes) if reductions else (1.0, np.ones_like(shapes.tp))
