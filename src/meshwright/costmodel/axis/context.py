"""Context parallelism: every sequence cut over ranks that exchange what attention has to see of the whole.

Ring: keys and values travel round (Liu et al., arXiv 2310.01889), in zigzag order so that causal work is even.
All-gather: keys and values are gathered before attention (Llama 3, arXiv 2407.21783, section 3.3.2). Ulysses: shards
of the sequence become shards of the heads by all-to-all and back (Jacobs et al., arXiv 2309.14509).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from meshwright.costmodel.axis import BoolArray, FloatArray, Traffic
from meshwright.costmodel.recompute import parts_of
from meshwright.i18n import N_
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import CP_KINDS, LayoutBatch

NAME = "cp"
RULES = {
    "cp_divides_sequence": N_("2 x cp must divide the sequence length (each rank holds an early and a late part)"),
    "ulysses_divides_heads": N_("with cp_kind=ulysses tp x cp must divide the attention heads"),
}


#: The options that count heads, of attention and of the mixers that pass a state on instead.
_HEADS = ("num_attention_heads", "num_heads", "num_key_heads", "num_value_heads")


def legal(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> Mapping[str, BoolArray]:
    """The sequence splits evenly, and for Ulysses the heads too."""
    heads = {
        int(block.options[name])
        for block in itertools.chain(*parts_of(job))
        for name in _HEADS
        if block.kind != "vision_encoder" and name in block.options
    }
    uneven = np.zeros(len(layouts), bool)
    for number in heads:
        uneven |= number % (layouts.tp.astype(np.int64) * layouts.cp) != 0
    cut = layouts.cp > 1
    return {
        "cp_divides_sequence": cut & (job.seq_len % (2 * layouts.cp.astype(np.int64)) != 0),
        "ulysses_divides_heads": cut & (layouts.cp_kind == CP_KINDS.index("ulysses")) & uneven,
    }


def divides(tensor_kind: str, layouts: LayoutBatch) -> FloatArray:
    """Each rank holds its part of every sequence (``activations``); weights are whole, their states shared out."""
    return layouts.cp.astype(float) if tensor_kind == "activations" else np.ones(len(layouts))


def sends(
    kind: str, query_bytes: FloatArray, key_value_bytes: FloatArray, cp: FloatArray, *, recurrent: bool = False
) -> list[Traffic]:
    """Traffic of one block of one micro-batch whose shard holds so many bytes of q and output, of k and v; (r,).

    A ``recurrent`` mixer has a state in the place of k and v: it is passed on, or not needed once heads are whole.

    Backward the ring carries keys and values again and their gradients with them; gathered ones are gathered again
    and their gradients scattered back; all-to-alls run once more for each gradient.
    """
    if kind == "ring" or (recurrent and kind == "allgather"):
        steps = cp - 1.0
        return [
            Traffic(NAME, "send_recv", key_value_bytes, steps, "forward", "core_attention"),
            Traffic(NAME, "send_recv", key_value_bytes, 2.0 * steps, "backward", "core_attention"),
        ]
    if kind == "allgather":
        whole = key_value_bytes * cp
        return [
            Traffic(NAME, "all_gather", whole, 1, "forward"),
            Traffic(NAME, "all_gather", whole, 1, "backward"),
            Traffic(NAME, "reduce_scatter", whole, 1, "backward"),
        ]
    halves = (query_bytes / 2.0,) if recurrent else (query_bytes / 2.0, key_value_bytes / 2.0)
    return [Traffic(NAME, "all_to_all", size, 2, phase) for phase in ("forward", "backward") for size in halves]
