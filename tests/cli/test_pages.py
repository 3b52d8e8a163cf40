"""What the pages show: every line within 80 columns, aligned, scaled, in both languages."""

from __future__ import annotations

import io
import random
import re
from collections.abc import Iterator

import pytest
from rich.cells import cell_len
from rich.console import Console

from meshwright.cli import numbers
from meshwright.cli.bars import bar, print_breakdown, print_memory
from meshwright.cli.catalog import print_entry
from meshwright.cli.layouts import HEADERS, USUAL, in_common, print_layouts
from meshwright.cli.plan import print_next, print_plan
from meshwright.i18n import set_language
from meshwright.specs.estimate import BREAKDOWN_TERMS, MEMORY_CLASSES, Estimate, Memory
from meshwright.specs.layout import Layout
from meshwright.specs.plan import Assumed, Bought, Change, Condition, Plan, Runner
from meshwright.specs.report import CatalogField, CatalogListing

GIB = 2.0**30


@pytest.fixture(params=["en", "zh_CN"])
def language(request: pytest.FixtureRequest) -> Iterator[str]:
    set_language(request.param)
    yield request.param
    set_language("en")


def page(width: int = 80) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False), stream


def estimate(layout: Layout, *, seed: int = 0, scale_s: float = 6.0, fits: str = "yes") -> Estimate:
    """An estimate that keeps the contract: terms sum to the step, classes to the peak."""
    draw = random.Random(seed)
    weights = {term: draw.random() if draw.random() < 0.7 else 0.0 for term in BREAKDOWN_TERMS}
    weights["forward"] += 1.0
    total = sum(weights.values())
    by = {name: draw.random() * 10 * GIB for name in MEMORY_CLASSES}
    peak = sum(by.values())
    return Estimate.model_validate(
        {
            "layout": layout,
            "step_time_s": scale_s,
            "step_time_interval_s": (scale_s * 0.87, scale_s * 1.15),
            "tokens_per_s_per_gpu": 347.3,
            "mfu_ratio": 0.513,
            "hfu_ratio": 0.55,
            "breakdown_s": {term: scale_s * weight / total for term, weight in weights.items()},
            "memory": Memory.model_validate(
                {
                    "peak_allocated_bytes": peak,
                    "peak_reserved_bytes": peak * 1.06,
                    "host_bytes": 0.0,
                    "capacity_bytes": 80 * GIB,
                    "fits": fits,
                    "worst_pipeline_rank": 0,
                    "by_phase": {},
                    "by": by,
                }
            ),
        }
    )


LAYOUTS = (
    Layout(dp=1024, tp=8, pp=16, sp=True, micro_batch=16, recompute="selective", stage_split="ends", zero_stage=1),
    Layout(dp=2048, tp=4, pp=16, vpp=12, schedule="interleaved", micro_batch=1, recompute="full", zero_stage=0),
    Layout(dp=16384, tp=8, pp=1, sp=True, micro_batch=2, zero_stage=1),
)


