"""The space that calculon searches for GPT-3 175B on 1,024 A100, in our columns, and calculon's own speed on it.

calculon (github.com/calculon-ai/calculon, Isaev et al., SC 2023) counts 6,985,920 executions in

    calculon llm-optimal-execution models/gpt3-175B.json 1024 1024 float16 systems/a100_80g.json OUT

(1,024 processors, batches of up to 1,024 sequences, two networks, a second tier of memory, fused activations). OPTIONS
maps each of its options to a column of ours or says why none is. Its own model is timed where MESHWRIGHT_CALCULON is
the path of a checkout and its requirements (pandas, psutil) can be imported.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright import catalog
from meshwright.costmodel import evaluate, legal, pipeline_times, score
from meshwright.costmodel.schedule import schedules
from meshwright.formula import Ledger
from meshwright.plan.search import CHUNK_ROWS, MEMORY_RULE, Found, budget_bytes, search
from meshwright.plan.space import Choices, divisors, space
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout, LayoutBatch
from meshwright.timeline.replay import replay

COUNTED = 6_985_920
CHECKOUT = "MESHWRIGHT_CALCULON"
CPU_BAR_S = 15.0
AIM_LAYOUTS_PER_S = 1_000_000
N_GPUS, GLOBAL_BATCH, SEQ_LEN, LAYERS, HEADS, HIDDEN = 1024, 1024, 2048, 96, 96, 12288

#: Each option of calculon's, its values, and what it is here.
OPTIONS = (
    ("tensor_par", "divisors of hidden size and heads", "tp"),
    ("pipeline_par", "divisors of the layers", "pp, stage_split=even"),
    ("data_par", "what is left", "dp"),
    ("pipeline_interleaving", "divisors of the layers a rank", "vpp, schedule (1f1b for 1, else interleaved)"),
    ("microbatch_size", "divisors of the batch a replica", "micro_batch"),
    ("activation_recompute", "full, attn_only, none", "recompute=full, selective, none"),
    ("optimizer_sharding", "true, false", "zero_stage=1, 0"),
    ("tensor_par_comm_type", "ar, rs_ag", "sp=false, true"),
    ("data_par_overlap", "true, false", "job: overlap_grad_reduce and overlap_param_gather (a search each)"),
    ("tensor_par_overlap", "none, ring", "job: tp_comm_overlap (of sp=true only, as in Megatron; a search each)"),
    ("optimizer_offload", "true, false", "offload_optimizer=cpu, none (cpu without ZeRO: illegal)"),
    ("*_par_net (three)", "network 0 or 1 for each axis", "rank_order: which axes lie inside a node follows from it"),
    ("tensor_par_comm_type", "p2p_rs_ag", "unmapped: pipeline hops of 1/tp are what every row here sends"),
    ("seq_par_ag_redo", "true, false", "unmapped: rows keep the cut input, as Megatron does"),
    ("tensor_par_overlap", "pipe", "unmapped: as ring; and without sp none at all"),
    ("weight_offload", "true, false", "unmapped: offload_parameters is of sharded weights (ZeRO-3) only"),
    ("activations_offload", "true, false", "unmapped: no column"),
)
#: Every order of the axes that calculon has; with one GPU on an axis several are the same.
ORDERS = ("tp-cp-dp-pp", "tp-cp-pp-dp", "dp-tp-cp-pp", "dp-pp-tp-cp", "pp-tp-cp-dp", "pp-dp-tp-cp")
FIX = {"cp": 1, "stage_split": "even"}
CHOICES = Choices(
    recompute_modules=("core_attention",), zero_stages=(0, 1), offloads=("none", "cpu"), rank_orders=ORDERS
)
#: Every column, schedule and order that our search knows, for the same job: more rows than calculon counts.
EVERYTHING = Choices(schedules=tuple(schedules()), offloads=("none", "cpu", "nvme"), rank_orders=ORDERS)


class Overlap(NamedTuple):
    """What runs beside the computation: data-parallel traffic, tensor-parallel traffic."""

    dp: bool
    tp: bool

    def fix(self, fixed: Mapping[str, Any]) -> dict[str, Any]:
        """What its search fixes: tensor-parallel traffic hides with sequence parallelism only."""
        return {**fixed, "sp": True} if self.tp else dict(fixed)


OVERLAPS = tuple(Overlap(dp, tp) for tp in (False, True) for dp in (True, False))


def nouns(overlap: Overlap) -> tuple[TrainingJob, Cluster]:
    """The job with such overlap, and the cluster."""
    job = TrainingJob(
        model=catalog.model("gpt3-175b"),
        seq_len=SEQ_LEN,
        global_batch=GLOBAL_BATCH,
        precision="fp16",
        overlap_grad_reduce=overlap.dp,
        overlap_param_gather=overlap.dp,
        tp_comm_overlap=overlap.tp,
    )
    return job, catalog.cluster("128x8 A100-80GB")[0]


class Cell(NamedTuple):
    """One turn of calculon's outer loops."""

    tp: int
    pp: int
    dp: int
    vpp: int
    micro_batch: int

    def executions(self) -> int:
        """What calculon counts for it: the product of its inner loops."""
        tp, pp, dp = self.tp > 1, self.pp > 1, self.dp > 1
        nets = 1 << (tp + pp + dp)
        # Full recomputation: three kinds of communication, no offload of activations. Else one kind comes twice.
        recompute = 3 + 2 * (4 * 2)
        sharding_and_overlap = 4 if dp else 1
        return recompute * sharding_and_overlap * (3 if tp else 1) * 2 * 2 * nets

    def ours(self) -> int:
        """Distinct rows of these in our columns, legal or not, over all jobs."""
        several = (self.tp > 1) + (self.pp > 1) + (self.dp > 1)
        # Without sequence parallelism, with it, with it and overlap.
        tensor, zero, overlap = 3 if self.tp > 1 else 1, 2 if self.dp > 1 else 1, 2 if self.dp > 1 else 1
        return 3 * tensor * zero * overlap * 2 * math.factorial(several)


