"""Mixture of experts: router, top-k routed experts, shared experts beside them.

As Megatron-LM runs it (arXiv 2504.14960): experts lie on ep x etp ranks of tp x cp x dp; a rank sends each of its
tokens to its ``experts_per_token`` experts and gets as many to work on, times etp, which cuts every expert's width. The
shared experts are one MLP cut by TP. Gated experts save h + 3 f elements of every copy of a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.block import mlp
from meshwright.costmodel.operator import FloatArray, Operator, Parameters, Saved, Shapes, gemm, memory, residual
from meshwright.i18n import N_
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "moe"
TP_REDUCE = ("forward", "backward")
RULES = {
    "ep_divides_experts": N_("ep must divide the experts"),
    "etp_divides_expert_width": N_("etp must divide the intermediate size of an expert"),
    "moe_tp_needs_sp": N_("tp needs sequence parallelism where a model has experts"),
    "tp_divides_shared_width": N_("tp must divide the intermediate size of the shared experts"),
}
FP32_BYTES = 4


def _experts(block: BlockSpec) -> tuple[int, int, int]:
    options = block.options
    return int(options["num_experts"]), int(options["experts_per_token"]), int(options["expert_intermediate_size"])


def _up(block: BlockSpec) -> int:
    return 2 if block.options.get("gated") else 1


def _shared(block: BlockSpec) -> BlockSpec | None:
    width = int(block.options.get("shared_intermediate_size", 0))
    gated = bool(block.options.get("gated"))
    return BlockSpec(kind="mlp", options={"intermediate_size": width, "gated": gated}) if width else None


def _copies(block: BlockSpec, shapes: Shapes) -> FloatArray:
    """Tokens that the experts of the fullest rank work on in a micro-batch, (r,)."""
    # Without expert parallelism a rank's own tokens are all there is to work on.
    fullest = np.where(shapes.ep > 1, shapes.expert_load_ratio, 1.0)
    return np.asarray(shapes.outer_tokens * _experts(block)[1] * shapes.etp * fullest)


def legal(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """What Megatron-LM refuses of a layer: experts or widths that do not come out even, TP without SP."""
    experts, _topk, width = _experts(block)
    found = {
        "ep_divides_experts": experts % layouts.ep != 0,
        "etp_divides_expert_width": width % layouts.etp != 0,
        "moe_tp_needs_sp": (layouts.tp > 1) & (layouts.sp == 0),
    }
    if shared := int(block.options.get("shared_intermediate_size", 0)):
        found["tp_divides_shared_width"] = shared % layouts.tp != 0
    return found


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Router and shared gate (replicated), shared experts (sharded), routed experts.

    DeepSeek's ``correction_bias`` is a buffer that no gradient reaches: it is no parameter.
    """
    options, h = block.options, model.hidden_size
    experts, topk, width = _experts(block)
    up = _up(block)
    expert = (up + 1) * h * width + (up * width + h if options.get("expert_bias") else 0)
    replicated = h * experts + (experts if options.get("router_bias") else 0)
    shared = _shared(block)
    sharded = mlp.parameters(model, shared).sharded if shared else 0
    replicated += h if options.get("shared_gate") else 0
    return Parameters(sharded, replicated, experts * expert, topk * expert)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Routing, permutation, grouped GEMMs of the local experts, combination, shared experts, residual add."""
    options, h = block.options, shapes.hidden_size
    experts, topk, width = _experts(block)
    up = _up(block)
    element, outer = shapes.element_bytes, shapes.outer_tokens
    copies, local = _copies(block, shapes), experts / shapes.ep
    inner = element * copies * width / shapes.etp
    token, dispatched = element * outer * h, element * copies * h
    # What comes from several ranks is sorted by expert, and back, where a rank holds more than one.
    sort = np.where((shapes.ep * shapes.etp > 1) & (local > 1), 4.0, 0.0) * dispatched
    scores = FP32_BYTES * outer * experts
    found = [
        gemm("router", "moe", outer, experts, h, kernels=(1, 2), low_precision=False),
        memory("routing", "moe", 6 * scores, 6 * scores, kernels=(10, 6)),
        memory("permute", "moe", 2 * topk * token, (topk + 1) * token, kernels=(2, 1)),
        memory("expert_sort", "moe", sort, sort, kernels=(2, 2)),
        gemm("expert_up", "moe", copies / local, up * width / shapes.etp, h, batch=local, kernels=(1, 2)),
        memory("expert_activation", "moe_activation", (up + 1) * inner, (2 * up + 1) * inner),
        gemm("expert_down", "moe", copies / local, h, width / shapes.etp, batch=local, kernels=(1, 2)),
        memory("unpermute", "moe", (topk + 1) * token, 2 * topk * token, kernels=(1, 1)),
    ]
    if shared := _shared(block):
        up_down = mlp.operators(model, shared, shapes)[:-1]
        found += [replace(operator, name=f"shared_{operator.name}", module="moe") for operator in up_down]
        found.append(memory("shared_add", "moe", 3 * token, 0 * token, kernels=(1, 0)))
        if options.get("shared_gate"):
            found.append(gemm("shared_gate", "moe", outer, 1, h, kernels=(1, 2), low_precision=False))
            found.append(memory("shared_gate_product", "moe", 3 * token, 5 * token, kernels=(2, 3)))
    found.append(residual("moe_residual", "moe", shapes, dropout=bool(options.get("dropout"))))
    return found


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """Input, scores, the experts' inputs, activation inputs and down-projection inputs, the same of shared experts."""
    options, h = block.options, model.hidden_size
    experts, _topk, width = _experts(block)
    element, outer = shapes.element_bytes, shapes.outer_tokens
    copies = _copies(block, shapes)
    inner = element * copies * width / shapes.etp
    found = [
        Saved("moe_input", "norm", element * outer * h),
        Saved("router_scores", "moe", FP32_BYTES * outer * experts),
        Saved("expert_input", "moe", element * copies * h),
        Saved("expert_activation_input", "moe", _up(block) * inner),
        Saved("expert_down_input", "moe_activation", inner),
    ]
    if shared := _shared(block):
        kept = [item for item in mlp.saved(model, shared, shapes) if item.name != "mlp_input"]
        found += [replace(item, name=f"shared_{item.name}", module="moe") for item in kept]
        if options.get("shared_gate"):
            found.append(Saved("shared_output", "moe", element * outer * h))
    if options.get("dropout"):
        found.append(Saved("moe_dropout_mask", "moe", outer * h))
    return found


def tp_reductions(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[float, FloatArray]:
    """Only shared experts reduce over TP; the routed ones over etp, with the dispatch."""
    return (1.0 if _shared(block) else 0.0), np.ones_like(shapes.tp)


def expert_exchange(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> FloatArray:
    """Bytes of all top-k copies of a rank's tokens of a micro-batch, (r,)."""
    return np.asarray(shapes.element_bytes * shapes.outer_tokens * _experts(block)[1] * model.hidden_size)
