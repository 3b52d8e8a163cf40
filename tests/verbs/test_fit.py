"""Fit: the limits are those that trying everything finds, and the commands it names show them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshwright import catalog
from meshwright.costmodel import evaluate
from meshwright.costmodel.parameters import parameter_count
from meshwright.errors import InputError
from meshwright.plan.resize import counts
from meshwright.plan.space import lawful, space
from meshwright.specs.fit import FitReport, Limit
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.report import Progress
from meshwright.specs.request import FitRequest
from meshwright.verbs.fit import fit
from meshwright.verbs.points import sized
from meshwright.verbs.resolve import Resolved, layout_values, resolve

#: Small enough to try everything: a yes, a no, a layout that was said, learned positions.
REQUESTS: dict[str, dict[str, Any]] = {
    "yes": {"model": "llama-2-7b", "cluster": "8xA100-40GB", "global_batch": 64},
    "cramped": {"model": "llama-3.1-8b", "cluster": "8x4090", "global_batch": 16, "seq_len": 8192},
    "no": {"model": "llama-2-13b", "cluster": "2x4090", "global_batch": 32},
    "layout": {"model": "gpt3-2.7b", "cluster": "4xA100-80GB", "global_batch": 32, "layout": "tp=2,pp=1"},
    "learned": {"model": "gpt2-xl", "cluster": "8x4090", "global_batch": 64},
}


@pytest.fixture(scope="module", params=REQUESTS)
def answered(request: pytest.FixtureRequest) -> tuple[FitRequest, Resolved, FitReport]:
    asked = FitRequest(**REQUESTS[request.param])
    return asked, resolve(asked), fit(asked)


def _limit(report: FitReport, name: str) -> Limit:
    return next(each for each in report.limits if each.name == name)


def _fits(job: TrainingJob, cluster: Cluster, asked: FitRequest, *, pinned: bool = True) -> bool | None:
    """Whether any layout of the whole space fits with room to spare, by the whole cost model; None: none is legal."""
    fix = layout_values(asked.layout) if asked.layout and pinned else {}
    try:
        whole = space(job, cluster, fix)
    except InputError:
        return None
    if not len(whole):
        return None
    rows = whole.rows(0, len(whole))
    return bool((evaluate(job, cluster, rows, catalog.constants()).fits == 2).any())


def test_the_verdict_is_that_of_the_best_layout(answered: tuple[FitRequest, Resolved, FitReport]) -> None:
    asked, resolved, report = answered
    whole = space(resolved.job, resolved.cluster, layout_values(asked.layout) if asked.layout else {})
    estimates = evaluate(resolved.job, resolved.cluster, whole.rows(0, len(whole)), catalog.constants())
    assert report.fits == ("no", "tight", "yes")[int(estimates.fits.max())]
    assert report.least_memory is not None
    least = float(estimates.peak_allocated_bytes.min())
    assert report.least_memory.memory.peak_allocated_bytes == pytest.approx(least)
    if report.fits == "no":
        assert report.misses_bytes == pytest.approx(least - estimates.capacity_bytes)
        assert report.verdict.startswith("No: ")
        assert f"{(least - estimates.capacity_bytes) / 2**30:.1f} GiB" in report.verdict
    else:
        assert report.fastest is not None
        best = float(estimates.step_time_s[estimates.fits == estimates.fits.max()].min())
        assert report.fastest.step_time_s == pytest.approx(best)


@pytest.mark.slow
def test_largest_micro_batch_by_trying_every_size(answered: tuple[FitRequest, Resolved, FitReport]) -> None:
    _asked, resolved, report = answered
    assert report.micro_batches
    for each in report.micro_batches:
        steps = resolved.job.global_batch // (each.layout.dp * each.layout.micro_batch)
        largest = None
        for size in range(1, (each.largest_micro_batch or 0) + 20):
            job = resolved.job.model_copy(update={"global_batch": each.layout.dp * steps * size})
            row = LayoutBatch.of([each.layout.model_copy(update={"micro_batch": size})])
            if not lawful(job, resolved.cluster, row)[0].all():
                break
            if evaluate(job, resolved.cluster, row, catalog.constants()).fits[0] == 2:
                largest = size
        assert each.largest_micro_batch == largest
        share = resolved.job.global_batch // each.layout.dp
        dividing = [n for n in range(1, share + 1) if share % n == 0]
        rows = LayoutBatch.of([each.layout.model_copy(update={"micro_batch": n}) for n in dividing])
        legal = lawful(resolved.job, resolved.cluster, rows)[0]
        fits = evaluate(resolved.job, resolved.cluster, rows.take(legal), catalog.constants()).fits == 2
        sizes = np.array(dividing)[legal][fits]
        assert each.dividing_micro_batch == (int(sizes[-1]) if len(sizes) else None)
        if each.estimate is not None:
            assert each.estimate.layout.micro_batch == each.dividing_micro_batch
            assert each.estimate.memory.fits == "yes"


def test_longest_sequence_by_trying_around_it(answered: tuple[FitRequest, Resolved, FitReport]) -> None:
    asked, resolved, report = answered
    limit = _limit(report, "longest_sequence")

    def fits(length: int) -> bool:
        return bool(_fits(resolved.job.model_copy(update={"seq_len": length}), resolved.cluster, asked))

    if limit.value is None:
        assert not any(fits(length) for length in (128, 512, 1024))
        return
    step = 1024 if limit.value >= 1024 else 128
    assert limit.value % step == 0
    # Every whole step up to it fits; the next four do not, except where the model's positions end.
    some = sorted({step, limit.value // 2 // step * step or step, limit.value})
    assert all(fits(length) for length in some)
    if limit.at_end:
        assert resolved.job.model.prologue[0].options["position_embeddings"] == limit.value
    else:
        assert not any(fits(limit.value + n * step) for n in range(1, 5))
    assert limit.layout is not None
    job = resolved.job.model_copy(update={"seq_len": limit.value})
    row = LayoutBatch.of([limit.layout])
    assert evaluate(job, resolved.cluster, row, catalog.constants()).fits[0] == 2


def test_largest_model_by_trying_the_family(answered: tuple[FitRequest, Resolved, FitReport]) -> None:
    asked, resolved, report = answered
    limit = _limit(report, "largest_model")
    own = resolved.job.model
    sizes = []
    for name in catalog.names("model"):
        model = catalog.model(name)
        if model.family != own.family or model.max_position_embeddings < min(
            resolved.job.seq_len, own.max_position_embeddings
        ):
            continue
        job = resolved.job.model_copy(update={"model": model})
        if _fits(job, resolved.cluster, asked, pinned=False):
            sizes.append(parameter_count(model))
    assert limit.value == max(sizes, default=None)
    if report.fits == "yes":
        assert limit.value is not None
        assert limit.value >= parameter_count(own)


def test_fewest_gpus_by_trying_every_count(answered: tuple[FitRequest, Resolved, FitReport]) -> None:
    asked, resolved, report = answered
    limit = _limit(report, "fewest_gpus")
    assert limit.value is not None
    for n_gpus in counts(resolved.cluster):
        place = sized(asked, resolved, n_gpus)
        if _fits(place.job, place.cluster, asked):
            assert limit.value == n_gpus
            break


def test_the_commands_show_the_limits() -> None:
    report = fit(FitRequest(**REQUESTS["yes"]))
    longest = _limit(report, "longest_sequence")
    assert longest.command is not None
    words = shlex.split(longest.command)
    assert words[:2] == ["mw", "fit"]
    again = fit(FitRequest(model=words[2], cluster="8xA100-40GB", global_batch=64, seq_len=longest.value))
    assert again.fits == "yes"
    assert _limit(again, "longest_sequence").value == longest.value


def test_a_tight_job_says_so() -> None:
    # Two 80 GB cards hold Llama-3.1-8B by their allocated peak only.
    report = fit(FitRequest(model="llama-3.1-8b", cluster="2xH100", seq_len=8192, global_batch=512))
    assert report.fits == "tight"
    assert report.verdict.startswith("Only tightly: ")
    assert _limit(report, "fewest_gpus").value == 4


def test_max_memory_lowers_the_limits() -> None:
    whole = fit(FitRequest(**REQUESTS["yes"]))
    less = fit(FitRequest(**REQUESTS["yes"], max_memory="30 GiB"))
    assert (_limit(less, "longest_sequence").value or 0) < (_limit(whole, "longest_sequence").value or 0)
    assert less.fastest is not None
    assert less.fastest.memory.peak_reserved_bytes <= 30 * 2**30


@pytest.mark.slow
def test_a_layout_that_no_count_has_is_refused_as_no_fit() -> None:
    report = fit(FitRequest(model="gpt2", cluster="8xA100-80GB", layout="tp=3"))
    assert report.fits == "no"
    assert report.why_none is not None
    assert "gpus_match" in report.why_none


def test_an_interrupt_keeps_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "fit.json"

    def press(state: Progress) -> None:
        # After the search and the first few questions about sequences.
        if state.visited > 6000:
            raise KeyboardInterrupt

    report = fit(FitRequest(**REQUESTS["yes"], out=path), press)
    assert report.interrupted
    assert report.fits == "yes"
    assert report.micro_batches
    assert len(report.limits) < 3
    assert json.loads(path.read_text(encoding="utf-8"))["schema"] == "meshwright/fit/1"
