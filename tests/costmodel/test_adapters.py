"""What is trained and what is frozen, against published counts."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import block as blocks
from meshwright.costmodel import evaluate
from meshwright.costmodel.adapters import (
    Share,
    backward_of,
    frozen_bytes,
    frozen_parameters,
    is_adapted,
    is_linear,
    linear_parameters,
    trainable_parameters,
)
from meshwright.costmodel.operator import gemm
from meshwright.costmodel.parameters import block_parameters, one_rank_shapes, parameter_count
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from meshwright.specs.model import BlockSpec

MODELS = [name for name in catalog.names("model") if name != "tiny"]


def job(model: str = "llama-2-7b", **fields: object) -> TrainingJob:
    found = catalog.model(model)
    seq_len = min(512, found.max_position_embeddings)
    return TrainingJob.model_validate({"model": found, "seq_len": seq_len, "global_batch": 64, **fields})


def whole(asked: TrainingJob, count: object) -> float:
    model = asked.model
    parts = [(1, model.prologue), *((group.repeat, group.blocks) for group in model.layers), (1, model.epilogue)]
    return float(sum(repeat * count(asked, members).total for repeat, members in parts))  # type: ignore[operator]


def test_trained_parameters_of_published_adapters() -> None:
    """What PEFT prints: 39,976,960 of 6,778,392,576 for Llama-2-7B at rank 16 on q, k, v, o, gate, up, down (each has a
    pair of its own), 26,214,400 for the 13B model on q, k, v, o (card of adriantheuma/raven-lora).

    GPT-3 175B has 4.7 M at rank 1 on q and v (arXiv 2106.09685), so twice that on all four.
    """
    seven = job(lora_rank=16)
    assert whole(seven, trainable_parameters) == 39_976_960
    assert whole(seven, trainable_parameters) + whole(seven, frozen_parameters) == 6_778_392_576
    attention = {"lora_targets": "attention"}
    assert whole(job("llama-2-13b", lora_rank=16, **attention), trainable_parameters) == 26_214_400
    assert whole(job("gpt3-175b", lora_rank=1, **attention), trainable_parameters) == pytest.approx(2 * 4.7e6, rel=0.01)


@pytest.mark.parametrize("name", MODELS)
def test_everything_is_trained_or_frozen(name: str) -> None:
    plain = job(name)
    assert whole(plain, trainable_parameters) == whole(plain, lambda j, m: block_parameters(j.model, m))
    assert whole(plain, frozen_parameters) == 0
    adapted = job(name, lora_rank=8)
    assert whole(adapted, frozen_parameters) == whole(plain, trainable_parameters)
    partly = job(name, frozen="embedding")
    assert whole(partly, trainable_parameters) + whole(partly, frozen_parameters) == parameter_count(plain.model)


@pytest.mark.parametrize("name", MODELS)
def test_linear_layers_are_cut_as_their_blocks_are(name: str) -> None:
    """Sharded, replicated and expert elements agree with what the blocks themselves declare, but for vectors."""
    asked = job(name)
    for members in asked.model.layer_kinds:
        held, linear = block_parameters(asked.model, members), linear_parameters(asked, members)
        vectors = held.total - linear.total
        assert 0 <= vectors <= 0.01 * held.total
        assert abs(held.sharded - linear.sharded) <= vectors + 1e-6 * held.total
        assert abs(held.expert - linear.expert) <= vectors + 1e-6 * held.total


def test_experts_get_adapters_of_their_own() -> None:
    """Each of 8 gated experts has three linear layers; shared experts are sharded, the router gets none."""
    options = {"num_experts": 8, "experts_per_token": 2, "expert_intermediate_size": 1024, "gated": True}
    moe = BlockSpec(kind="moe", options=options | {"shared_intermediate_size": 2048})
    held, linear = block_parameters(job().model, [moe]), linear_parameters(job(), [moe])
    assert linear.expert == held.expert
    assert linear.sharded == held.sharded
    assert linear.replicated == 0
    adapters = trainable_parameters(job(lora_rank=4), [moe])
    assert adapters.total == 4 * (8 * 3 * (4096 + 1024) + 3 * (4096 + 2048))
    assert adapters.expert == 4 * 8 * 3 * (4096 + 1024)


def test_qlora_packs_linear_layers_into_half_a_byte() -> None:
    """4.127 bits an element (arXiv 2305.14314, section 3: 0.127 bits of constants), embedding, head and norms in 16."""
    asked = job(lora_rank=16, frozen_dtype="nf4")
    linear = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    rest = parameter_count(asked.model) - linear
    assert whole(asked, frozen_bytes) == pytest.approx(linear * 4.127 / 8 + rest * 2, rel=1e-4)
    assert whole(job(lora_rank=16), frozen_bytes) == 2 * parameter_count(asked.model)


def test_gradients_flow_to_the_first_trained_block() -> None:
    model = catalog.model("llama-2-7b")
    embedding, (norm, attention, _norm, mlp), head = model.prologue[0], model.layers[0].blocks, model.epilogue[-1]
    assert {backward_of(job(), block) for block in (embedding, norm, attention, mlp, head)} == {"all"}
    adapted = job(lora_rank=8)
    assert backward_of(adapted, embedding) == "none"
    assert {backward_of(adapted, block) for block in (attention, mlp, head)} == {"input"}
    assert backward_of(job(frozen=("mlp",)), mlp) == "input"
    assert backward_of(job(frozen=("mlp",)), embedding) == "all"
    assert backward_of(job(frozen="embedding, mlp"), embedding) == "none"


def test_a_frozen_picture_encoder_is_run_forward_only() -> None:
    """It reads pictures, so nothing that is trained lies before it, wherever the text comes from."""
    encoder = BlockSpec(kind="vision_encoder")
    assert backward_of(job(), encoder) == "all"
    assert backward_of(job(frozen="vision_encoder"), encoder) == "none"
    assert backward_of(job(lora_rank=8), encoder) == "input"
    assert backward_of(job(lora_rank=8, lora_targets="attention"), encoder) == "none"
    frozen = job(lora_rank=8, frozen="vision_encoder")
    assert backward_of(frozen, encoder) == "none"
    linear = gemm("vision_qkv", "embedding", 256.0, 3072.0, 1024.0)
    assert is_adapted(linear, encoder, job(lora_rank=8))
    assert not is_adapted(linear, encoder, frozen)


def times(**fields: object) -> tuple[float, float]:
    cluster, _assumed = catalog.cluster("8xA100-80GB")
    layouts = LayoutBatch.of([Layout(dp=8, micro_batch=8)])
    terms = evaluate(job(**fields), cluster, layouts, catalog.constants()).breakdown_s
    return float(terms["forward"][0]), float(terms["backward"][0])


def test_frozen_weights_halve_the_backward_and_adapters_cost_little() -> None:
    """Without weight gradients a backward is one product each instead of two; an adapter's own are thin."""
    forward, backward = times()
    forward_lora, backward_lora = times(lora_rank=16)
    assert 1.0 < forward_lora / forward < 1.5
    assert 0.5 < backward_lora / backward < 0.9
    assert times(lora_rank=64) > (forward_lora, backward_lora)
    narrow = times(lora_rank=16, lora_targets="attention")
    assert narrow[0] < forward_lora
    assert narrow[1] < backward_lora
    packed = times(lora_rank=16, frozen_dtype="nf4")
    assert packed[0] > forward_lora
    assert packed[1] > backward_lora


def test_a_frozen_block_costs_its_forward_only() -> None:
    model, asked = catalog.model("llama-2-7b"), job(frozen=("mlp",))
    forward, backward = times(frozen=("mlp",))
    assert forward == times()[0]
    shapes = one_rank_shapes(asked)
    gemms = [
        (operator.name, float(np.max(operator.forward_flops)))
        for block in model.layers[0].blocks
        for operator in blocks.kind(block).operators(model, block, shapes)
        if is_linear(operator)
    ]
    share = sum(flops for name, flops in gemms if name.startswith("mlp")) / sum(flops for _name, flops in gemms)
    # Of two backward products the MLP saves one.
    assert backward / times()[1] == pytest.approx(1 - share / 2, abs=0.08)


def test_shares_add_up() -> None:
    assert Share(1.0, 2.0, 3.0).total == 6.0
