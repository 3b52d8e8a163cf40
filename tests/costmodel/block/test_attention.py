"""Attention: parameters of published configs, FLOPs against closed forms."""

from __future__ import annotations

import pytest

from meshwright.costmodel import block as blocks
from meshwright.specs.model import BlockSpec

from .cases import (
    GPT_OSS_ATTENTION,
    MIXTRAL_ATTENTION,
    QWEN_ATTENTION,
    SEQ_LEN,
    block,
    flops,
    model,
    operators,
    parameters,
    saved,
    shapes,
)

BERT = block(
    "attention",
    num_attention_heads=12,
    num_key_value_heads=12,
    head_dim=64,
    qkv_bias=True,
    output_bias=True,
    causal=False,
    dropout=True,
)


def test_parameters() -> None:
    """By hand from the configs; each equals transformers' module on the meta device."""
    # q twice as wide (gate), k and v, output; two norm vectors over a head.
    assert parameters(2048, QWEN_ATTENTION).total == 2048 * (2 * 4096 + 2 * 512) + 4096 * 2048 + 2 * 256 == 27_263_488
    # A bias on each projection and a sink a head.
    assert parameters(2880, GPT_OSS_ATTENTION).total == 2 * 2880 * 4096 + 2 * 2880 * 512 + 5120 + 2880 + 64
    assert parameters(2880, GPT_OSS_ATTENTION).total == 26_550_144
    full = block("attention", num_attention_heads=32, num_key_value_heads=8, head_dim=128, qk_norm="full")
    assert parameters(4096, full).total == 41_948_160


@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize(("causal", "share"), [(True, 0.5), (False, 1.0)])
def test_bidirectional_attention_scores_the_whole_square(attention: str, causal: bool, share: float) -> None:
    member = block("attention", **{**BERT.options, "causal": causal})
    core = {n: o for n, o in operators(768, member, attention=attention).items() if o.module == "core_attention"}
    model_flops = sum(float(o.forward_flops[0]) * o.causal_ratio for o in core.values() if o.kind != "memory")
    assert model_flops == pytest.approx(share * 4.0 * SEQ_LEN**2 * 768)


def test_a_window_bounds_the_work_of_long_sequences() -> None:
    """gpt-oss looks 128 tokens back: 4 d FLOPs for each of them, whatever the length."""
    for seq_len in (4096, 65536):
        core = operators(2880, GPT_OSS_ATTENTION, seq_len=seq_len)["flash_attention"]
        assert float(core.forward_flops[0]) == pytest.approx(4.0 * seq_len * 128 * 64 * 64, rel=128 / seq_len)


def test_a_chunk_ends_what_a_query_sees() -> None:
    """Llama 4: half of a chunk's square for each chunk; a shorter sequence is one chunk."""
    plain = block("attention", num_attention_heads=40, num_key_value_heads=8, head_dim=128)
    chunked = block("attention", **{**plain.options, "chunk": 8192})

    def core_flops(member: BlockSpec, seq_len: int) -> float:
        return float(operators(5120, member, seq_len=seq_len)["flash_attention"].forward_flops[0])

    assert core_flops(chunked, 65536) == pytest.approx(8 * core_flops(chunked, 8192))
    assert core_flops(chunked, 65536) == pytest.approx(core_flops(plain, 65536) / 8)
    assert core_flops(chunked, 4096) == core_flops(plain, 4096)


def test_packed_documents_cut_the_core_only() -> None:
    whole, packed = (operators(4096, MIXTRAL_ATTENTION, document_len=n) for n in (1024.0, 256.0))
    for name, operator in whole.items():
        ratio = 0.25 if name == "flash_attention" else 1.0
        assert packed[name].forward_flops == pytest.approx(ratio * operator.forward_flops)


def test_flops_equal_those_that_torch_counts() -> None:
    """Qwen3NextAttention of transformers 5.24, hidden 256, 4 heads, 2 key-value heads of 64, 128 tokens, counted by
    torch.utils.flop_counter on eager attention: 83,886,080."""
    member = block(
        "attention", num_attention_heads=4, num_key_value_heads=2, head_dim=64, qk_norm="head", output_gate=True
    )
    assert flops(operators(256, member, seq_len=128, attention="unfused")) == 83_886_080


def test_norm_and_gate_are_kept_for_the_backward() -> None:
    plain = block("attention", **{**QWEN_ATTENTION.options, "qk_norm": "", "output_gate": False})
    more = {name: item for name, item in saved(2048, QWEN_ATTENTION).items() if name not in saved(2048, plain)}
    kept = {name: float(item.size_bytes[0]) / (2 * SEQ_LEN) for name, item in more.items()}
    assert kept == {"qk_norm_input": 4096 + 512, "output_gate": 2 * 4096}


def test_context_parallel_ranks_hold_their_part_of_keys_and_values() -> None:
    """Llama-3-8B's heads: a ring of cp ranks passes 2 x 1,024 elements a token of the keys and values."""
    spec = model(4096)
    queries, keys = blocks.kind(MIXTRAL_ATTENTION).sequence_exchange(  # type: ignore[attr-defined]
        spec, MIXTRAL_ATTENTION, shapes(spec, cp=4.0, tp=2.0, sp=2.0)
    )
    assert float(keys[0]) == 2 * (SEQ_LEN / 4) * 2 * 1024 / 2
    assert float(queries[0]) == 2 * (SEQ_LEN / 4) * 2 * 4096 / 2
