"""The closed forms of pipeline schedules against discrete replay, on real models and on pipelines that no model has.

Replay uses only each rank's order of tasks, block times and transfer latency; the closed form is what a search uses.
Prints, by schedule and split, how far step times are apart, and whether in-flight activations agree exactly: first for
random legal layouts of real models, then for random pipelines (any mix of stage times, hops up to 20 % of a stage).

    python benchmarks/replay.py [--layouts 1000] [--pipelines 400] [--seed 11] [--schedules 1f1b zb-h1 ...]
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
from meshwright.timeline.replay import Replay, replay

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.costmodel.layouts import CLUSTERS, job, legal_layouts
from tests.costmodel.schedule.pipelines import (
    Pipeline,
    as_schedule,
    closed_form_s,
    random_interleaved,
    random_rows,
    random_v,
    times,
)


@dataclass(slots=True)
class Row:
    """Errors of one kind of pipeline."""

    errors: list[float] = field(default_factory=list)
    in_flight_agrees: int = 0


Table = dict[tuple[str, str], Row]


def random_cases(rng: np.random.Generator, names: list[str]) -> Iterator[tuple[TrainingJob, Cluster, Layout]]:
    """Random layouts with a pipeline, a few of each random job, under any of the schedules that suits them."""
    while True:
        cluster = catalog.cluster(str(rng.choice(CLUSTERS)))[0]
        of = job(rng, cluster)
        layouts = legal_layouts(rng, of, cluster, 60)
        for i in rng.permutation(np.flatnonzero(layouts.pp > 1))[:8]:
            layout = layouts.row(int(i))
            m = of.global_batch // (layout.dp * layout.micro_batch)
            suits = [name for name in names if schedules()[name].legal(layout.pp, layout.vpp, m).all()]
            if suits:
                yield of, cluster, layout.model_copy(update={"schedule": str(rng.choice(suits))})


def real_models(rng: np.random.Generator, n_layouts: int, names: list[str]) -> Table:
    """Errors of the step time of ``n_layouts`` layouts, everything outside the pipeline included."""
    constants = catalog.constants()
    table: Table = {}
    cases = random_cases(rng, names)
    for _index in range(n_layouts):
        of, cluster, layout = next(cases)
        ledger = Ledger()
        step_s = float(evaluate(of, cluster, LayoutBatch.of([layout]), constants, ledger).step_time_s[0])
        closed_s = float(ledger.find("step_time_s")[0].arguments["pipeline_s"][0])
        replayed = replay(pipeline_times(of, cluster, layout, constants))
        stages = layers_per_stage(layout.stage_split, of.model.n_layers, layout.pp, layout.vpp) or ()
        row = table.setdefault((layout.schedule, "even" if len(set(stages)) == 1 else "uneven"), Row())
        row.errors.append(abs(step_s / (step_s - closed_s + replayed.step_time_s) - 1.0))
        m = of.global_batch // (layout.dp * layout.micro_batch)
        row.in_flight_agrees += in_flight_agrees(layout.schedule, layout.pp, layout.vpp, m, replayed)
    return table


def random_pipelines(seed: int, n: int, names: list[str]) -> Table:
    """Errors of the pipeline time of ``n`` rows of each schedule and split."""
    table: Table = {}
    for name in names:
        for split in ("even", "uneven"):
            rows = pipelines(name, seed, n, uneven=split == "uneven")
            if not rows:
                continue
            runs = [replay(times(row)) for row in rows]
            error = np.abs(closed_form_s(rows) / np.array([run.step_time_s for run in runs]) - 1.0)
            agree = (
                in_flight_agrees(name, row.pp, row.vpp, row.n_micro_batches, run)
                for row, run in zip(rows, runs, strict=True)
            )
            table[name, split] = Row(error.tolist(), sum(agree))
    return table


def pipelines(name: str, seed: int, n: int, *, uneven: bool) -> list[Pipeline]:
    """Random rows of one schedule; none of one that is not ours."""
    if name == "interleaved":
        return random_interleaved(seed, n, ends_hold_fewer=uneven)
    if name in ("zb-v", "dualpipe", "dualpipev"):
        return random_v(name, seed, n, uneven=uneven)
    if name in ("1f1b", "gpipe", "zb-h1"):
        return as_schedule(random_rows(seed, n, uneven=uneven), name, seed)
    return []


def in_flight_agrees(schedule: str, pp: int, vpp: int, m: int, run: Replay) -> bool:
    """Whether the closed form counts what replay counted, on every rank."""
    return np.array_equal(run.peak_in_flight, schedules()[schedule].in_flight(pp, vpp, m, np.arange(pp)))


def show(title: str, table: Table) -> None:
    """Print one table."""
    print(title)
    print(f"{'schedule':<14}{'split':<8}{'rows':>8}{'median %':>10}{'99th %':>9}{'max %':>9}{'in flight exact':>17}")
    for (schedule, split), row in sorted(table.items()):
        median, high, highest = np.quantile(row.errors, [0.5, 0.99, 1.0]) * 100
        print(
            f"{schedule:<14}{split:<8}{len(row.errors):>8}{median:>10.4f}{high:>9.4f}{highest:>9.4f}"
            f"{row.in_flight_agrees:>10} of {len(row.errors)}"
        )


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--layouts", type=int, default=1000)
    options.add_argument("--pipelines", type=int, default=400)
    options.add_argument("--seed", type=int, default=11)
    options.add_argument("--schedules", nargs="+", choices=sorted(schedules()), default=sorted(schedules()))
    chosen = options.parse_args()
    show("Layouts of real models", real_models(np.random.default_rng(chosen.seed), chosen.layouts, chosen.schedules))
    show("Random pipelines", random_pipelines(chosen.seed, chosen.pipelines, chosen.schedules))


if __name__ == "__main__":
    main()
