"""Write the tables of docs/accuracy.md from the model itself, so that the page cannot claim what does not hold.

    python tools/accuracy_page.py ../shared/data/vtrain_a100.csv [--check]

``--check`` exits 1 where the page is out of date.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from meshwright import catalog
from meshwright.costmodel.parameters import forward_flops_per_sequence
from meshwright.specs.estimate import Estimate
from meshwright.specs.job import TrainingJob
from meshwright.specs.report import ErrorGroup
from meshwright.specs.request import EstimateRequest, PlanRequest
from meshwright.verbs.estimate import estimate
from meshwright.verbs.plan import plan
from meshwright.verbs.validate import validate

GIB = 2**30
PAGE = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"


#: What a published run says of its job, as the verbs take it.
_ASKED = ("model", "cluster", "seq_len", "global_batch", "precision", "set")


@dataclass(frozen=True)
class PublishedRun:
    """A run that no constant was fitted to: what was published, ``step_time_s`` from it, and how a user asks for it.

    Without a ``layout`` the best that a search finds stands for the one that was not published.
    """

    name: str
    source: str
    published: str
    step_time_s: float
    model: str
    cluster: str
    seq_len: int
    global_batch: int
    layout: str | None
    precision: str = "bf16"
    set: tuple[str, ...] = ()

    def predicted(self) -> Estimate:
        """What the cost model says of it, through the verbs."""
        asked = {name: getattr(self, name) for name in _ASKED}
        if self.layout is not None:
            return estimate(EstimateRequest(**asked, layout=self.layout)).estimate
        found = plan(PlanRequest(**asked))
        return found.layouts[found.chosen]


def llama_405b(n_gpus: int, dp: int, cp: int, seq_len: int, flops_per_s: float, vpp: int = 2) -> PublishedRun:
    """A row of arXiv 2407.21783, table 4: 16 M tokens a step; its FLOPs count the full square of attention.

    Order of the axes, all-gather for CP, gathered weights kept, fewer layers at both ends: sections 3.3.1 and 3.3.2.
    """
    batch = 2**24 // seq_len
    job = TrainingJob(model=catalog.model("llama-3.1-405b"), seq_len=seq_len, global_batch=batch)
    flops = 3.0 * batch * forward_flops_per_sequence(job, causal=False)
    degrees = f"dp={dp},tp=8,cp={cp},pp=16,vpp={vpp},schedule={'interleaved' if vpp > 1 else '1f1b'}"
    return PublishedRun(
        f"Llama-3.1-405B, {n_gpus:,} H100, TP8 CP{cp} PP16 DP{dp}, {seq_len:,} tokens a sequence",
        "arXiv 2407.21783",
        f"{flops_per_s / 1e12:.0f} TFLOP/s a GPU",
        flops / (n_gpus * flops_per_s),
        "llama-3.1-405b",
        f"{n_gpus // 8}x8 H100, 8x400Gb RoCE",
        seq_len,
        batch,
        f"{degrees},sp=true,cp_kind=allgather,stage_split=ends,rank_order=tp-cp-pp-dp,micro_batch=1,"
        "zero_stage=3,reshard_after_forward=false",
    )


#: Arguments of ``llama_405b``.
LLAMA_405B = ((8192, 64, 1, 8192, 430e12), (16384, 128, 1, 8192, 400e12), (16384, 8, 16, 131072, 380e12))


def published_runs() -> dict[str, PublishedRun]:
    """The runs of the page, in its order."""
    return {
        "bloom": PublishedRun(
            "BLOOM-176B, 384 A100-80GB, TP4 PP12 DP8",
            "arXiv 2211.05100",
            "105 s a step",
            105.0,
            "bloom-176b",
            "48x8 A100-80GB, 4x100Gb OPA",
            2048,
            2048,
            "tp=4,pp=12,dp=8,micro_batch=2,recompute=full",
        ),
        "llama-65b": PublishedRun(
            "LLaMA-65B, 2,048 A100-80GB, layout not published",
            "arXiv 2302.13971",
            "380 tokens/s a GPU",
            2048 / 380,
            "llama-65b",
            "256x8 A100-80GB",
            2048,
            2048,
            None,
        ),
        **{f"llama-405b-{row}": llama_405b(*arguments) for row, arguments in enumerate(LLAMA_405B, 1)},
        "deepseek-v3": PublishedRun(
            "DeepSeek-V3, 2,048 H800, PP16 EP64 DP128, DualPipe, FP8",
            "arXiv 2412.19437",
            "1,540 tokens/s a GPU",
            15360 * 4096 / (2048 * 1540),
            "deepseek-v3",
            "256x8 H800",
            4096,
            15360,
            "dp=128,pp=16,ep=64,schedule=dualpipe,zero_stage=1,micro_batch=1,dispatcher=deepep,recompute=norm+mla_up",
            "fp8",
            ("job.moment_dtype=bf16",),
        ),
    }


def published_table() -> str:
    """Published step times beside predicted ones, and the memory that the model says the run takes."""
    rows = [
        "| run | source | published | as s a step | predicted s (80 %) | error % | memory GiB, of |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in published_runs().values():
        found = run.predicted()
        low_s, high_s = found.step_time_interval_s
        rows.append(
            f"| {run.name} | {run.source} | {run.published} | {run.step_time_s:.2f} "
            f"| {found.step_time_s:.2f} ({low_s:.2f}-{high_s:.2f}) "
            f"| {_percent(found.step_time_s / run.step_time_s - 1, signed=True)} "
            f"| {found.memory.peak_reserved_bytes / GIB:.1f}, {found.memory.capacity_bytes / GIB:.1f} |"
        )
    return "\n".join(rows)


def chunks_table() -> str:
    """How the Llama-3.1-405B rows depend on the model chunks a rank, which the paper does not print."""
    heads = [f"{n_gpus:,} GPUs, CP{cp}" for n_gpus, _dp, cp, *_ in LLAMA_405B]
    rows = [f"| vpp | {' | '.join(heads)} |", "|---|---|---|---|"]
    for vpp in (1, 2, 4, 8):
        runs = [llama_405b(*arguments, vpp=vpp) for arguments in LLAMA_405B]
        errors = [_percent(run.predicted().step_time_s / run.step_time_s - 1, signed=True) for run in runs]
        rows.append(f"| {vpp} | {' | '.join(errors)} |")
    return "\n".join(rows)


def _percent(value: float | None, *, signed: bool = False) -> str:
    return "" if value is None else f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"


def _group(group: ErrorGroup) -> str:
    cells = (
        group.name,
        str(group.rows),
        str(group.scored),
        _percent(group.median_error_ratio),
        _percent(group.p90_error_ratio),
        _percent(group.bias_ratio, signed=True),
        _percent(group.interval_coverage_ratio),
    )
    return f"| {' | '.join(cells)} |"


def vtrain_table(file: Path) -> str:
    """Errors on the measured runs of ``file`` by group."""
    found = validate("vtrain", file)
    head = "| group | rows | scored | median error % | 90th percentile % | bias % | inside the 80 % interval % |"
    rows = [_group(group) for group in (*found.groups, found.overall)]
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def constants_table() -> str:
    """The fitted constants with prior, value and standard error."""
    rows = ["| constant | unit | prior | value | standard error | pinned down by |", "|---|---|---|---|---|---|"]
    for name, constant in catalog.constants().by_name.items():
        if constant.label == "fitted":
            error = "" if constant.standard_error_ratio is None else f"{100 * constant.standard_error_ratio:.0f} %"
            prior = f"{constant.prior:.4g} (± {100 * constant.prior_sd_ratio:.0f} %)"
            rows.append(
                f"| `{name}` | {constant.unit} | {prior} | {constant.value:.4g} | {error} | {constant.identified_by} |"
            )
    return "\n".join(rows)


def page(text: str, tables: dict[str, str]) -> str:
    """``text`` with each table between its marks replaced by the present one."""
    for name, table in tables.items():
        begin, end = f"<!-- {name}: written by tools/accuracy_page.py -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin, 1)
        text = f"{before}{begin}\n\n{table}\n\n{end}{rest.split(end, 1)[1]}"
    return text


def main(arguments: list[str]) -> int:
    """Write the page, or compare it with ``--check``."""
    file = Path(next(argument for argument in arguments if not argument.startswith("--")))
    old = PAGE.read_text(encoding="utf-8")
    tables = {
        "vtrain": vtrain_table(file),
        "published": published_table(),
        "chunks": chunks_table(),
        "constants": constants_table(),
    }
    new = page(old, tables)
    if "--check" in arguments:
        return int(old != new)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
