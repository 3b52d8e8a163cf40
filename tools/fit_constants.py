"""Fit the physical constants to measured runs and write them, with intervals from left-out groups, into the catalog.

    python tools/fit_constants.py ../shared/data/vtrain_a100.csv

Only constants labelled "fitted" move; each is pulled to its prior. The [interval] table is fitted to the residuals of
groups (all runs on one number of GPUs) that were left out of a fit in turn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tomlkit
from scipy.optimize import nnls

from meshwright import catalog
from meshwright.calibrate.fit import Fit, Measured, fit
from meshwright.costmodel import evaluate
from meshwright.costmodel.interval import Z_80
from meshwright.specs.constants import Constants
from meshwright.specs.layout import LayoutBatch
from meshwright.verbs.measured import vtrain

FloatArray = npt.NDArray[np.float64]
CONSTANTS_FILE = Path(__file__).parents[1] / "src/meshwright/catalog/constants/default.toml"
#: Log-residuals are clipped here when widths are fitted: a sick run must not widen every prediction.
CLIP = 0.3


def measured_runs(path: Path) -> list[Measured]:
    """Trust-A rows of ``path`` by job, grouped by their number of GPUs."""
    cases = [case for case in vtrain(path) if case.trust == "A" and case.job is not None]
    found: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        assert case.job is not None
        assert case.cluster is not None
        found.setdefault(f"{case.job.model_dump_json()} {case.cluster.n_gpus}", []).append(index)
    runs = []
    for members in found.values():
        job, cluster = cases[members[0]].job, cases[members[0]].cluster
        assert job is not None
        assert cluster is not None
        layouts = LayoutBatch.of([layout for i in members if (layout := cases[i].layout) is not None])
        times = np.array([cases[i].measured_s for i in members], float)
        runs.append(Measured(job, cluster, layouts, times, f"{cluster.n_gpus} GPUs"))
    return runs


def interval_widths(runs: Sequence[Measured], constants: Constants, names: Sequence[str]) -> dict[str, float]:
    """Base, launch, TP and network standard deviations that cover 80 % of left-out rows, groups weighted equally."""
    residuals, shares, weights = [], [], []
    groups = sorted({run.group for run in runs})
    for group in groups:
        trained = constants.replace(fit([run for run in runs if run.group != group], constants, names).values)
        left_out = [run for run in runs if run.group == group]
        n_rows = sum(len(run.step_time_s) for run in left_out)
        for run in left_out:
            found = evaluate(run.job, run.cluster, run.layouts, trained)
            terms = found.breakdown_s
            residuals.append(np.log(found.step_time_s / run.step_time_s))
            shares.append(
                np.stack(
                    [
                        np.ones(len(run.layouts)),
                        *(
                            share / found.step_time_s
                            for share in (terms["launch"], terms["tp_comm"], terms["dp_comm"] + terms["pp_comm"])
                        ),
                    ],
                    axis=1,
                )
            )
            weights.append(np.full(len(run.layouts), 1.0 / n_rows))
        missed = np.abs(np.concatenate(residuals[-len(left_out) :]))
        print(
            f"{group} left out: |log error| median {np.median(missed):.3f}, 90 % within {np.quantile(missed, 0.9):.3f}"
        )
    error, share, weight = np.concatenate(residuals), np.concatenate(shares), np.concatenate(weights)
    variances, _rest = nnls(share**2 * np.sqrt(weight)[:, None], np.minimum(error**2, CLIP**2) * np.sqrt(weight))
    scaled = np.abs(error) / np.sqrt(share**2 @ variances)
    # One factor makes the weighted coverage of the left-out rows exactly 80 %.
    order = np.argsort(scaled)
    reached = np.cumsum(weight[order]) / weight.sum()
    factor = scaled[order][np.searchsorted(reached, 0.8)] / Z_80
    widths = dict(zip(("base_sd", "launch_sd", "tp_comm_sd", "network_sd"), np.sqrt(variances) * factor, strict=True))
    print(f"scaled by {factor:.3f} to cover 80 % of the left-out rows")
    return {name: round(float(value), 4) for name, value in widths.items()}


def write(result: Fit, widths: dict[str, float], rows: int) -> None:
    """Put the fitted values into the constants file, leaving everything else as it is."""
    document = tomlkit.parse(CONSTANTS_FILE.read_text(encoding="utf-8"))
    for name, value in result.values.items():
        table = document["constant"][name]
        table["value"] = float(f"{value:.6g}")
        table["standard_error_ratio"] = float(f"{result.standard_error_ratio[name]:.3g}")
    interval = document["interval"]
    for name, width in widths.items():
        interval[name] = width
    interval["source"] = (
        f"residuals of {rows} trust-A runs of vTrain (VIA-Research/vTrain), each number of GPUs left out in "
        "turn, scaled to cover 80 %; unseen_sd and per_doubling are judgement"
    )
    CONSTANTS_FILE.write_text(tomlkit.dumps(document), encoding="utf-8")


def main() -> None:
    """Fit, report, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="a file with the columns of vtrain_a100.csv")
    runs = measured_runs(parser.parse_args().file)
    constants = catalog.constants()
    names = [name for name, constant in constants.by_name.items() if constant.label == "fitted"]
    result = fit(runs, constants, names)
    for name in names:
        print(
            f"{name:42} {result.values[name]:12.5g}  prior {constants.by_name[name].prior:10.4g}"
            f"  standard error {result.standard_error_ratio[name]:.3f}",
            flush=True,
        )
    # The fits with a group left out start where the full one ended: their optima are near.
    widths = interval_widths(runs, constants.replace(result.values), names)
    write(result, widths, sum(len(run.step_time_s) for run in runs))


if __name__ == "__main__":
    main()