def plan(**changed: object) -> Plan:
    estimates = tuple(estimate(layout, seed=i, scale_s=17.3 + i) for i, layout in enumerate(LAYOUTS))
    fields: dict[str, object] = {
        "model": {"name": "Llama-3.1-405B"},
        "cluster": {"text": "16384xH100-80GB-SXM, 8x400Gb InfiniBand, 2:1 oversubscribed"},
        "job": {"tokens": 15.6e12},
        "layouts": estimates,
        "chosen": 0,
        "feasible": True,
        "searched": 1_234_567,
        "rejected": {"batch_divides": 12_345_678, "tp_divides_heads": 99, "memory": 1_000_000},
        "pareto": (),
        "runners_up": (
            Runner(layout_index=1, slower_ratio=1.058, terms_s={"bubble": 0.9, "tp_comm": 0.2, "dp_comm": -0.1}),
            Runner(layout_index=2, slower_ratio=1.12, terms_s={"dp_comm": 2.0}),
        ),
        "assumed": {
            "nics_per_node": Assumed(
                name="nics_per_node",
                value=8,
                why="the usual number of adapters of this node; none was said",
                alternative=Change(path="cluster.nics_per_node", value=4),
                step_time_ratio=1.234,
            ),
            "overlap_param_gather": Assumed(
                name="overlap_param_gather",
                value=True,
                why="the usual setting of large runs",
                alternative=Change(path="job.overlap_param_gather", value=False),
                step_time_ratio=None,
            ),
        },
        "time_to_train_s": 54 * 86400.0,
        "time_to_train_interval_s": (47 * 86400.0, 62 * 86400.0),
        "needs": {
            "checkpoint_bytes": 5.67e12,
            "checkpoint_bytes_per_s": 102e9,
            "loader_tokens_per_s": 6.1e6,
            "host_bytes": 64e9,
            "power_w": 20.6e6,
        },
        "time_to_train_with_failures_s": {"p50": 58.3 * 86400.0, "p90": 58.6 * 86400.0},
        "cost_usd": 157.7e6,
        "energy_j": 9.1e13,
        "mean_power_w": 18.1e6,
        "price": {
            "usd_per_gpu_hour": 6.88,
            "provider": "AWS",
            "tier": "on-demand",
            "region": "us-east-1",
            "date": "2026-11-09",
        },
        "failures": {"checkpoint_interval_s": 240.0},
        "buys": (Bought(change=Change(path="cluster.nics_per_node", value=16), step_time_ratio=0.979),),
        "conditions": (
            Condition(
                name="deadline",
                limit=50 * 86400.0,
                value=58.3 * 86400.0,
                met=False,
                remedy=Change(path="cluster.n_nodes", value=2560),
            ),
            Condition(name="budget", limit=200e6, value=157.7e6, met=True),
        ),
        "remedies": (),
        "next_command": "mw estimate llama-3.1-405b --cluster '16384xH100, 8x400Gb IB' --seq-len 8192 "
        "--global-batch 2048 --layout dp=1024,tp=8,pp=16,micro_batch=16,recompute=selective,zero_stage=1,sp=true",
        "elapsed_s": 2.345,
        "first_incumbent_s": 0.1,
        "interrupted": False,
    }
    return Plan.model_validate(fields | changed)


def test_a_plan_stays_within_80_columns(language: str) -> None:
    console, stream = page()
    print_plan(console, plan())
    before, command = stream.getvalue().split("  mw estimate", 1)
    assert max(map(cell_len, before.splitlines())) <= 80
    assert "llama-3.1-405b" in command
    assert ("步" in before) == (language == "zh_CN")


def test_the_verdict_comes_first_and_holds_the_numbers() -> None:
    set_language("en")
    console, stream = page(width=400)
    print_plan(console, plan())
    verdict, training = stream.getvalue().splitlines()[:2]
    for text in ("Llama-3.1-405B", "16384xH100", "17.3 s a step", "80%: 15.1-19.9 s", "dp=1024 tp=8", "51% MFU", "347"):
        assert text in verdict
    assert "15.6T tokens take 54.0 days without failures (80%: 47.0-62.0 days), 58.3 days with them" in training
    assert "158M USD at 6.88 USD a GPU-hour (AWS, on-demand, 2026-11-09)" in training
    assert "25.3 GWh, 18.1 MW on average" in training
    text = stream.getvalue()
    assert "The deadline of 50.0 days is missed: the nearest is 58.3 days (+17%). cluster.n_nodes=2560 keeps it" in text
    assert "The budget of 200M USD is kept: 158M USD." in text
    assert "Checkpoints of 5.67 TB at 102 GB/s, best every 4.00 minutes" in text
    assert "Twice the adapters (16 a node): -2.1% a step." in text
    assert stream.getvalue().index("Why the others lose") > stream.getvalue().index("Where the 17.3 s go")


def test_runners_up_name_what_tells() -> None:
    set_language("en")
    console, stream = page(width=120)
    print_plan(console, plan())
    lines = [" ".join(line.split()) for line in stream.getvalue().splitlines() if re.match(r"#\d", line)]
    assert lines == [
        "#2 +5.8% pipeline bubble +0.90 s, tensor-parallel communication +0.20 s, data-parallel communication -0.10 s",
        "#3 +12.0% data-parallel communication +2.0 s",
    ]


