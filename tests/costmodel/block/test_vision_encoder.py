"""Vision encoders against transformers' counts and torch's own FLOPs."""

from __future__ import annotations

import pytest

from .cases import CLIP, block, flops, operators, parameters, saved, size

QWEN = block(
    "vision_encoder",
    num_hidden_layers=32,
    hidden_size=1280,
    num_attention_heads=16,
    intermediate_size=3420,
    gated=True,
    norm="rmsnorm",
    patch_size=14,
    channels=6,
    image_tokens=1024,
    images_per_sequence=1,
    biases=True,
    patch_bias=False,
    final_norm=True,
    out_tokens=256,
    merge=4,
    projector_layers=2,
    projector_hidden=5120,
)


def test_parameters() -> None:
    """LLaVA-1.5: CLIPVisionModel with 303,507,456 and a projector of two biased layers; Qwen2.5-VL-7B's encoder."""
    projector = 1024 * 4096 + 4096 + 4096 * 4096 + 4096
    assert parameters(4096, CLIP).total == 303_507_456 + projector == 324_487_168
    assert parameters(3584, QWEN).total == 676_550_144


def test_flops_equal_those_that_torch_counts() -> None:
    """CLIPVisionModel of transformers 5.24, 3 layers 128 wide, two pictures of 16 patches, eager: 32,443,392."""
    small = block(
        "vision_encoder",
        num_hidden_layers=3,
        hidden_size=128,
        num_attention_heads=4,
        intermediate_size=256,
        patch_size=14,
        channels=3,
        image_tokens=16,
        images_per_sequence=2,
        biases=True,
        patch_bias=False,
        positions=17,
        class_token=True,
        pre_norm=True,
        final_norm=True,
    )
    assert flops(operators(128, small, attention="unfused", seq_len=64)) == 32_443_392


def test_more_pictures_and_sequences_are_more_of_the_same() -> None:
    one = operators(4096, CLIP)
    three = operators(4096, block("vision_encoder", **{**CLIP.options, "images_per_sequence": 3}), micro_batch=2.0)
    assert flops(three) == pytest.approx(6 * flops(one))
    assert flops(operators(4096, CLIP, seq_len=8192)) == pytest.approx(flops(one))


def test_tensor_parallelism_cuts_the_layers_and_context_parallelism_nothing() -> None:
    whole, tp, cp = (operators(4096, CLIP, **degrees) for degrees in ({}, {"tp": 4.0}, {"cp": 4.0}))
    for name in ("vision_layer_qkv", "vision_layer_flash_attention", "vision_layer_mlp_up"):
        assert tp[name].forward_flops == pytest.approx(whole[name].forward_flops / 4)
    assert flops(cp) == pytest.approx(flops(whole))
    assert size(saved(4096, CLIP, cp=4.0)) == pytest.approx(size(saved(4096, CLIP)))


def test_layers_run_one_after_the_other() -> None:
    found = operators(4096, CLIP)
    assert (found["vision_layer_qkv"].count, found["vision_patch_projection"].count) == (24.0, 1.0)