def cells() -> Iterator[Cell]:
    """calculon's outer loops: degrees, interleaving and micro-batch."""
    for tp in divisors(N_GPUS):
        if HIDDEN % tp or HEADS % tp:
            continue
        for pp in divisors(min(N_GPUS // tp, LAYERS)):
            if N_GPUS % (tp * pp) or LAYERS % pp:
                continue
            dp = N_GPUS // (tp * pp)
            for vpp in divisors(LAYERS // pp) if pp > 1 else [1]:
                for micro_batch in divisors(GLOBAL_BATCH // dp):
                    yield Cell(tp, pp, dp, vpp, micro_batch)


def illegal_rows() -> dict[str, int]:
    """Rule -> distinct rows of calculon's that break it, each under the first."""
    job, cluster = nouns(OVERLAPS[0])
    every = list(cells())
    layouts = LayoutBatch.of(
        Layout(**cell._asdict(), schedule="interleaved" if cell.vpp > 1 else "1f1b") for cell in every
    )
    left, found = np.array([cell.ours() for cell in every]), {}
    for rule, violated in legal(job, cluster, layouts).items():
        if left[violated].any():
            found[rule] = int(left[violated].sum())
            left[violated] = 0
    # Without ZeRO nothing is offloaded: half of the rows of stage 0, which are half or all of them.
    found["optimizer_offload_needs_zero"] = int((left // np.where(layouts.dp > 1, 4, 2)).sum())
    return found


@dataclass
class Books:
    """Legal rows of our columns: those of calculon's space by what became of them, and others searched beside them."""

    scored: int = 0
    memory: int = 0
    beyond: int = 0


def timed_search(choices: Choices, fix: Mapping[str, Any], repeat: int) -> tuple[list[Found], float]:
    """The searches of all jobs, and the least CPU time of ``repeat`` runs of them."""
    best, found = math.inf, []
    for _ in range(repeat):
        started = time.process_time()
        found = [
            search(*nouns(overlap), catalog.constants(), fix=overlap.fix(fix), choices=choices) for overlap in OVERLAPS
        ]
        best = min(best, time.process_time() - started)
    return found, best


def fitting(books: Books) -> Iterator[tuple[Overlap, LayoutBatch, npt.NDArray[Any], npt.NDArray[Any]]]:
    """The search's chunks: (overlap, rows of calculon's that fit, their step time, their peak); fills in books."""
    constants = catalog.constants()
    for overlap in OVERLAPS:
        job, cluster = nouns(overlap)
        budget, whole = budget_bytes(cluster, constants), space(job, cluster, overlap.fix(FIX), CHOICES)
        for start in range(0, len(whole), CHUNK_ROWS):
            rows = whole.rows(start, start + CHUNK_ROWS)
            found = score(job, cluster, rows, constants, budget)
            # One replica has nothing to overlap: its rows are the same in two jobs and count once.
            known = (LAYERS % rows.pp == 0) & ((rows.dp > 1) | overlap.dp)
            books.beyond += int(np.count_nonzero(~known))
            fits = found.peak_allocated_bytes <= budget
            books.memory += int(np.count_nonzero(known & ~fits))
            books.scored += int(np.count_nonzero(known & fits))
            chosen = np.flatnonzero(known & fits)
            yield overlap, rows.take(chosen), found.step_time_s[chosen], found.peak_allocated_bytes[chosen]


def check_sample(n_rows: int, n_replayed: int) -> tuple[Books, str, bool]:
    """The books, what comparing ``n_rows`` scored rows with one-row estimates and replay gave, and whether it holds."""
    rng, constants, books = np.random.default_rng(175), catalog.constants(), Books()
    nouns_of = {overlap: nouns(overlap) for overlap in OVERLAPS}
    chunks = list(fitting(books))
    offered = [(chunk, position) for chunk, part in enumerate(chunks) for position in range(len(part[1]))]
    drawn = rng.permutation(len(offered))[:n_rows]
    worst, worst_replay, replayed = 0.0, 0.0, 0
    for number in drawn:
        chunk, position = offered[int(number)]
        overlap, rows, times, peaks = chunks[chunk]
        job, cluster = nouns_of[overlap]
        layout, ledger = rows.row(position), Ledger() if replayed < n_replayed and rows.pp[position] > 1 else None
        alone = evaluate(job, cluster, LayoutBatch.of([layout]), constants, ledger)
        step_s, peak = float(alone.step_time_s[0]), float(alone.peak_allocated_bytes[0])
        worst = max(worst, abs(times[position] / step_s - 1.0), abs(peaks[position] / peak - 1.0))
        if ledger is not None:
            replayed += 1
            rest_s = step_s - float(ledger.find("step_time_s")[0].arguments["pipeline_s"][0])
            replay_s = replay(pipeline_times(job, cluster, layout, constants)).step_time_s + rest_s
            worst_replay = max(worst_replay, abs(step_s / replay_s - 1.0))
    said = (
        f"{len(drawn):,} scored rows against one estimate each: largest difference {worst:.1e} (bar 1e-9); "
        f"{replayed} of them against replay: {worst_replay:.2%} (bar 1 %)"
    )
    return books, said, worst <= 1e-9 and worst_replay <= 0.01 and len(drawn) == n_rows and replayed == n_replayed


class OwnSpeed(NamedTuple):
    """calculon's own model on a sample of its executions."""

    enumerated: int
    tried: int
    feasible: int
    cpu_s: float


def own_speed(n_sampled: int) -> OwnSpeed | str:
    """calculon's own speed, or why it was not run."""
    checkout = os.environ.get(CHECKOUT)
    if not checkout:
        return f"not run ({CHECKOUT} is not set)"
    root = Path(checkout)
    sys.path.insert(0, str(root))
    try:
        calculon = importlib.import_module("calculon")
        llm = importlib.import_module("calculon.llm")
        executions = importlib.import_module("calculon.llm.all_executions").AllExecutions.all_executions
    except ImportError as error:
        return f"not run ({error})"
    finally:
        sys.path.remove(str(root))
    model = llm.Llm.Application(calculon.io.read_json_file(str(root / "models/gpt3-175B.json")))
    system = calculon.System(calculon.io.read_json_file(str(root / "systems/a100_80g.json")))
    every, draw, sample = 0, random.Random(175), []
    for execution in executions(model, system, N_GPUS, GLOBAL_BATCH, "float16", [True]):
        every += 1
        if draw.random() * COUNTED < n_sampled:
            sample.append(execution)
    started, feasible = time.process_time(), 0
    for execution in sample:
        try:
            one = llm.Llm(model, logging.Logger("calculon"))
            one.compile(system, llm.Llm.Execution(*execution))
            one.run(system)
            one.get_stats_json(False)
            feasible += 1
        except llm.Llm.Error:
            pass
    return OwnSpeed(every, len(sample), feasible, time.process_time() - started)


def main(repeat: int, n_rows: int, n_replayed: int, n_sampled: int) -> bool:
    """Print the mapping, the books, the speeds and the checks; whether all bars are reached (not the aim)."""
    print(f"\ncalculon's space: GPT-3 175B on {N_GPUS:,} A100-80GB, {GLOBAL_BATCH:,} sequences of {SEQ_LEN:,}, fp16")
    for option, values, ours in OPTIONS:
        print(f"  {option:<22}{values:<35}{ours}")
    every = list(cells())
    counted, distinct = sum(cell.executions() for cell in every), sum(cell.ours() for cell in every)
    found, cpu_s = timed_search(CHOICES, FIX, repeat)
    books, said, equal = check_sample(n_rows, n_replayed)
    illegal = illegal_rows()
    print(f"calculon counts {counted:,} executions; ours of the same options: {distinct:,} rows")
    print(f"  unmapped options, and mapped ones that change nothing, collapse a factor of {counted / distinct:.1f}")
    for rule, number in illegal.items():
        print(f"  {number:>9,} illegal: {rule}")
    print(f"  {books.memory:>9,} legal, do not fit the memory")
    print(f"  {books.scored:>9,} legal, fit, scored")
    closed = sum(illegal.values()) + books.memory + books.scored == distinct
    print(
        f"  the books {'close' if closed else 'DO NOT CLOSE'}; searched beside them: {books.beyond:,} legal rows "
        "(96 layers on 64 stages; one replica without overlap)"
    )
    rates = _report("its options", found, cpu_s)
    _report("every column of ours", *timed_search(EVERYTHING, {}, repeat))
    print(f"  {said}: {_passed(equal)}")
    own = own_speed(n_sampled)
    if isinstance(own, str):
        print(f"  calculon itself: {own}")
    else:
        tried, scored = own.tried / own.cpu_s, own.feasible / own.cpu_s
        print(
            f"  calculon itself, {own.tried:,} of its {own.enumerated:,} executions: {tried:,.0f} tried a second, "
            f"{scored:,.0f} feasible;"
        )
        print(f"  ratio of ours to it: {rates[0] / tried:,.0f} of what is tried, {rates[1] / scored:,.0f} of what fits")
    return equal and closed and counted == COUNTED and cpu_s <= CPU_BAR_S


def _report(name: str, found: list[Found], cpu_s: float) -> tuple[float, float]:
    legal = sum(len(one.space) for one in found)
    scored = sum(one.searched for one in found)
    memory = sum(one.rejected.get(MEMORY_RULE, 0) for one in found)
    cells_out = sum(sum(one.rejected.values()) for one in found) - memory
    print(
        f"  search over {name}: {legal:,} legal rows ({cells_out:,} cells illegal), {memory:,} do not fit, "
        f"{scored:,} scored in {cpu_s:.2f} s CPU"
    )
    print(
        f"    {legal / cpu_s:,.0f} rows and {scored / cpu_s:,.0f} scored layouts a second (aim {AIM_LAYOUTS_PER_S:,}); "
        f"bar of {CPU_BAR_S:.0f} s: {_passed(cpu_s <= CPU_BAR_S)}"
    )
    return legal / cpu_s, scored / cpu_s


def _passed(fine: bool) -> str:
    return "passed" if fine else "FAILED"
