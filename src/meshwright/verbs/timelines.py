"""The timeline of one predicted step, for people to look at in Perfetto."""

from __future__ import annotations

from pathlib import Path

from meshwright.costmodel import pipeline_times
from meshwright.plan.change import Case
from meshwright.specs.constants import Constants
from meshwright.specs.estimate import Estimate
from meshwright.specs.timeline import Timeline
from meshwright.timeline.perfetto import write
from meshwright.timeline.replay import replay
from meshwright.timeline.step import StepLabels, step_timeline

#: PyTorch's names of the number formats.
_DTYPES = {"bf16": "BFloat16", "fp16": "Half", "fp32": "Float"}
#: What happens after the pipeline has drained, in this order.
_AFTER = ("dp_comm", "contention", "optimizer", "data", "checkpoint", "straggler")


def write_timeline(case: Case, constants: Constants, estimate: Estimate, path: Path) -> None:
    """Write one step of ``case``, replayed task by task, to ``path``."""
    write(timeline_of(case, constants, estimate), path)


def timeline_of(case: Case, constants: Constants, estimate: Estimate) -> Timeline:
    """One step of ``case`` replayed task by task; its end is the step time of ``estimate``."""
    times = pipeline_times(case.job, case.cluster, case.layout, constants)
    after = {term: estimate.breakdown_s[term] for term in _AFTER}
    # What the replay does not hold and no term above says: the ends' exchange of a tied embedding's gradients.
    rest = estimate.step_time_s - replay(times).step_time_s - sum(after.values())
    after = {"pp_comm": rest if rest > 1e-9 * estimate.step_time_s else 0.0} | after
    return step_timeline(times, {term: value for term, value in after.items() if value}, labels=_labels(case, estimate))


def _labels(case: Case, estimate: Estimate) -> StepLabels:
    job, layout = case.job, case.layout
    return StepLabels(
        ranks=tuple(f"pp {rank}" for rank in range(layout.pp)),
        device=case.cluster.gpu.name,
        dtype=_DTYPES[job.wide_dtype],
        send_elements=layout.micro_batch * job.seq_len * job.model.hidden_size // layout.tp,
        gradient_elements=int(estimate.memory.by["gradients"] / job.grad_bytes),
        gradient_collective="_reduce_scatter_base" if layout.zero_stage else "allreduce",
        data_parallel=layout.dp,
    )
