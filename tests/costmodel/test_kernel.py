"""Kernels never beat the data sheet, and efficiency grows with size."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel.kernel import (
    KernelConstants,
    accumulation_time_s,
    attention_time_s,
    fused_wgrad_time_s,
    gemm_efficiency_ratio,
    gemm_time_s,
    memory_time_s,
)
from meshwright.specs.job import TrainingJob


@pytest.mark.parametrize("gpu", ["A100-80GB", "H100", "V100-32GB", "B200", "RTX 4090"])
def test_no_kernel_beats_the_data_sheet(gpu: str) -> None:
    job = TrainingJob(model=catalog.model("gpt2"), seq_len=512, global_batch=8, precision="fp16", attention="flash")
    chip = catalog.gpu(gpu)
    c = KernelConstants.of(chip, job, catalog.constants())
    sizes = np.geomspace(16, 65536, 40)
    time = gemm_time_s(sizes, sizes, sizes, np.ones(40), 2, c)
    assert (2 * sizes**3 / time < chip.peak_flops_per_s["fp16"]).all()
    assert (3 * 2 * sizes**2 / time < chip.memory_bytes_per_s).all()
    assert (np.diff(gemm_efficiency_ratio(sizes, sizes, sizes, np.ones(40), c)) > 0).all()
    assert (sizes / memory_time_s(sizes, c) < chip.memory_bytes_per_s).all()
    for seq_len in (512, 8192):
        flops = np.array([1e12])
        assert flops / attention_time_s(flops, seq_len, 128, np.zeros(1), c) < chip.peak_flops_per_s["fp16"]


def test_a100_reaches_the_measured_gemm_ceiling_but_not_more() -> None:
    """Best of a sweep on A100: 271.2 TFLOP/s in bf16 at 1024 x 10240 x 5120 (stas00/ml-engineering, MAMF)."""
    job = TrainingJob(model=catalog.model("gpt2"), seq_len=512, global_batch=8)
    c = KernelConstants.of(catalog.gpu("A100-80GB"), job, catalog.constants())
    time = gemm_time_s(np.array([1024.0]), np.array([10240.0]), np.array([5120.0]), np.ones(1), 2, c)
    achieved = 2 * 1024 * 10240 * 5120 / time[0]
    assert 0.65 * 271.2e12 < achieved < 271.2e12


def test_fusing_the_accumulation_is_never_dearer_than_a_pass_of_its_own() -> None:
    job = TrainingJob(model=catalog.model("gpt2"), seq_len=512, global_batch=8)
    c = KernelConstants.of(catalog.gpu("A100-80GB"), job, catalog.constants())
    tokens, width = np.meshgrid(np.geomspace(16, 65536, 13), np.geomspace(64, 16384, 9))
    wgrad = gemm_time_s(width, width, tokens, np.ones_like(tokens), 2, c)
    own_pass = accumulation_time_s(width**2, job, c)
    fused = fused_wgrad_time_s(wgrad, own_pass, c)
    assert (fused <= c.wgrad_ratio * wgrad + own_pass + 1e-15).all()
    assert (fused >= wgrad).all()
    assert (fused <= max(c.fused_wgrad_ratio, c.wgrad_ratio) * wgrad + 1e-15).all()
