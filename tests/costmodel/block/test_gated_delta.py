"""Gated delta rule against transformers' counts and torch's own FLOPs."""

from __future__ import annotations

import pytest

from .cases import GATED_DELTA, SEQ_LEN, block, operators, parameters


def test_parameters_of_qwen3_next() -> None:
    """By hand; equals Qwen3NextGatedDeltaNet on the meta device."""
    keys, values = 16 * 128, 32 * 128
    by_hand = 2048 * (2 * keys + 2 * values + 2 * 32) + (2 * keys + values) * 4 + 2 * 32 + 128 + values * 2048
    assert parameters(2048, GATED_DELTA).total == by_hand == 33_718_464


def test_flops_equal_those_that_torch_counts() -> None:
    """Qwen3NextGatedDeltaNet of transformers 5.24 (256 wide, 2 key heads of 64, 4 value heads of 32, 256 tokens).

    torch's counter: 84,934,656 in the projections, 33,554,432 in batched products; it leaves out the triangular solve
    that makes W and U, C x C on (dk + dv) columns a chunk, which the kernels run as products.
    """
    small = block("gated_delta", num_key_heads=2, num_value_heads=4, key_head_dim=64, value_head_dim=32, conv_kernel=4)
    found = operators(256, small, seq_len=256)
    projections = sum(float(found[name].forward_flops[0]) for name in ("delta_in", "delta_out"))
    assert projections == 84_934_656
    solved = 2 * 4 * 4 * 64 * 64 * (64 + 32)
    rule = sum(float(o.forward_flops[0]) for o in found.values() if o.kind == "gemm") - projections
    assert rule == 33_554_432 + solved


def test_state_work_is_six_products_of_the_head_and_the_chunk_adds_its_own() -> None:
    """Per token and head 6 dk dv, and C (6 dk + 4 dv) within the chunk (arXiv 2406.06484, section 3)."""
    found = operators(2048, GATED_DELTA)
    rule = [o for name, o in found.items() if o.kind == "gemm" and name not in ("delta_in", "delta_out")]
    per_token_and_head = sum(float(o.forward_flops[0]) for o in rule) / SEQ_LEN / 32
    assert per_token_and_head == pytest.approx(6 * 128 * 128 + 64 * (6 * 128 + 4 * 128))
