"""What optimizers keep of a parameter and what their step costs, against the closed forms of their papers."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel.optimizer import (
    matrices,
    newton_schulz_flops,
    optimizer_time_s,
    state_bytes_per_parameter,
    streamed_bytes_per_parameter,
)
from meshwright.costmodel.parameters import parameter_count
from meshwright.specs.job import TrainingJob


def job(model: str = "llama-2-7b", **fields: object) -> TrainingJob:
    return TrainingJob.model_validate({"model": catalog.model(model), "seq_len": 2048, "global_batch": 512, **fields})


def total(**fields: object) -> float:
    return sum(state_bytes_per_parameter(job(**fields)))


def test_adam_in_mixed_precision_takes_the_bytes_of_its_papers() -> None:
    """16 with fp16 gradients (ZeRO, arXiv 1910.02054, section 3.1), 18 with fp32 ones (Megatron's buffer)."""
    assert total(precision="fp16", grad_dtype="fp16") == 16
    assert total(precision="bf16", grad_dtype="fp32") == 18
    assert state_bytes_per_parameter(job()) == (2, 4, 12)


def test_fp32_and_tf32_have_no_second_copy_of_the_weights() -> None:
    for precision in ("fp32", "tf32"):
        assert state_bytes_per_parameter(job(precision=precision)) == (4, 4, 8)


def test_formats_of_the_states() -> None:
    """DeepSeek-V3 (arXiv 2412.19437, section 3.3.3): moments in bf16, master weights and gradients in fp32."""
    assert state_bytes_per_parameter(job(moment_dtype="bf16")).optimizer == 4 + 2 * 2
    assert state_bytes_per_parameter(job(master_dtype="none", grad_dtype="bf16")) == (2, 2, 8)


def test_sgd_keeps_one_momentum() -> None:
    assert state_bytes_per_parameter(job(optimizer="sgd", master_dtype="none")).optimizer == 4


def test_eight_bit_moments_save_three_quarters() -> None:
    """Two bytes of moments instead of eight, and 1.5 % for scales (arXiv 2110.02861)."""
    moments = state_bytes_per_parameter(job(optimizer="adam_8bit", master_dtype="none")).optimizer
    assert 2.0 < moments < 2.0 * 1.02


def test_adafactor_keeps_a_row_and_a_column() -> None:
    """4 (h + 4h) bytes for each h x 4h matrix (arXiv 1804.04235): GPT-3 175B keeps 1/5000 of Adam's second moment."""
    asked = job("gpt3-175b", optimizer="adafactor", master_dtype="none")
    h = asked.model.hidden_size
    kept, elements = 4 * ((3 + 1) * h + 2 * h + 2 * (h + 4 * h)), 12 * h * h
    assert state_bytes_per_parameter(asked).optimizer == pytest.approx(kept / elements)


def test_muon_keeps_one_momentum_for_matrices_and_adam_for_the_rest() -> None:
    asked = job(optimizer="muon", master_dtype="none")
    inside = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    everything = parameter_count(asked.model)
    assert matrices(asked).elements == inside
    assert state_bytes_per_parameter(asked).optimizer * everything == pytest.approx(
        4 * inside + 8 * (everything - inside)
    )


def test_newton_schulz_costs_what_its_author_says() -> None:
    """At most 5 m / B of a step's FLOPs for matrices of m rows and batches of B tokens (Jordan et al., 2024, "Muon").

    The bound is tight for square matrices, where a step's 6 n m B FLOPs compare with 5 x 6 m^3.
    """
    m, batch_tokens = 4096.0, 4e6
    for n in (m, 2 * m, 11008.0):
        share = newton_schulz_flops(np.array(m), np.array(n)) / (6 * m * n * batch_tokens)
        assert share <= 5 * m / batch_tokens * (1 + 1e-12)
    assert newton_schulz_flops(np.array(m), np.array(m)) == pytest.approx(5 * 6 * m**3)
    assert newton_schulz_flops(np.array(m), np.array(n)) == newton_schulz_flops(np.array(n), np.array(m))


@pytest.mark.parametrize("optimizer", ["adam", "unfused_adam", "adam_8bit", "sgd", "adafactor", "muon"])
def test_no_update_beats_the_memory(optimizer: str) -> None:
    """States are read and written at less than the data sheet's bandwidth, and shards share the work."""
    asked, chip, constants = job(optimizer=optimizer), catalog.gpu("H100"), catalog.constants()
    parameters, shards = np.array([1e9, 1e9, 2e9]), np.array([1.0, 8.0, 1.0])
    fixed = constants.get("step_fixed_s")
    time = optimizer_time_s(asked, parameters, shards, chip, constants) - fixed
    floor = 2 * state_bytes_per_parameter(asked).optimizer * parameters / shards / chip.memory_bytes_per_s
    assert (time > floor).all()
    assert time[2] == pytest.approx(2 * time[0])
    assert time[1] <= time[0]


def test_the_order_of_the_optimizers() -> None:
    """Fused Adam streams 28 bytes a parameter beside what mixed precision adds; its unfused form nearly three times."""
    fp32 = {"precision": "fp32"}
    assert streamed_bytes_per_parameter(job(**fp32)) == 28 + 4  # the gradient once more for its norm
    assert streamed_bytes_per_parameter(job(optimizer="unfused_adam", **fp32)) == 80 + 4
    chip, constants = catalog.gpu("H100"), catalog.constants()
    one = np.array([1e9]), np.ones(1), chip, constants
    times = {name: optimizer_time_s(job(optimizer=name), *one)[0] for name in ("sgd", "adam", "unfused_adam", "muon")}
    assert times["sgd"] < times["adam"] < times["unfused_adam"] < times["muon"]


def test_many_small_tensors_wait_for_their_launches() -> None:
    """Every tensor launches its own kernels without fusion, however small: eight or more for GPT-2's 148 tensors."""
    asked, constants = job("gpt2", seq_len=1024, optimizer="unfused_adam"), catalog.constants()
    parameters = np.array([float(parameter_count(asked.model))])
    time = optimizer_time_s(asked, parameters, np.full(1, 1024.0), catalog.gpu("B200"), constants)
    assert time[0] > constants.get("step_fixed_s") + 8 * 48 * constants.get("launch_s_per_kernel")


def test_quantised_copies_of_the_weights() -> None:
    """Two FP8 copies beside the bf16 weight of a linear layer, or instead of it; the rest of the model has none."""
    share = matrices(job()).elements / parameter_count(job().model)
    assert state_bytes_per_parameter(job(precision="fp8")).weights == pytest.approx(2 + 2 * share)
    assert state_bytes_per_parameter(job(precision="fp8", fp8_param_gather=True)).weights == pytest.approx(2.0)
    assert job(precision="fp8", fp8_param_gather=True).param_gather_bytes == 1
    assert job(precision="fp8").param_gather_bytes == 2
