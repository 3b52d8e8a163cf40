"""Blocks as published models have them, and the shapes to run them with."""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.costmodel import block as blocks
from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes
from meshwright.specs.model import BlockSpec, LayerGroup, ModelSpec, Option

SEQ_LEN = 1024


def block(kind: str, **options: Option) -> BlockSpec:
    """A block by its options."""
    return BlockSpec(kind=kind, options=options)


def model(
    hidden_size: int,
    layers: tuple[tuple[int, tuple[BlockSpec, ...]], ...] = ((1, ()),),
    *,
    vocab_size: int = 32000,
    prologue: tuple[BlockSpec, ...] = (),
    epilogue: tuple[BlockSpec, ...] = (),
) -> ModelSpec:
    """A model of some layers."""
    return ModelSpec(
        name="test",
        family="test",
        hidden_size=hidden_size,
        vocab_size=vocab_size,
        max_position_embeddings=4096,
        prologue=prologue,
        layers=tuple(LayerGroup(repeat=repeat, blocks=members) for repeat, members in layers),
        epilogue=epilogue,
        tie_word_embeddings=False,
    )


def shapes(spec: ModelSpec, *, attention: str = "flash", seq_len: int = SEQ_LEN, **degrees: float) -> Shapes:
    """Shapes of one row; degrees that are not given are 1, ``sp`` is the degree of sequence parallelism."""
    rest: dict[str, Any] = {
        name: np.full(1, degrees.get(name, 1.0)) for name in ("micro_batch", "tp", "cp", "ep", "etp")
    }
    return Shapes(
        **rest,
        sp_degree=np.full(1, degrees.get("sp", 1.0)),
        seq_len=seq_len,
        hidden_size=spec.hidden_size,
        vocab_size=spec.vocab_size,
        element_bytes=2,
        attention=attention,  # type: ignore[arg-type]
        document_len=degrees.get("document_len", float(seq_len)),
        expert_load_ratio=degrees.get("expert_load_ratio", 1.0),
    )


def parameters(hidden_size: int, member: BlockSpec, vocab_size: int = 32000) -> Parameters:
    """Parameters of one block in a model of that width."""
    return blocks.kind(member).parameters(model(hidden_size, vocab_size=vocab_size), member)


def operators(hidden_size: int, member: BlockSpec, **where: Any) -> dict[str, Operator]:
    """Operators of one block by name."""
    spec = model(hidden_size)
    found = blocks.kind(member).operators(spec, member, shapes(spec, **where))
    by_name = {operator.name: operator for operator in found}
    assert len(by_name) == len(found), "names are unique in a block"
    return by_name


def saved(hidden_size: int, member: BlockSpec, **where: Any) -> dict[str, Saved]:
    """Saved activations of one block by name."""
    spec = model(hidden_size)
    return {item.name: item for item in blocks.kind(member).saved(spec, member, shapes(spec, **where))}


def flops(found: dict[str, Operator]) -> float:
    """Forward FLOPs of all operators of a row."""
    return sum(operator.count * float(np.sum(operator.forward_flops)) for operator in found.values())


def size(found: dict[str, Saved]) -> float:
    """Bytes of all saved activations of a row."""
    return sum(float(item.size_bytes[0]) for item in found.values())


#: DeepSeek-V3's config.json (deepseek-ai/DeepSeek-V3).
MLA = block(
    "mla",
    num_attention_heads=128,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    rotary=True,
)
DEEPSEEK_MOE = block(
    "moe",
    num_experts=256,
    experts_per_token=8,
    expert_intermediate_size=2048,
    gated=True,
    shared_intermediate_size=2048,
    correction_bias=True,
)
#: Mixtral-8x7B's config.json (mistralai/Mixtral-8x7B-v0.1).
MIXTRAL_MOE = block("moe", num_experts=8, experts_per_token=2, expert_intermediate_size=14336, gated=True)
MIXTRAL_ATTENTION = block("attention", num_attention_heads=32, num_key_value_heads=8, head_dim=128, rotary=True)
#: Qwen3-Next-80B-A3B's config.json (Qwen/Qwen3-Next-80B-A3B-Instruct).
QWEN_MOE = block(
    "moe",
    num_experts=512,
    experts_per_token=10,
    expert_intermediate_size=512,
    gated=True,
    shared_intermediate_size=512,
    shared_gate=True,
)
QWEN_ATTENTION = block(
    "attention",
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=256,
    rotary=True,
    qk_norm="head",
    output_gate=True,
)
GATED_DELTA = block(
    "gated_delta",
    num_key_heads=16,
    num_value_heads=32,
    key_head_dim=128,
    value_head_dim=128,
    conv_kernel=4,
    chunk_size=64,
)
#: gpt-oss-120b's config.json (openai/gpt-oss-120b).
GPT_OSS_ATTENTION = block(
    "attention",
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=64,
    qkv_bias=True,
    output_bias=True,
    sinks=True,
    window=128,
    rotary=True,
)
GPT_OSS_MOE = block(
    "moe",
    num_experts=128,
    experts_per_token=4,
    expert_intermediate_size=2880,
    gated=True,
    router_bias=True,
    expert_bias=True,
)
#: Mamba-2 with the sizes of Nemotron-H's (nvidia/Nemotron-H-8B-Base-8K).
MAMBA2 = block(
    "mamba2", num_heads=128, head_dim=64, state_size=128, n_groups=8, conv_kernel=4, chunk_size=128, conv_bias=True
)
#: LLaVA-1.5's picture part: CLIP ViT-L/14 at 336 pixels and its projector (llava-hf/llava-1.5-7b-hf).
CLIP = block(
    "vision_encoder",
    num_hidden_layers=24,
    hidden_size=1024,
    num_attention_heads=16,
    intermediate_size=4096,
    norm="layernorm",
    patch_size=14,
    channels=3,
    image_tokens=576,
    images_per_sequence=1,
    biases=True,
    patch_bias=False,
    positions=577,
    class_token=True,
    pre_norm=True,
    final_norm=True,
    out_tokens=576,
    projector_layers=2,
    projector_hidden=4096,
)

#: Every kind with the width of a model that has it.
ALL = {
    "mla": (7168, MLA),
    "moe-deepseek": (7168, DEEPSEEK_MOE),
    "moe-mixtral": (4096, MIXTRAL_MOE),
    "moe-qwen": (2048, QWEN_MOE),
    "moe-gpt-oss": (2880, GPT_OSS_MOE),
    "attention-qwen": (2048, QWEN_ATTENTION),
    "attention-gpt-oss": (2880, GPT_OSS_ATTENTION),
    "attention-full-norm": (
        4096,
        block("attention", num_attention_heads=32, num_key_value_heads=8, head_dim=128, qk_norm="full", dropout=True),
    ),
    "gated_delta": (2048, GATED_DELTA),
    "mamba2": (4096, MAMBA2),
    "vision_encoder": (4096, CLIP),
    "patch_embedding": (768, block("patch_embedding", patch_size=16, image_tokens=196, positions=197)),
    "dense": (768, block("dense", in_size=768, out_size=768, bias=True, activation="gelu")),
    "dense-first": (768, block("dense", in_size=768, out_size=768, bias=True, activation="tanh", tokens="first")),
    "head-softcap": (2304, block("head", tied=True, softcap=30.0)),
    "head-labels": (768, block("head", labels=1000, bias=True)),
    "embedding": (768, block("embedding", position_embeddings=512, token_types=2, dropout=True)),
    "norm": (4096, block("norm", norm="layernorm", bias=False)),
    "mlp": (4096, block("mlp", intermediate_size=14336, gated=True)),
}
