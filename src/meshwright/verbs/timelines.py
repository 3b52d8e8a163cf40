"""The timeline of one step, for people to look at in Perfetto."""

from __future__ import annotations

from pathlib import Path

from meshwright.costmodel import pipeline_times
from meshwright.plan.change import Case
from meshwright.specs.constants import Constants
from meshwright.timeline.perfetto import write
from meshwright.timeline.step import step_timeline


def write_timeline(case: Case, constants: Constants, path: Path) -> None:
    """Replay one step of ``case`` and write its timeline to ``path``."""
    write(step_timeline(pipeline_times(case.job, case.cluster, case.layout, constants)), path)
