"""Expert parallelism: bytes of dispatch and combine against counting tokens."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import block as blocks
from meshwright.costmodel.axis import Traffic, expert
from meshwright.costmodel.mesh import place
from meshwright.costmodel.recompute import shapes_of
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from tests.costmodel.axis.wire import sent_bytes, total_bytes

#: Mixtral-8x7B: 2 of 8 experts a token, width 4096; 4,096 tokens a micro-batch, bf16.
TOKENS, TOP_K, WIDTH, BF16 = 4096, 2, 4096, 2


def _sends(layout: Layout, dispatcher: str = "alltoall", load: float = 1.0) -> list[Traffic]:
    of = TrainingJob(model=catalog.model("mixtral-8x7b"), seq_len=TOKENS, global_batch=64, expert_load_ratio=load)
    rows = LayoutBatch.of([layout])
    shapes = shapes_of(of, rows)
    member = next(b for b in of.model.layer_kinds[0] if b.kind == "moe")
    size_bytes = blocks.kind(member).expert_exchange(of.model, member, shapes)  # type: ignore[attr-defined]
    groups = place("ep", catalog.cluster("8x8 H100")[0], rows)
    return expert.sends(dispatcher, size_bytes, float(WIDTH * BF16), shapes, groups, float(TOP_K))


def test_dispatch_and_combine_are_two_all_to_alls_each_way() -> None:
    """Arxiv 2006.16668, section 3.2: tokens go out to their experts and come back, top-2 copies of each, and so do the
    gradients; of evenly spread copies (E - 1) / E leave the rank.
    """
    found = [traffic for traffic in _sends(Layout(dp=64, ep=8)) if traffic.group == "ep"]
    assert {traffic.collective for traffic in found} == {"all_to_all"}
    for phase in ("forward", "backward"):
        assert total_bytes(found, 8, phase) == pytest.approx(2 * TOKENS * TOP_K * WIDTH * BF16 * 7 / 8)


def test_the_fullest_rank_sets_the_pace() -> None:
    even, uneven = (_sends(Layout(dp=64, ep=8), load=load) for load in (1.0, 1.5))
    assert total_bytes(uneven, 8) == pytest.approx(1.5 * total_bytes(even, 8))


def test_sequence_parallel_ranks_dispatch_their_part() -> None:
    """With tp 2 and sequence parallelism a rank holds, and sends, half of the tokens."""
    whole = _sends(Layout(dp=64, ep=8))
    half = _sends(Layout(dp=32, tp=2, sp=True, ep=8))
    assert total_bytes([t for t in half if t.group == "ep"], 8) == pytest.approx(
        total_bytes([t for t in whole if t.group == "ep"], 8) / 2
    )


def test_expert_tensor_ranks_gather_what_is_dispatched() -> None:
    """Arxiv 2504.14960, section 3.2: an all-gather of the tokens of the ETP group before, a reduce-scatter after."""
    found = [t for t in _sends(Layout(dp=32, tp=2, sp=True, ep=8, etp=2)) if t.group == "etp"]
    # Each of the two ranks brings the copies of its half of the tokens.
    gathered = TOKENS * TOP_K * WIDTH * BF16
    for phase in ("forward", "backward"):
        kinds = {t.collective: sent_bytes(t, 2) for t in found if t.phase == phase}
        assert kinds == {
            "all_gather": pytest.approx(gathered / 2), "reduce_scatter": pytest.approx(gathered / 2)
        }  # fmt: skip


def test_the_all_gather_dispatcher_collects_every_token() -> None:
    """Megatron-core's all-gather dispatcher: all tokens of the group to all, without copies, and their sums back."""
    found = [t for t in _sends(Layout(dp=64, ep=8), "allgather") if t.group == "ep"]
    for phase in ("forward", "backward"):
        assert total_bytes(found, 8, phase) == pytest.approx(2 * 8 * TOKENS * WIDTH * BF16 * 7 / 8)


@pytest.mark.parametrize(("experts_per_token", "nodes"), [(2, 2), (4, 3), (8, 4), (6, 6)])
def test_a_token_crosses_to_each_node_once(experts_per_token: int, nodes: int) -> None:
    """Arxiv 2412.19437, section 3.2.2. By listing every way in which k experts can lie on N nodes."""
    ways = itertools.product(range(nodes), repeat=experts_per_token)
    met = float(np.mean([len(set(way)) for way in ways]))
    ratio = float(expert.deduplicated_ratio(float(experts_per_token), np.array([float(nodes)]))[0])
    assert ratio == pytest.approx(met / experts_per_token)


def test_deepep_sends_fewer_copies_across_nodes_only() -> None:
    inside = Layout(dp=64, ep=8)
    assert total_bytes(_sends(inside, "deepep"), 8) == total_bytes(_sends(inside), 8)
    # 8 ranks, one a node: of 2 copies 1.875 go to different nodes.
    across = Layout(dp=8, tp=8, sp=True, ep=8, etp=8)
    plain, deduplicated = (
        sum(sent_bytes(t, 8) for t in _sends(across, name) if t.group == "ep") for name in ("alltoall", "deepep")
    )
    assert deduplicated / plain == pytest.approx(1.875 / 2)
