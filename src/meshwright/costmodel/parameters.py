"""Parameter and FLOP counts of a model: sums over its blocks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from meshwright.costmodel import block as blocks
from meshwright.costmodel.operator import Parameters, Shapes
from meshwright.specs.job import TrainingJob
from meshwright.specs.model import BlockSpec, ModelSpec


def block_parameters(model: ModelSpec, members: Iterable[BlockSpec]) -> Parameters:
    """Sharded and replicated parameter elements of some blocks together."""
    counts = [blocks.kind(member).parameters(model, member) for member in members]
    return Parameters(*(sum(column) for column in zip(*counts, strict=True))) if counts else Parameters(0, 0)


def parameter_count(model: ModelSpec) -> int:
    """Parameters of the whole model, tied embeddings once."""
    return sum(repeat * block_parameters(model, members).total for repeat, members in counted_parts(model))


def active_parameter_count(model: ModelSpec) -> int:
    """Parameters that a token meets: of the routed experts only its own, of everything else all."""
    return sum(repeat * block_parameters(model, members).active for repeat, members in counted_parts(model))


def counted_parts(model: ModelSpec) -> list[tuple[int, tuple[BlockSpec, ...]]]:
    """Prologue, each kind of layer and epilogue as blocks, with how often the model has each."""
    kinds = enumerate(model.layer_kinds)
    layers = ((model.layer_sequence.count(index), members) for index, members in kinds)
    return [(1, model.prologue), *layers, (1, model.epilogue)]


def one_rank_shapes(job: TrainingJob, micro_batch: int = 1) -> Shapes:
    """Shapes of a whole micro-batch on one rank (tp 1): for counts of the model rather than of a layout."""
    one = np.ones(1)
    return Shapes(
        micro_batch=one * micro_batch,
        tp=one,
        sp_degree=one,
        cp=one,
        ep=one,
        etp=one,
        seq_len=job.seq_len,
        hidden_size=job.model.hidden_size,
        vocab_size=job.model.vocab_size,
        element_bytes=job.element_bytes,
        attention=job.attention,
        document_len=float(job.document_len or job.seq_len),
    )


def forward_flops_per_sequence(job: TrainingJob, *, causal: bool = True) -> float:
    """Model FLOPs of one sequence's forward pass: GEMMs and attention, no recompute.

    ``causal`` counts the half square that a causal model needs; otherwise the full square, as the closed forms of
    Narayanan et al., arXiv 2104.04473, do.
    """
    unfused = job.model_copy(update={"attention": "unfused"})
    shapes = one_rank_shapes(unfused)
    total = 0.0
    for repeat, members in counted_parts(job.model):
        for member in members:
            for operator in blocks.kind(member).operators(job.model, member, shapes):
                ratio = operator.causal_ratio if causal else 1.0
                total += repeat * operator.count * ratio * float(np.sum(operator.forward_flops))
    return total
