"""Latent attention against DeepSeek's configs and torch's own count."""

from __future__ import annotations

import pytest

from meshwright.costmodel import block as blocks

from .cases import MLA, SEQ_LEN, block, flops, model, operators, parameters, saved, shapes


def test_parameters_of_deepseek_v3() -> None:
    down = 7168 * 1536 + 1536 + 7168 * (512 + 64) + 512
    up = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    found = parameters(7168, MLA)
    assert (found.replicated, found.sharded) == (down, up)
    assert found.total == 187_107_328


def test_parameters_of_deepseek_v2_lite_without_a_query_latent() -> None:
    lite = block(
        "mla", num_attention_heads=16, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
    )
    assert parameters(2048, lite).total == 13_763_072


def test_flops_equal_those_that_torch_counts() -> None:
    """DeepseekV3Attention of transformers 5.24 with small sizes, 128 tokens, eager: 30,015,488 by torch's counter."""
    small = block(
        "mla",
        num_attention_heads=4,
        q_lora_rank=64,
        kv_lora_rank=48,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=24,
    )
    assert flops(operators(256, small, seq_len=128, attention="unfused")) == 30_015_488


def test_scores_and_values_have_their_own_widths() -> None:
    """Half a square of 128 heads: 192 wide for scores, 128 wide for values."""
    core = operators(7168, MLA)["flash_attention"]
    assert float(core.forward_flops[0]) == pytest.approx(SEQ_LEN**2 * 128 * (192 + 128))


def test_without_sequence_parallelism_every_rank_projects_down_all_tokens() -> None:
    plain, sequence = (operators(7168, MLA, tp=8.0, sp=sp) for sp in (1.0, 8.0))
    for name in ("q_down", "kv_down"):
        assert plain[name].forward_flops == pytest.approx(8 * sequence[name].forward_flops)
    assert plain["q_up"].forward_flops == pytest.approx(sequence["q_up"].forward_flops)


def test_recomputing_the_up_projections_frees_the_expanded_heads() -> None:
    """Megatron's mla_up_proj: of a token only latents stay, 2 x (1536 + 512) + 64 elements, beside input and output."""
    kept = {name: float(item.size_bytes[0]) / (2 * SEQ_LEN) for name, item in saved(7168, MLA).items()}
    modules = {name: item.module for name, item in saved(7168, MLA).items()}
    assert kept["query_key_value"] == 128 * (192 + 192 + 128)
    assert [name for name, module in modules.items() if module == "mla_up"] == ["query_key_value"]
    assert kept["latent_norm_input"] + kept["latent"] == 2 * (1536 + 512) + 64


def test_context_parallelism_exchanges_expanded_heads() -> None:
    spec = model(7168)
    queries, keys = blocks.kind(MLA).sequence_exchange(spec, MLA, shapes(spec, cp=2.0))  # type: ignore[attr-defined]
    assert float(queries[0]) == float(keys[0]) == 2 * SEQ_LEN / 2 * 128 * (192 + 128)
