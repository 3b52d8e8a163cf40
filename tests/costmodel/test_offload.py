"""Offload: bytes over PCIe against ZeRO-Offload and ZeRO-Infinity."""

from __future__ import annotations

import pytest

from meshwright import catalog
from meshwright.costmodel import evaluate
from meshwright.formula import Ledger
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch

CONSTANTS = catalog.constants()
RANKS, MICRO_BATCHES = 8, 4
#: GPT-2 XL: 48 layers of width 1600, 50,257 tied words, 1,024 positions.
PSI = 48 * (12 * 1600**2 + 13 * 1600) + (50_257 + 1_024) * 1600 + 2 * 1600


JOB = TrainingJob(
    model=catalog.model("gpt2-xl"),
    seq_len=1024,
    global_batch=RANKS * MICRO_BATCHES,
    precision="fp16",
    grad_dtype="fp16",
)
CLUSTER = catalog.cluster("1x8 A100-80GB")[0]
PCIE = CLUSTER.gpu.pcie_bytes_per_s


def _optimizer_bytes_over_pcie(offload: str) -> float:
    """Bytes that an optimizer step moves over the PCIe link of a GPU: what it gains when the link is twice as fast."""
    rows = LayoutBatch.of([Layout.model_validate({"dp": RANKS, "offload_optimizer": offload})])
    gpu = CLUSTER.gpu.model_copy(update={"pcie_bytes_per_s": 2 * PCIE})
    slow, fast = (
        float(evaluate(JOB, at, rows, CONSTANTS).breakdown_s["optimizer"][0])
        for at in (CLUSTER, CLUSTER.model_copy(update={"gpu": gpu}))
    )
    return (slow - fast) * 2 * PCIE


def test_the_optimizer_s_step_moves_gradients_down_and_weights_up() -> None:
    """Arxiv 2101.06840, section 4.1: 2 M bytes of fp16 gradients and 2 M of weights, each rank its shard."""
    assert _optimizer_bytes_over_pcie("cpu") == pytest.approx(4 * PSI / RANKS, rel=1e-3)
    assert _optimizer_bytes_over_pcie("none") == pytest.approx(0.0, abs=1.0)


def test_every_gather_fetches_the_rank_s_shard() -> None:
    """Arxiv 2104.07857, section 5: a rank fetches 1 / N of the fp16 weights over its own link, for either pass."""
    layout = Layout(dp=RANKS, zero_stage=3, offload_optimizer="cpu", offload_parameters="cpu")
    ledger = Ledger()
    evaluate(JOB, CLUSTER, LayoutBatch.of([layout]), CONSTANTS, ledger)
    fetches = ledger.find("fetch_s")
    assert len(fetches) == 2
    for fetch in fetches:
        assert float(fetch.result[0]) == pytest.approx(2 * PSI / RANKS / PCIE, rel=1e-3)


def test_a_link_of_its_own_to_the_host_serves_in_the_place_of_pcie() -> None:
    """Grace Hopper: 450 GB/s of NVLink-C2C one way, whatever the PCIe slot does."""
    there = catalog.cluster("8x1 GH200-96GB")[0]
    assert there.gpu.host_bytes_per_s == 450e9
    layout = Layout(dp=RANKS, zero_stage=3, offload_optimizer="cpu", offload_parameters="cpu")
    ledger = Ledger()
    evaluate(JOB, there, LayoutBatch.of([layout]), CONSTANTS, ledger)
    for fetch in ledger.find("fetch_s"):
        assert float(fetch.result[0]) == pytest.approx(2 * PSI / RANKS / 450e9, rel=1e-3)


def test_offloaded_states_leave_the_gpu_for_the_host() -> None:
    """Arxiv 2101.06840, table 1: 12 M / N bytes of optimizer state and, with parameters, 2 M / N more; eight a node."""
    rows = [
        Layout.model_validate(
            {"dp": RANKS, "zero_stage": 3, "offload_optimizer": optimizer, "offload_parameters": parameters}
        )
        for optimizer, parameters in (("none", "none"), ("cpu", "none"), ("cpu", "cpu"))
    ]
    found = evaluate(JOB, CLUSTER, LayoutBatch.of(rows), CONSTANTS)
    host = found.host_bytes - found.host_bytes[0]
    assert host[1] == pytest.approx(12 * PSI, rel=1e-3)
    assert host[2] == pytest.approx(14 * PSI, rel=1e-3)
    assert list(found.memory_by_bytes["optimizer"][1:]) == [0.0, 0.0]
    assert found.memory_by_bytes["weights"][2] == 0.0
