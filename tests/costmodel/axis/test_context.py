"""Context parallelism against the communication volumes of its papers."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import block as blocks
from meshwright.costmodel.axis import context
from meshwright.costmodel.recompute import shapes_of
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from tests.costmodel.axis.wire import total_bytes

CP, MICRO_BATCH, SEQ_LEN, BF16 = 8, 2, 8192, 2


def _exchange(model: str, tp: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of q with output and of k with v of one rank of the first attention of ``model``."""
    of = TrainingJob(model=catalog.model(model), seq_len=SEQ_LEN, global_batch=64)
    shapes = shapes_of(of, LayoutBatch.of([Layout(cp=CP, tp=tp, micro_batch=MICRO_BATCH)]))
    member = next(b for b in of.model.layer_kinds[0] if hasattr(blocks.kind(b), "sequence_exchange"))
    return blocks.kind(member).sequence_exchange(of.model, member, shapes)  # type: ignore[attr-defined]


def test_ring_passes_keys_and_values_round() -> None:
    """Arxiv 2310.01889, section 3: a block's keys and values, 2 b c d, visit every other host of the ring.

    Llama-3.1-8B: 8 key-value heads of 128. Backward they travel with their gradients.
    """
    block_bytes = 2 * MICRO_BATCH * (SEQ_LEN / CP) * (8 * 128) * BF16
    found = context.sends("ring", *_exchange("llama-3.1-8b"), np.array([float(CP)]))
    assert total_bytes(found, CP, "forward") == pytest.approx((CP - 1) * block_bytes)
    assert total_bytes(found, CP, "backward") == pytest.approx((CP - 1) * 2 * block_bytes)


def test_ulysses_moves_four_activations_by_all_to_all() -> None:
    """Arxiv 2309.14509, section 3.2: 4 N h over P links for N tokens of width h (Llama-2-7B: no GQA)."""
    message = MICRO_BATCH * SEQ_LEN * 4096 * BF16
    found = context.sends("ulysses", *_exchange("llama-2-7b"), np.array([float(CP)]))
    assert {traffic.collective for traffic in found} == {"all_to_all"}
    for phase in ("forward", "backward"):
        assert total_bytes(found, CP, phase) == pytest.approx(4 * message / CP * (CP - 1) / CP)


def test_ulysses_volume_falls_with_the_ranks_and_all_gather_s_does_not() -> None:
    """Arxiv 2309.14509, table 1: O(N / P) a rank; gathering all keys and values stays O(N)."""
    query_bytes, key_value_bytes = _exchange("llama-2-7b")
    volumes = {}
    for kind in ("ulysses", "allgather"):
        for cp in (8, 16):
            share = CP / cp
            found = context.sends(kind, query_bytes * share, key_value_bytes * share, np.array([float(cp)]))
            volumes[kind, cp] = total_bytes(found, cp, "forward")
    assert volumes["ulysses", 16] / volumes["ulysses", 8] == pytest.approx(0.5 * (15 / 16) / (7 / 8))
    assert volumes["allgather", 16] / volumes["allgather", 8] == pytest.approx((15 / 16) / (7 / 8))


def test_all_gather_collects_grouped_keys_and_values() -> None:
    """Arxiv 2407.21783, section 3.3.2: with GQA k and v are 16 times smaller than q (405B: 128 / 8 heads)."""
    query_bytes, key_value_bytes = _exchange("llama-3.1-405b", tp=8)
    assert float(query_bytes[0] / key_value_bytes[0]) == pytest.approx(16.0)
    whole = 2 * MICRO_BATCH * SEQ_LEN * (8 * 128 / 8) * BF16
    found = context.sends("allgather", query_bytes, key_value_bytes, np.array([float(CP)]))
    assert total_bytes(found, CP, "forward") == pytest.approx(whole * (CP - 1) / CP)
    # Backward gathers them again and scatters their gradients.
    assert total_bytes(found, CP, "backward") == pytest.approx(2 * whole * (CP - 1) / CP)


def test_a_recurrent_state_is_handed_on() -> None:
    """Mamba-2 (arXiv 2405.21060, section 8.2): a state of any sequence; Nemotron-H-8B: 128 heads of 64 x 128."""
    _rows, state = _exchange("nemotron-h-8b")
    assert float(state[0]) == MICRO_BATCH * 128 * 64 * 128 * 4
    found = context.sends("ring", _rows, state, np.array([float(CP)]), recurrent=True)
    assert total_bytes(found, CP, "forward") == pytest.approx((CP - 1) * float(state[0]))
