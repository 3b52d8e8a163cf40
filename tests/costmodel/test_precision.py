"""Narrow formats gain less than their peaks promise, and touch linear layers only."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import evaluate
from meshwright.costmodel.kernel import KernelConstants, backward_time_s, forward_time_s
from meshwright.costmodel.operator import Operator, gemm
from meshwright.costmodel.precision import quantisation, quantisation_bytes
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch


def job(**fields: object) -> TrainingJob:
    return TrainingJob.model_validate(
        {"model": catalog.model("llama-2-7b"), "seq_len": 4096, "global_batch": 8, **fields}
    )


def layer_time_s(precision: str, width: float, gpu: str = "H100", tokens: float = 8192.0, **fields: object) -> float:
    """Forward and backward of one linear layer, quantisation included."""
    asked = job(precision=precision, **fields)
    c = KernelConstants.of(catalog.gpu(gpu), asked, catalog.constants())
    operators = [gemm("mlp_up", "mlp", np.array([tokens]), width, width)]
    operators += [quantisation(operators[0], asked)] if asked.low_precision else []
    return float(sum(forward_time_s(o, asked, c)[0] + backward_time_s(o, asked, c)[0] for o in operators))


@pytest.mark.parametrize("gpu", ["H100", "B200"])
@pytest.mark.parametrize(("name", "tp"), [("llama-2-7b", 1), ("llama-2-13b", 2), ("llama-2-70b", 4), ("gpt3-175b", 8)])
def test_a_model_gains_a_part_of_what_fp8_promises(name: str, tp: int, gpu: str) -> None:
    """1.0 to 1.5 times, not 2: attention, norms and quantisation stay, and the peak is harder to reach."""
    cluster, _assumed = catalog.cluster(f"8x{gpu}")
    layouts = LayoutBatch.of([Layout(dp=8 // tp, tp=tp, micro_batch=2)])
    step = {}
    for precision in ("bf16", "fp8"):
        asked = job(model=catalog.model(name), seq_len=2048, global_batch=64, precision=precision)
        step[precision] = float(evaluate(asked, cluster, layouts, catalog.constants()).step_time_s[0])
    assert 1.0 < step["bf16"] / step["fp8"] < 1.5


def test_the_gain_grows_with_the_layer() -> None:
    widths = np.geomspace(1024, 32768, 6)
    gains = [layer_time_s("bf16", w) / layer_time_s("fp8", w) for w in widths]
    assert (np.diff(gains) > 0).all()
    # Small layers lose: two passes over their operands cost more than the product gains.
    assert gains[0] < 1.0


def test_a_scale_of_the_tensor_itself_costs_a_read_more() -> None:
    slow, fast = (layer_time_s("fp8", 8192.0, fp8_recipe=recipe) for recipe in ("tensorwise", "delayed"))
    assert slow > fast
    # 16-bit read, two one-byte writes; and one more read.
    elements = np.array([1e6])
    assert quantisation_bytes(elements, 2, 1.0, 0.0) == pytest.approx(4e6)
    assert quantisation_bytes(elements, 2, 1.0, 2.0) == pytest.approx(6e6)


def test_no_narrow_kernel_beats_the_data_sheet() -> None:
    asked = job(precision="fp8")
    chip = catalog.gpu("H100")
    c = KernelConstants.of(chip, asked, catalog.constants())
    sizes = np.geomspace(16, 65536, 40)
    operator = gemm("mlp_up", "mlp", sizes, sizes, sizes)
    assert (2 * sizes**3 / forward_time_s(operator, asked, c) < chip.peak_flops_per_s["fp8"]).all()


@pytest.mark.parametrize(
    "operator",
    [
        gemm("logits", "head", np.array([4096.0]), 32000.0, 4096.0),
        gemm("router", "moe", np.array([4096.0]), 64.0, 4096.0, low_precision=False),
        gemm(
            "attention_scores", "core_attention", 4096.0, 4096.0, 128.0, batch=np.array([32.0]), trainable_weight=False
        ),
        Operator(
            "flash_attention", "attention", "core_attention", (1, 3), forward_flops=np.array([1e12]), head_dim=128
        ),
    ],
)
def test_what_a_recipe_leaves_alone_costs_as_in_bf16(operator: Operator) -> None:
    times = []
    for precision in ("bf16", "fp8"):
        asked = job(precision=precision)
        c = KernelConstants.of(catalog.gpu("H100"), asked, catalog.constants())
        times.append((forward_time_s(operator, asked, c), backward_time_s(operator, asked, c)))
    assert times[0] == times[1]


def test_tf32_is_slower_than_bf16_and_faster_than_fp32() -> None:
    fp32, tf32, bf16 = (layer_time_s(precision, 8192.0, "A100-80GB") for precision in ("fp32", "tf32", "bf16"))
    assert fp32 > 4 * tf32
    assert 1.5 * bf16 < tf32 < 2.5 * bf16
