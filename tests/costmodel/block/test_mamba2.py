"""Mamba-2 against transformers' counts and the paper's FLOPs."""

from __future__ import annotations

import pytest

from .cases import MAMBA2, SEQ_LEN, block, operators, parameters, saved

MAMBA2_2_7B = block(
    "mamba2", num_heads=80, head_dim=64, state_size=128, n_groups=1, conv_kernel=4, chunk_size=256, conv_bias=True
)


def test_parameters() -> None:
    """By hand for state-spaces/mamba2-2.7b's mixer; both equal Mamba2Mixer on the meta device."""
    inner, conv = 80 * 64, 80 * 64 + 2 * 128
    by_hand = 2560 * (inner + conv + 80) + conv * 4 + conv + 3 * 80 + inner + inner * 2560
    assert parameters(2560, MAMBA2_2_7B).total == by_hand == 40_214_000
    biased = block("mamba2", **{**MAMBA2_2_7B.options, "n_groups": 8, "bias": True, "conv_bias": False})
    assert parameters(2560, biased).total == 44_818_240


def test_scan_flops_are_the_papers_products() -> None:
    """arXiv 2405.21060, section 6: with N = P = Q the dual form costs four products of T N^2 a head, 8 T N^2 FLOPs."""
    square = block("mamba2", num_heads=4, head_dim=64, state_size=64, n_groups=4, conv_kernel=4, chunk_size=64)
    found = operators(256, square)
    scan = sum(float(o.forward_flops[0]) for name, o in found.items() if name.startswith("ssd_") and o.kind == "gemm")
    assert scan == pytest.approx(4 * 8.0 * SEQ_LEN * 64**2)


def test_scan_flops_stay_near_the_count_that_megatron_uses() -> None:
    """Megatron-LM counts 7 d_inner N a token for the scan, chunks left out: within a third at the usual sizes."""
    found = operators(2560, MAMBA2_2_7B)
    scan = sum(float(o.forward_flops[0]) for name, o in found.items() if name.startswith("ssd_") and o.kind == "gemm")
    assert scan == pytest.approx(7.0 * SEQ_LEN * 5120 * 128, rel=1 / 3)


def test_work_is_linear_in_the_sequence() -> None:
    short, long = (operators(4096, MAMBA2, seq_len=n) for n in (2048, 16384))
    for name, operator in short.items():
        assert long[name].forward_flops == pytest.approx(8 * operator.forward_flops)


def test_only_projection_and_outputs_are_kept() -> None:
    inner = 128 * 64
    kept = {name: float(item.size_bytes[0]) / (2 * SEQ_LEN) for name, item in saved(4096, MAMBA2).items()}
    assert kept == {
        "mamba_input": 4096,
        "mamba_projected": 2 * inner + 2 * 8 * 128 + 128,
        "mamba_scan_output": inner,
        "mamba_output_input": inner,
    }
