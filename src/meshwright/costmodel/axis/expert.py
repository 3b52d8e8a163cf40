"""Expert parallelism: the experts of a layer over ranks, tokens sent to them and back.

Lepikhin et al., arXiv 2006.16668 (all-to-all); Megatron-core's dispatchers (all-to-all and all-gather); DeepSeek-AI,
arXiv 2412.19437 section 3.2.2 (each token crosses to a node once, however many of its experts are there).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from meshwright.costmodel.axis import BoolArray, FloatArray, Traffic
from meshwright.costmodel.mesh import GroupPlacement, expert_dp, experts_share_pipelines
from meshwright.costmodel.operator import Shapes
from meshwright.costmodel.recompute import parts_of
from meshwright.formula import formula
from meshwright.i18n import N_
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch

NAME = "ep"
RULES = {
    "ep_needs_experts": N_("ep and etp need a model with experts"),
    "ep_divides_ranks": N_("ep x etp must divide tp x cp x dp"),
    "experts_share_pipelines": N_("where pp is not last in rank_order, ep x etp must equal tp x cp"),
    "replicas_hold_experts": N_("dp_replicate must divide the ranks that hold the same experts"),
}


def has_experts(job: TrainingJob) -> bool:
    """Whether any layer of the model has routed experts."""
    return any(block.kind == "moe" for block in itertools.chain(*parts_of(job)))


def legal(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> Mapping[str, BoolArray]:
    """Experts have ranks to be on; what a layer's own numbers demand, its block says."""
    ranks = layouts.tp.astype(np.int64) * layouts.cp * layouts.dp
    of_experts = layouts.ep.astype(np.int64) * layouts.etp
    return {
        "ep_needs_experts": (of_experts > 1) & (not has_experts(job)),
        "ep_divides_ranks": ranks % of_experts != 0,
        # Megatron-LM refuses it as well: a rank would hold experts of one stage and attention of another.
        "experts_share_pipelines": ~experts_share_pipelines(layouts) & has_experts(job),
        "replicas_hold_experts": expert_dp(layouts) % layouts.dp_replicate != 0,
    }


def divides(tensor_kind: str, layouts: LayoutBatch) -> FloatArray:
    """EP deals the experts out, ETP cuts each."""
    if tensor_kind != "expert_parameters":
        return np.ones(len(layouts))
    return np.asarray(layouts.ep * layouts.etp, float)


@formula("a token goes to each node at most once; experts at random: N (1 - (1 - 1/N)^k) of N nodes are met", "ratio")
def deduplicated_ratio(experts_per_token: float, n_nodes: FloatArray) -> FloatArray:
    """Copies of a token that cross to other nodes with DeepEP over those of a plain all-to-all, (r,)."""
    met = n_nodes * (1.0 - (1.0 - 1.0 / n_nodes) ** experts_per_token)
    return np.asarray(np.minimum(met / experts_per_token, 1.0))


def sends(
    dispatcher: str,
    size_bytes: FloatArray,
    token_bytes: float,
    shapes: Shapes,
    ep_groups: GroupPlacement,
    experts_per_token: float,
) -> list[Traffic]:
    """Traffic of one layer of experts for one micro-batch; ``size_bytes`` (r,) are all top-k copies of a rank's tokens.

    Forward dispatches and combines, backward does so with the gradients. The fullest rank sets the pace. With ETP the
    dispatched tokens are gathered over its ranks and the results reduced.
    """
    routed = size_bytes * shapes.expert_load_ratio
    found = []
    for phase in ("forward", "backward"):
        if dispatcher == "allgather":
            whole = shapes.outer_tokens * token_bytes * shapes.ep
            found += [Traffic(NAME, "all_gather", whole, 1, phase), Traffic(NAME, "reduce_scatter", whole, 1, phase)]
        else:
            crossing = routed
            if dispatcher == "deepep":
                nodes = np.maximum(ep_groups.size / ep_groups.ranks_per_node, 1.0)
                crossing = np.where(ep_groups.crosses_nodes, deduplicated_ratio(experts_per_token, nodes), 1.0) * routed
            found.append(Traffic(NAME, "all_to_all", crossing, 2, phase))
        gathered = routed * shapes.etp
        found += [
            Traffic("etp", "all_gather", gathered, 1, phase),
            Traffic("etp", "reduce_scatter", gathered, 1, phase),
        ]
    return found
