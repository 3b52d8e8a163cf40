"""The closed forms of pipeline schedules against discrete replay, on random legal layouts of real models.

Replay uses only each rank's order of tasks, block times and transfer latency; the closed form is what a search uses.
Prints, by schedule and split, how far step times are apart, and whether in-flight activations agree exactly.

    python benchmarks/replay.py [--layouts 1000] [--seed 11]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from meshwright import catalog
from meshwright.costmodel import evaluate, pipeline_times
from meshwright.costmodel.schedule import schedules
from meshwright.costmodel.stages import layers_per_stage
from meshwright.formula import Ledger
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from meshwright.timeline.replay import replay

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.costmodel.layouts import CLUSTERS, job, legal_layouts


@dataclass(slots=True)
class Row:
    """Errors of one kind of pipeline."""

    errors: list[float] = field(default_factory=list)
    in_flight_agrees: int = 0


def random_cases(rng: np.random.Generator) -> Iterator[tuple[TrainingJob, Cluster, Layout]]:
    """Random layouts with a pipeline, a few of each random job."""
    while True:
        cluster = catalog.cluster(str(rng.choice(CLUSTERS)))[0]
        of = job(rng, cluster)
        layouts = legal_layouts(rng, of, cluster, 60)
        for i in rng.permutation(np.flatnonzero(layouts.pp > 1))[:8]:
            yield of, cluster, layouts.row(int(i))


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--layouts", type=int, default=1000)
    options.add_argument("--seed", type=int, default=11)
    chosen = options.parse_args()
    constants = catalog.constants()
    table: dict[tuple[str, str], Row] = {}
    cases = random_cases(np.random.default_rng(chosen.seed))
    for _index in range(chosen.layouts):
        of, cluster, layout = next(cases)
        ledger = Ledger()
        step_s = float(evaluate(of, cluster, LayoutBatch.of([layout]), constants, ledger).step_time_s[0])
        closed_s = float(ledger.find("step_time_s")[0].arguments["pipeline_s"][0])
        replayed = replay(pipeline_times(of, cluster, layout, constants))
        stages = layers_per_stage(layout.stage_split, of.model.n_layers, layout.pp, layout.vpp) or ()
        row = table.setdefault((layout.schedule, "even" if len(set(stages)) == 1 else "uneven"), Row())
        row.errors.append(abs(step_s / (step_s - closed_s + replayed.step_time_s) - 1.0))
        m = of.global_batch // (layout.dp * layout.micro_batch)
        expected = schedules()[layout.schedule].in_flight(layout.pp, layout.vpp, m, np.arange(layout.pp))
        row.in_flight_agrees += int(np.array_equal(replayed.peak_in_flight, expected))
    print(f"{'schedule':<14}{'split':<8}{'layouts':>8}{'median %':>10}{'99th %':>9}{'max %':>9}{'in flight exact':>17}")
    for (schedule, split), row in sorted(table.items()):
        median, high, highest = np.quantile(row.errors, [0.5, 0.99, 1.0]) * 100
        print(
            f"{schedule:<14}{split:<8}{len(row.errors):>8}{median:>10.4f}{high:>9.4f}{highest:>9.4f}"
            f"{row.in_flight_agrees:>10} of {len(row.errors)}"
        )


if __name__ == "__main__":
    main()
