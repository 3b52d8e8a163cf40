"""Intervals widen away from validated ground and with the share of uncertain terms."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel.interval import log_sd, off_ground, off_ground_variance
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch

CONSTANTS = catalog.constants()


def test_ground_that_no_row_validated_adds_variance() -> None:
    model = catalog.model("megatron-39.1b")
    quiet = {"overlap_grad_reduce": False, "overlap_param_gather": False}
    seen = TrainingJob(model=model, seq_len=2048, global_batch=512, precision="fp16", attention="unfused", **quiet)

    def variance(text: str, schedule: str = "1f1b", pp: int = 2, **changes: object) -> float:
        rows = LayoutBatch.of([Layout(schedule=schedule, pp=pp)])
        cluster = catalog.cluster(text)[0]
        off = off_ground(seen.model_copy(update=changes), cluster, rows, CONSTANTS)
        return float(off_ground_variance(off, cluster, 1, CONSTANTS)[0])

    assert variance("64x8 A100-80GB, 4x200Gb IB") == 0.0
    assert variance("64x8 H100") > 0.0
    assert variance("64x8 A100-80GB", attention="flash") > 0.0
    assert variance("64x8 A100-80GB", overlap_grad_reduce=True) > 0.0
    assert variance("64x8 A100-80GB, 4x100Gb OPA") > 0.0
    assert variance("64x8 A100-80GB", schedule="interleaved") > 0.0
    assert variance("64x8 A100-80GB", schedule="zb-h1", pp=1) == 0.0
    assert variance("512x8 A100-80GB") > variance("128x8 A100-80GB") > 0.0


def test_uncertain_terms_widen() -> None:
    time = np.array([10.0, 10.0])
    quiet = dict.fromkeys(("launch", "tp_comm", "dp_comm", "pp_comm"), np.array([0.0, 0.0]))
    loud = quiet | {"launch": np.array([0.0, 5.0])}
    base, wide = log_sd(time, loud, np.zeros(2), CONSTANTS)
    assert base == pytest.approx(CONSTANTS.interval.base_sd)
    assert wide == pytest.approx(np.hypot(CONSTANTS.interval.base_sd, 0.5 * CONSTANTS.interval.launch_sd))