def test_zero_terms_are_left_out_and_shares_add_up() -> None:
    set_language("en")
    shown = estimate(LAYOUTS[0], seed=3)
    console, stream = page()
    print_breakdown(console, shown)
    rows = {line.split()[0]: line for line in stream.getvalue().splitlines()[2:]}
    assert set(rows) == {term for term, value_s in shown.breakdown_s.items() if value_s > 0}
    shares = [float(line.rstrip("▏▎▍▌▋▊▉█ ").split()[-1].lstrip("<")) for line in rows.values()]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))
    longest = max(rows, key=lambda term: rows[term].count("█"))
    assert longest == max(shown.breakdown_s, key=lambda term: shown.breakdown_s[term])


def test_numbers_of_a_column_stand_below_each_other() -> None:
    set_language("en")
    console, stream = page()
    print_breakdown(console, estimate(LAYOUTS[0], seed=3))
    points = {line.index(".") for line in stream.getvalue().splitlines()[2:]}
    assert len(points) == 1


def test_memory_says_what_is_left() -> None:
    set_language("en")
    shown = estimate(LAYOUTS[0], seed=5)
    console, stream = page()
    print_memory(console, shown)
    text = stream.getvalue()
    free = (80 * GIB - shown.memory.peak_reserved_bytes) / GIB
    assert f"{shown.memory.peak_reserved_bytes / GIB:.1f} of 80.0 GiB" in text
    assert next(line for line in text.splitlines() if line.strip().startswith("free")).split()[1] == f"{free:.1f}"


def test_columns_in_which_all_agree_are_said_once(language: str) -> None:
    equal = [layout.model_copy(update={"zero_stage": 1, "sp": True}) for layout in LAYOUTS]
    assert in_common(equal) == "sp=true zero_stage=1"
    assert in_common(LAYOUTS) == ""
    console, stream = page()
    print_layouts(console, [estimate(layout) for layout in equal], 0, wide=False)
    header = stream.getvalue().splitlines()[0]
    assert "recomp" in header
    assert "sp" not in header.split()
    assert "sp=true zero_stage=1" in stream.getvalue()


def columns_shown(text: str) -> list[str]:
    """The header of a table up to the measures."""
    header = text.splitlines()[0].split()
    return header[1 : header.index("step")]


def test_wide_shows_every_unusual_column_even_where_all_agree() -> None:
    set_language("en")
    base = ["dp", "tp", "pp", "mb"]
    console, stream = page(width=160)
    print_layouts(console, [estimate(layout) for layout in LAYOUTS], 0, wide=True)
    assert columns_shown(stream.getvalue()) == [*base, "sp", "vpp", "schedule", "zero", "recomp", "split"]
    alike = Layout(dp=64, tp=8, sp=True, zero_stage=3, dp_replicate=8, ep=16, rank_order="tp-pp-dp-cp")
    console, stream = page(width=160)
    print_layouts(console, [estimate(alike)], 0, wide=True)
    assert columns_shown(stream.getvalue()) == [*base, "ep", "sp", "zero", "repl", "order"]
    assert len(stream.getvalue().splitlines()) == 3


def test_columns_without_room_are_said_below_the_table(language: str) -> None:
    varied = Layout(
        dp=64, tp=8, cp=4, cp_kind="allgather", pp=16, vpp=2, schedule="dualpipev", ep=16, etp=8, sp=True,
        zero_stage=3, dp_replicate=8, dispatcher="allgather", recompute="moe_activation+norm", micro_batch=16,
        offload_optimizer="cpu", stage_split="ends", rank_order="tp-pp-dp-cp",
    )  # fmt: skip
    layouts = (LAYOUTS[2], varied)
    console, stream = page()
    print_layouts(console, [estimate(layout) for layout in layouts], 0, wide=False)
    lines = stream.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert "…" not in stream.getvalue()
    below = " ".join(" ".join(lines[4:]).split())
    assert below.startswith("#2: ")
    shown = set(lines[0].split())
    for name, value in varied:
        header = HEADERS.get(name, name)
        if name in USUAL and value != USUAL[name]:
            assert (set(header.split()) <= shown) != (f"{name}={str(value).lower()}" in below), name


