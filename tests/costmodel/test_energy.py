"""Energy and money against published totals and measured power."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import evaluate
from meshwright.costmodel.energy import gpu_power_w, host_w_per_gpu, mean_power_w, peak_power_w, site_power_w
from meshwright.costmodel.money import cost_usd
from meshwright.specs.estimate import BREAKDOWN_TERMS
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch

CONSTANTS = catalog.constants()


def terms(**shares: float) -> dict[str, np.ndarray]:
    return {name: np.array([shares.get(name, 0.0)]) for name in BREAKDOWN_TERMS}


@pytest.mark.parametrize(
    ("gpu_hours", "mwh"),
    # LLaMA, arXiv 2302.13971, table 15: limit power, no host, PUE 1.1.
    [(1_022_362, 449), (135_168, 59), (82_432, 36), (1_082_880, 475)],
    ids=["65B", "13B", "7B", "BLOOM-175B"],
)
def test_the_energy_table_of_llama(gpu_hours: int, mwh: float) -> None:
    site_w = site_power_w(np.array([400.0]), 1, 0.0, 1.1)[0]
    assert site_w * gpu_hours / 1e6 == pytest.approx(mwh, rel=0.015)


def test_bloom_as_measured() -> None:
    """arXiv 2211.02001: 433,196 kWh of GPUs and 256,646 kWh of idling nodes and infrastructure, 1,082,990 GPU-hours.

    We ask the same of 48 nodes with its published layout; hosts and building are constants of other sources.
    """
    job = TrainingJob(model=catalog.model("bloom-176b"), seq_len=2048, global_batch=2048, attention="unfused")
    cluster = catalog.cluster("48x8 A100-80GB")[0]
    layout = Layout(dp=8, tp=4, pp=12, micro_batch=2, zero_stage=1, recompute="full")
    found = evaluate(job, cluster, LayoutBatch.of([layout]), CONSTANTS)
    site_w = mean_power_w(found.breakdown_s, found.step_time_s, cluster, 1.2, CONSTANTS)[0]
    measured_w = (433_196 + 256_646) * 1e3 / 1_082_990
    assert site_w / cluster.n_gpus == pytest.approx(measured_w, rel=0.1)


def test_an_h100_server_as_measured() -> None:
    """arXiv 2412.08602: at most 8.4 kW with GPUs near full use; arXiv 2506.14551: 76 % of 10.2 kW while computing."""
    cluster = catalog.cluster("8xH100")[0]
    assert peak_power_w(cluster, 1.0, CONSTANTS) == pytest.approx(8400, rel=0.01)
    computing = mean_power_w(terms(forward=0.3, backward=0.7), np.ones(1), cluster, 1.0, CONSTANTS)[0]
    assert computing == pytest.approx(0.76 * 10_200, rel=0.02)


def test_power_lies_between_idle_and_limit_and_follows_use() -> None:
    idle = gpu_power_w(terms(bubble=1.0), np.ones(1), 700.0, CONSTANTS)[0]
    sending = gpu_power_w(terms(dp_comm=1.0), np.ones(1), 700.0, CONSTANTS)[0]
    streaming = gpu_power_w(terms(optimizer=1.0), np.ones(1), 700.0, CONSTANTS)[0]
    computing = gpu_power_w(terms(backward=1.0), np.ones(1), 700.0, CONSTANTS)[0]
    assert 0 < idle < sending < streaming < computing <= 700.0
    half = gpu_power_w(terms(backward=0.5, bubble=0.5), np.ones(1), 700.0, CONSTANTS)[0]
    assert half == pytest.approx((idle + computing) / 2)


def test_every_term_of_the_step_has_a_power() -> None:
    """A term that is neither compute, memory nor traffic idles; a new name must be put in one of them on purpose."""
    idling = [
        name
        for name in BREAKDOWN_TERMS
        if gpu_power_w(terms(**{name: 1.0}), np.ones(1), 1.0, CONSTANTS)[0] == CONSTANTS.get("idle_power_ratio")
    ]
    assert idling == ["bubble", "launch", "data", "checkpoint", "straggler"]


def test_the_building_multiplies() -> None:
    cluster = catalog.cluster("2x8 A100-80GB")[0]
    one, more = (mean_power_w(terms(forward=1.0), np.ones(1), cluster, pue, CONSTANTS)[0] for pue in (1.0, 1.5))
    assert more == pytest.approx(1.5 * one)
    assert host_w_per_gpu(cluster, CONSTANTS) == pytest.approx(200.0)


def test_deepseek_v3_cost() -> None:
    """arXiv 2412.19437, table 1: 2.788 M H800-hours at 2 USD are 5.576 M USD."""
    assert cost_usd(2048, 2.788e6 / 2048 * 3600, 2.0) == pytest.approx(5.576e6, rel=1e-3)
