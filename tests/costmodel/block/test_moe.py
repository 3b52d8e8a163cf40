"""Mixtures of experts: parameters of published configs, dispatch and memory against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.costmodel import block as blocks

from .cases import (
    DEEPSEEK_MOE,
    GPT_OSS_MOE,
    MIXTRAL_MOE,
    QWEN_MOE,
    SEQ_LEN,
    block,
    flops,
    model,
    operators,
    parameters,
    saved,
    shapes,
)


def test_parameters() -> None:
    """By hand from the configs; each equals transformers' module on the meta device."""
    mixtral = parameters(4096, MIXTRAL_MOE)
    assert mixtral.total == 8 * 3 * 4096 * 14336 + 8 * 4096 == 1_409_318_912
    assert mixtral.active == 2 * 3 * 4096 * 14336 + 8 * 4096
    # Router, 256 routed and one shared expert; the correction bias is a buffer.
    deepseek = parameters(7168, DEEPSEEK_MOE)
    assert deepseek.total == 256 * 7168 + 257 * 3 * 7168 * 2048 == 11_320_164_352
    assert deepseek.sharded == 3 * 7168 * 2048
    # Router, shared expert behind a gate.
    assert parameters(2048, QWEN_MOE).total == 512 * 2048 + 513 * 3 * 2048 * 512 + 2048 == 1_614_809_088
    # Router with bias, both expert projections with bias.
    expert = 3 * 2880 * 2880 + 2 * 2880 + 2880
    assert parameters(2880, GPT_OSS_MOE).total == 128 * expert + 128 * 2880 + 128 == 3_186_524_288


def test_flops_equal_those_that_torch_counts() -> None:
    """DeepseekV3MoE of transformers 5.24, hidden 64, 16 experts of 48, top 4, 2 shared, 128 tokens: 14,417,920."""
    small = block(
        "moe",
        num_experts=16,
        experts_per_token=4,
        expert_intermediate_size=48,
        gated=True,
        shared_intermediate_size=96,
    )
    assert flops(operators(64, small, seq_len=128)) == 14_417_920


def test_flops_are_two_for_each_active_weight_and_token() -> None:
    for width, member in ((4096, MIXTRAL_MOE), (7168, DEEPSEEK_MOE), (2048, QWEN_MOE)):
        assert flops(operators(width, member)) == pytest.approx(2.0 * SEQ_LEN * parameters(width, member).active)


@pytest.mark.parametrize("degrees", [{}, {"ep": 8.0}, {"tp": 2.0, "sp": 2.0, "ep": 4.0}, {"cp": 4.0, "ep": 4.0}])
def test_saved_bytes_are_primus_closed_form(degrees: dict[str, float]) -> None:
    """tokens (topk + shared) (h + 3 f) 2 and the router's fp32 scores; the shared expert's h is the block's input."""
    kept = saved(7168, DEEPSEEK_MOE, micro_batch=2.0, **degrees)
    scores = kept.pop("router_scores")
    tokens = 2 * SEQ_LEN / degrees.get("sp", 1.0) / degrees.get("cp", 1.0)
    total = sum(float(item.size_bytes[0]) for item in kept.values())
    assert total == pytest.approx(tokens * (8 + 1) * (7168 + 3 * 2048) * 2)
    assert float(scores.size_bytes[0]) == tokens * 256 * 4


def test_a_rank_sends_every_token_to_each_of_its_experts() -> None:
    """DeepSeek-V3: 8 x 7,168 elements a token; cut by what cuts the rank's tokens, not by ep."""
    spec = model(7168)
    for degrees, cut in (({"ep": 64.0}, 1), ({"ep": 8.0, "tp": 4.0, "sp": 4.0}, 4), ({"ep": 8.0, "cp": 2.0}, 2)):
        sent = blocks.kind(DEEPSEEK_MOE).expert_exchange(  # type: ignore[attr-defined]
            spec, DEEPSEEK_MOE, shapes(spec, **degrees)
        )
        assert float(sent[0]) == 2 * SEQ_LEN * 8 * 7168 / cut


@pytest.mark.parametrize(("ep", "slower"), [(1.0, 1.0), (8.0, 1.5)])
def test_the_fullest_rank_works_and_holds_more(ep: float, slower: float) -> None:
    even, uneven = (operators(4096, MIXTRAL_MOE, ep=ep, expert_load_ratio=ratio) for ratio in (1.0, 1.5))
    for name in ("expert_up", "expert_down"):
        assert uneven[name].forward_flops == pytest.approx(slower * even[name].forward_flops)
    assert uneven["router"].forward_flops == pytest.approx(even["router"].forward_flops)
    kept = [saved(4096, MIXTRAL_MOE, ep=ep, expert_load_ratio=ratio)["expert_input"].size_bytes for ratio in (1.0, 1.5)]
    assert kept[1] == pytest.approx(slower * kept[0])


def test_grouped_gemms_have_an_experts_rows_each() -> None:
    """DeepSeek-V3 on 64 ranks: 4 experts a rank; micro-batch 1 gives each 64 x 1,024 x 8 / 256 tokens."""
    up = operators(7168, DEEPSEEK_MOE, ep=64.0)["expert_up"]
    assert (float(np.max(up.batch)), float(np.max(up.m))) == (4.0, 64 * SEQ_LEN * 8 / 256)
    assert (float(np.max(up.n)), float(np.max(up.k))) == (2 * 2048, 7168)


def test_the_router_stays_in_16_bit() -> None:
    found = operators(2048, QWEN_MOE)
    assert {name for name, o in found.items() if o.kind == "gemm" and not o.low_precision} == {"router", "shared_gate"}


def test_the_activation_alone_can_be_recomputed() -> None:
    """Megatron's moe_act drops the down-projection's input and nothing else of the experts."""
    kept = saved(4096, MIXTRAL_MOE)
    assert [name for name, item in kept.items() if item.module == "moe_activation"] == ["expert_down_input"]
    again = [name for name, o in operators(4096, MIXTRAL_MOE).items() if o.module == "moe_activation"]
    assert again == ["expert_activation"]
