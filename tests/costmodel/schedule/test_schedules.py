"""The registry: what lies in the directory is known, and one more file is too."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright.costmodel.pipeline import PipelineTimes
from meshwright.costmodel.schedule import schedules
from meshwright.timeline.replay import replay
from tests.costmodel.schedule.pipelines import Pipeline, times

BROUGHT = {"1f1b", "dualpipe", "dualpipev", "gpipe", "interleaved", "zb-h1", "zb-v"}

GPIPE = '''
"""All forwards, then all backwards (arXiv 1811.06965)."""
import numpy as np
from meshwright.costmodel.pipeline import Task

NAME = "all-forward"

def legal(pp, vpp, n_micro_batches):
    return np.asarray(vpp) == 1

def pipeline_time_s(profile):
    return (profile.n_micro_batches + profile.pp - 1) * (profile.forward_s + profile.backward_s).max(axis=1)

def in_flight(pp, vpp, n_micro_batches, rank):
    return np.asarray(n_micro_batches)

def order(rank, pp, vpp, n_micro_batches):
    tasks = [Task("forward", i, 0) for i in range(n_micro_batches)]
    return tasks + [Task("backward", i, 0) for i in range(n_micro_batches)]
'''


def test_what_the_package_brings() -> None:
    assert set(schedules()) == BROUGHT


def test_one_file_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "costmodel" / "schedule"
    folder.mkdir(parents=True)
    (folder / "all_forward.py").write_text(GPIPE, encoding="utf-8")
    monkeypatch.setenv("MESHWRIGHT_PATH", str(tmp_path))
    assert set(schedules()) == BROUGHT | {"all-forward"}
    row = times(Pipeline(4, 1, 6, (1.0,) * 4, (2.0,) * 4))
    run = replay(PipelineTimes("all-forward", 4, 1, 6, row.forward_s, row.backward_s, row.weight_s, 0.0))
    # GPipe has the bubble of 1F1B and holds every micro-batch.
    assert run.step_time_s == pytest.approx((6 + 3) * 3.0)
    assert run.peak_in_flight.tolist() == [6] * 4