def test_what_no_measured_run_was_compared_with_is_said(language: str) -> None:
    known = estimate(LAYOUTS[0])
    console, stream = page()
    print_plan(console, plan(layouts=(known,), runners_up=()))
    reasons = {"en": "mixtures of experts, this precision.", "zh_CN": "混合专家"}[language]
    assert reasons not in " ".join(stream.getvalue().split())
    unknown = known.model_copy(update={"not_validated": ("experts", "precision")})
    console, stream = page()
    print_plan(console, plan(layouts=(unknown,), runners_up=()))
    assert reasons in " ".join(stream.getvalue().split())


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.1, 0.5, 0.999, 1.0, 2.0])
def test_a_bar_is_as_long_as_its_share(share: float) -> None:
    drawn = bar(share, 40)
    assert cell_len(drawn) == -(-round(min(share, 1.0) * 320) // 8) or (share == 1e-6 and cell_len(drawn) == 1)
    assert (drawn == "") == (share == 0)


def test_the_next_command_can_be_copied() -> None:
    command = (
        "mw estimate 'my model.toml' --cluster '48x8 A100-80GB, 4x100Gb OPA' --seq-len 2048 --global-batch 2048 "
        "--layout dp=12,tp=8,pp=4,micro_batch=1,recompute=full --overlap --tokens 1.4T"
    )
    console, stream = page()
    print_next(console, command)
    lines = stream.getvalue().split("\n", 2)[2]
    assert max(map(len, lines.splitlines())) <= 80
    assert " ".join(lines.replace("\\\n", " ").split()) == command


def test_addresses_are_never_cut() -> None:
    address = "https://example.org/" + "long/" * 30
    field = CatalogField(field="memory_bytes", text="80 GiB", source=f"A data sheet, 2021, {address}", label="vendor")
    console, stream = page()
    print_entry(console, CatalogListing(kind="gpu", name="X", rows=(), fields=(field, field)))
    assert address in stream.getvalue().split()
    assert stream.getvalue().count(address) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.5, "1,234"), (12.345, "12.3"), (0.012345, "0.0123"), (float("inf"), "-"), (-3.456, "-3.46")],
)
def test_digits(value: float, text: str) -> None:
    assert numbers.digits(value) == text


def test_what_is_small_is_not_shown_as_nothing() -> None:
    assert numbers.column([12.345, 0.001, 0.0]) == ["12.35", "<0.01", "0.00"]
    assert numbers.percent(0.0001, 1) == "<0.1"
    assert numbers.gib(1.0) == "<0.1"


def test_durations_use_one_unit() -> None:
    set_language("en")
    assert numbers.step(0.0421) == "42.1 ms"
    assert numbers.interval(0.9, 1.2) == "0.900-1.20 s"
    assert numbers.long_time(19.5 * 86400) == "19.5 days"
    assert numbers.long_time(40 * 3600.0) == "40.0 hours"
    assert numbers.long_time(40 * 3600.0, 60 * 3600.0) == "40.0-60.0 hours"
    assert numbers.change(1.0001) == "no change"
    assert numbers.change(0.873) == "-13%"
    assert numbers.count(1.4e12) == "1.4T"


def test_tight_layouts_are_called_what_they_are(language: str) -> None:
    tight = estimate(LAYOUTS[1], scale_s=12.0, fits="tight")
    console, stream = page()
    print_plan(console, plan(tight_faster=tight))
    text = " ".join(stream.getvalue().split())
    reserved = numbers.gib(tight.memory.peak_reserved_bytes)
    assert f"{reserved} of 80.0 GiB" in text or f"{reserved} / 80.0 GiB" in text
    assert "30.6%" in text
    assert max(map(cell_len, stream.getvalue().split("  mw estimate")[0].splitlines())) <= 80
    console, stream = page()
    print_plan(console, plan(layouts=(tight,), runners_up=()))
    verdict = " ".join(stream.getvalue().split())
    assert "to spare" not in verdict
    assert numbers.gib(tight.memory.peak_allocated_bytes) in verdict
