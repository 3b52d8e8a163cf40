"""The fit finds constants that made the data, and leaves to the prior what the data cannot say."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.calibrate.fit import Measured, fit, predictions
from meshwright.specs.constants import Constants
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch

NAMES = ("gemm_ceiling_ratio.ampere", "launch_s_per_kernel.unfused")


def _runs(constants: Constants, model: str, noise: float = 0.0) -> list[Measured]:
    """Steps of 8 A100 as ``constants`` predict them, with log-normal noise."""
    rng = np.random.default_rng(3)
    cluster = catalog.cluster("1x8 A100-80GB")[0]
    runs = []
    for global_batch in (16, 64):
        job = TrainingJob(
            model=catalog.model(model),
            seq_len=1024,
            global_batch=global_batch,
            attention="unfused",
            gradient_accumulation_fusion=False,
        )
        rows = LayoutBatch.of([Layout(dp=8 // tp, tp=tp, micro_batch=m) for tp in (1, 2, 4) for m in (1, 2)])
        run = Measured(job, cluster, rows, np.ones(len(rows)), model)
        run.step_time_s = predictions([run], constants)[0] * np.exp(noise * rng.standard_normal(len(rows)))
        runs.append(run)
    return runs


def test_it_finds_the_constants_that_made_the_data() -> None:
    start = catalog.constants()
    truth = {name: start.by_name[name].prior * factor for name, factor in zip(NAMES, (0.9, 1.3), strict=True)}
    runs = [*_runs(start.replace(truth), "megatron-1.7b"), *_runs(start.replace(truth), "gpt2")]
    found = fit(runs, start, NAMES)
    for name in NAMES:
        assert found.values[name] == pytest.approx(truth[name], rel=0.02)
        assert 0 < found.standard_error_ratio[name] < start.by_name[name].prior_sd_ratio


def test_what_the_data_cannot_say_stays_at_its_prior() -> None:
    """One node has no network: its efficiency keeps prior and the prior's width."""
    start = catalog.constants()
    found = fit(_runs(start, "gpt2"), start, ("network_efficiency_ratio",))
    prior = start.by_name["network_efficiency_ratio"]
    assert found.values["network_efficiency_ratio"] == pytest.approx(prior.prior, rel=1e-3)
    assert found.standard_error_ratio["network_efficiency_ratio"] == pytest.approx(prior.prior_sd_ratio, rel=1e-3)


def test_one_sick_run_moves_little() -> None:
    start = catalog.constants()
    runs = _runs(start, "megatron-1.7b", noise=0.02)
    healthy = fit(runs, start, NAMES[:1]).values[NAMES[0]]
    runs[0].step_time_s[0] *= 4.0
    assert fit(runs, start, NAMES[:1]).values[NAMES[0]] == pytest.approx(healthy, rel=0.05)
