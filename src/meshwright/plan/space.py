"""The space of layouts: every way to cut a job over the GPUs of a cluster, as rows made on demand.

A *cell* is one choice of degrees, schedule, split and micro-batch; each cell holds the cheap choices (sp, ZeRO, rank
order, offload, recompute) that make sense in it, its *switches*. Cells are tried against the cost model's rules once,
without and with sequence parallelism. A cell that breaks a rule is counted under that rule, as one, and is not
multiplied out.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import legal
from meshwright.costmodel.axis.expert import has_experts
from meshwright.costmodel.mesh import expert_dp, experts_share_pipelines
from meshwright.costmodel.recompute import parts_of
from meshwright.costmodel.schedule import schedules
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import (
    CP_KINDS,
    DISPATCHERS,
    OFFLOADS,
    ORDERED_AXES,
    RANK_ORDERS,
    RECOMPUTE_BITS,
    RECOMPUTE_NAMES,
    STAGE_SPLIT_NAMES,
    WORDS,
    IntArray,
    LayoutBatch,
    recompute_mask,
)

IndexArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
_T = TypeVar("_T")

#: Modules that a search may recompute, each with the kinds of block that have it.
_RECOMPUTABLE = {
    "core_attention": ("attention", "mla"),
    "mlp": ("mlp",),
    "norm": ("norm",),
    "moe_activation": ("moe",),
    "moe": ("moe",),
    "mla_up": ("mla",),
}
#: Tokens of a sequence that a context-parallel rank should hold at least; below, cp is searched only where fixed.
TOKENS_PER_CP_RANK = 1024


@dataclass(frozen=True, slots=True)
class Choices:
    """What is searched where nothing is fixed; a fixed value is tried whether it is among these or not.

    ``recompute_modules`` are recomputed in every subset, and the whole layer on top (None: ``recompute_modules(job)``).
    ``schedules`` are those of Megatron-LM: the others wait for engines that have them. GPipe holds more than 1F1B and
    is no faster. Offloading is slower than not, so it is for jobs that do not fit without (see ``WIDER``).
    Of ``rank_orders`` that differ only in axes of degree 1 the first is searched.
    """

    recompute_modules: tuple[str, ...] | None = None
    schedules: tuple[str, ...] = ("1f1b", "interleaved")
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    hybrid_shards: bool = True
    cp_kinds: tuple[str, ...] = CP_KINDS
    dispatchers: tuple[str, ...] = ("alltoall",)
    offloads: tuple[str, ...] = ("none",)
    rank_orders: tuple[str, ...] = RANK_ORDERS

    def widened(self, also: Iterable[str]) -> Choices:
        """The same with every known value of the columns that ``also`` names (keys of WIDER)."""
        wider = self
        for name in also:
            wider = WIDER[name](wider)
        return wider


#: What a search leaves out unless it is asked for -> the choices that hold every value of it.
WIDER: Mapping[str, Callable[[Choices], Choices]] = {
    "schedules": lambda choices: replace(choices, schedules=tuple(schedules())),
    "dispatchers": lambda choices: replace(choices, dispatchers=DISPATCHERS),
    "offload": lambda choices: replace(choices, offloads=OFFLOADS),
}


@functools.lru_cache(maxsize=65536)
def divisors(n: int) -> tuple[int, ...]:
    """All divisors of ``n`` in ascending order."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return (*small, *(n // d for d in reversed(small) if d * d != n))


#: Columns of a switch table, besides recompute.
_SWITCHES = (
    "sp", "zero_stage", "hybrid", "reshard_after_forward", "offload_optimizer", "offload_parameters", "rank_order",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Space:
    """A space of ``len(space)`` rows; ``rows`` makes any range of them.

    ``cells`` (C rows). Row ``r`` of cell ``c`` takes line ``first_line[c] + (r - first_row[c]) // M`` of the switch
    table ``switches`` (7, lines), and recompute mask ``(r - first_row[c]) % M`` of M; ``first_row`` has C + 1 entries.
    ``shard_replicas`` (C,) are the replicas of shard groups that stay inside a node, for lines that are hybrid.
    ``rejected`` counts the cells that are not among them by the first rule that each breaks. Every row is legal.
    """

    cells: LayoutBatch
    first_row: IndexArray
    first_line: IntArray
    shard_replicas: IntArray
    switches: IntArray
    recompute: IntArray
    rejected: Mapping[str, int]

    def __len__(self) -> int:
        return int(self.first_row[-1])

    def rows(self, start: int, stop: int) -> LayoutBatch:
        """Rows ``start`` to ``stop`` (exclusive) as a batch."""
        stop = min(stop, len(self))
        bounds = np.clip(self.first_row, start, stop)
        cell = np.repeat(np.arange(len(self.cells)), np.diff(bounds))
        return self._make(np.arange(start, stop, dtype=np.int64), cell)

    def at(self, rows: IndexArray) -> LayoutBatch:
        """The rows of these numbers, in the given order."""
        return self._make(rows, np.searchsorted(self.first_row, rows, side="right") - 1)

    def _make(self, rows: IndexArray, cell: npt.NDArray[np.intp]) -> LayoutBatch:
        batch = self.cells.take(cell)
        within = rows - self.first_row.take(cell)
        line = within // len(self.recompute)
        recompute = within - line * len(self.recompute)
        line += self.first_line.take(cell)
        for name, column in zip(_SWITCHES, self.switches, strict=True):
            if name != "hybrid":
                setattr(batch, name, column.take(line))
            elif column.any():
                batch.dp_replicate = np.where(
                    column.take(line) != 0, self.shard_replicas.take(cell), batch.dp_replicate
                )
        batch.recompute = self.recompute.take(recompute)
        batch.cell = cell.astype(np.int32)
        return batch

    def promising(self, limit: int) -> IndexArray:
        """Numbers of up to ``limit`` rows that good layouts tend to be among; they are scored first.

        Plain pipelines with small micro-batches and tensor parallelism, spread evenly over the factorisations.
        """
        plain = (self.cells.vpp == 1) & (self.cells.stage_split == 0) & (self.cells.micro_batch <= 4)
        plain &= self.cells.cp == 1
        cells = np.flatnonzero(plain) if plain.any() else np.arange(len(self.cells))
        # With every switch as the last line has it, as large jobs run, and the least and the most recomputation.
        last = self.first_row[cells + 1]
        middle = (self.first_row[cells] + last) // 2 // len(self.recompute) * len(self.recompute)
        rows = np.unique(np.concatenate([middle, last - len(self.recompute), last - 1]))
        if len(rows) <= limit:
            return rows
        return rows[np.linspace(0, len(rows) - 1, limit).astype(np.int64)]


def space(
    job: TrainingJob, cluster: Cluster, fix: Mapping[str, Any] | None = None, choices: Choices | None = None
) -> Space:
    """Every layout of ``job`` on all GPUs of ``cluster`` that agrees with ``fix`` (Layout fields as values).

    ``Choices(recompute_modules=("core_attention",))`` leaves the named recompute choices none, selective and full.

    Raises InputError (MW-E140) if ``fix`` leaves no way to use all GPUs.
    """
    fixed, choices = dict(fix or {}), choices or Choices()
    cells = _cells(job, cluster, fixed, choices)
    if not len(cells):
        raise InputError(
            "MW-E140",
            _("no dp x tp x cp x pp of {n_gpus} GPUs agrees with what is fixed.").format(n_gpus=cluster.n_gpus),
            where="--fix",
            nearest=_("Fixed degrees must divide {n_gpus} together.").format(n_gpus=cluster.n_gpus),
        )
    plain_ok, parallel_ok, rejected = _lawful_with_sp(job, cluster, cells, fixed)
    kept = np.flatnonzero(plain_ok | parallel_ok)
    cells, plain_ok, parallel_ok = cells.take(kept), plain_ok[kept], parallel_ok[kept]
    modules = choices.recompute_modules
    recompute = _recompute_choices(fixed, recompute_modules(job) if modules is None else modules)
    replicas = _shard_replicas(cluster, cells, fixed)
    ok = (plain_ok, parallel_ok)
    switches, first_line, n_lines = _switch_lines(job, cluster, cells, ok, replicas, fixed, choices)
    if not n_lines.all():
        rejected = _with_unswitched(job, cluster, cells.take(np.flatnonzero(n_lines == 0)), fixed, rejected)
        some = np.flatnonzero(n_lines)
        cells, replicas, first_line, n_lines = cells.take(some), replicas[some], first_line[some], n_lines[some]
    first_row = np.concatenate([[0], np.cumsum(n_lines.astype(np.int64) * len(recompute))]).astype(np.int64)
    return Space(cells, first_row, first_line, replicas, switches, recompute, rejected)


def _with_unswitched(
    job: TrainingJob, cluster: Cluster, cells: LayoutBatch, fixed: Mapping[str, Any], rejected: Mapping[str, int]
) -> dict[str, int]:
    """``rejected`` with the cells that fixed offloading leaves without any switches, by the rule that it breaks."""
    for name in ("offload_optimizer", "offload_parameters"):
        setattr(cells, name, np.full(len(cells), WORDS[name].index(fixed.get(name, "none")), np.int32))
    broken = lawful(job, cluster, cells)[1]
    return {rule: rejected.get(rule, 0) + broken.get(rule, 0) for rule in {**rejected, **broken}}


def lawful(job: TrainingJob, cluster: Cluster, layouts: LayoutBatch) -> tuple[BoolArray, dict[str, int]]:
    """Rows that break no rule, and how many break each (a row counts under the first that it breaks)."""
    ok = np.ones(len(layouts), bool)
    rejected: dict[str, int] = {}
    for rule, violated in legal(job, cluster, layouts).items():
        broken = int(np.count_nonzero(violated & ok))
        if broken:
            rejected[rule] = broken
            ok &= ~violated
    return ok, rejected


def _lawful_with_sp(
    job: TrainingJob, cluster: Cluster, cells: LayoutBatch, fixed: Mapping[str, Any]
) -> tuple[BoolArray, BoolArray, dict[str, int]]:
    """Cells that are legal without and with sequence parallelism, and what the others break, each cell once."""
    plain_ok, rejected = lawful(job, cluster, cells)
    if "sp" in fixed:
        return plain_ok & (not fixed["sp"]), plain_ok & bool(fixed["sp"]), rejected
    parallel_ok = np.zeros(len(cells), bool)
    both = np.flatnonzero(plain_ok & (cells.tp > 1))
    # Models with experts want sequence parallelism beside TP: there the plain cell is no loss.
    only = np.flatnonzero(~plain_ok & (cells.tp > 1) & has_experts(job))
    for rows in (both, only):
        if not len(rows):
            continue
        with_sp = cells.take(rows)
        with_sp.sp = np.ones(len(rows), np.int32)
        parallel_ok[rows], broken = lawful(job, cluster, with_sp)
        if rows is both:
            rejected = {rule: rejected.get(rule, 0) + broken.get(rule, 0) for rule in rejected | broken}
        elif parallel_ok[rows].any():
            saved = lawful(job, cluster, cells.take(rows[parallel_ok[rows]]))[1]
            rejected = {rule: number - saved.get(rule, 0) for rule, number in rejected.items()}
    return plain_ok, parallel_ok, {rule: number for rule, number in rejected.items() if number}


def _shard_replicas(cluster: Cluster, cells: LayoutBatch, fixed: Mapping[str, Any]) -> IntArray:
    """Replicas of shard groups that stay inside a node, (C,): HSDP's usual choice; 1 where there is no such thing."""
    if "dp_replicate" in fixed:
        return np.full(len(cells), int(fixed["dp_replicate"]), np.int32)
    inside = np.clip(cluster.domain_gpus // np.maximum(cells.tp * cells.cp, 1), 1, cells.dp)
    whole = (cells.dp % inside == 0) & (inside > 1) & (inside < cells.dp)
    replicas = np.where(whole, cells.dp // inside, 1)
    return np.where(expert_dp(cells) % replicas == 0, replicas, 1).astype(np.int32)


def _switch_lines(
    job: TrainingJob,
    cluster: Cluster,
    cells: LayoutBatch,
    ok: tuple[BoolArray, BoolArray],
    replicas: IntArray,
    fixed: Mapping[str, Any],
    choices: Choices,
) -> tuple[IntArray, IntArray, IntArray]:
    """The switch table (7, lines), and where the lines of each cell start and how many they are, (C,) each.

    Cells with the same possibilities share their lines.
    """
    orders = _order_lists(job, cluster, cells, fixed, choices)
    traits = (ok[0], ok[1], cells.dp * cells.cp > 1, cells.pp > 1, replicas > 1)
    key = orders.of.astype(np.int32)
    for trait in traits:
        key = key * 2 + trait
    lines: list[tuple[int, ...]] = []
    n_kinds = len(orders.size) << len(traits)
    starts, sizes = np.zeros(n_kinds, np.int32), np.zeros(n_kinds, np.int32)
    for kind in np.unique(key).tolist():
        bits = [bool(kind >> (len(traits) - 1 - i) & 1) for i in range(len(traits))]
        starts[kind] = len(lines)
        lines += _lines(bits, orders.entries(kind >> len(traits)), fixed, choices)
        sizes[kind] = len(lines) - starts[kind]
    table = np.array(lines, np.int32).reshape(-1, len(_SWITCHES)).T.copy()
    return table, starts.take(key), sizes.take(key)


def _order_lists(
    job: TrainingJob, cluster: Cluster, cells: LayoutBatch, fixed: Mapping[str, Any], choices: Choices
) -> _Lists:
    """Codes of the rank orders to try in each cell: those that put its axes of degree above 1 in another order."""
    # On one node every order is as near as any other.
    near = cluster.n_gpus <= cluster.domain_gpus or "rank_order" in fixed
    traits = [getattr(cells, axis) > 1 for axis in ORDERED_AXES]
    for code in range(1 if near else len(choices.rank_orders)):
        ordered = replace(cells, rank_order=np.full(len(cells), code, np.int32))
        traits.append(experts_share_pipelines(ordered) if has_experts(job) else np.ones(len(cells), bool))

    def distinct_orders(key: int) -> list[list[int]]:
        present = [axis for i, axis in enumerate(ORDERED_AXES) if key >> i & 1]
        first: dict[tuple[str, ...], int] = {}
        for code, order in enumerate(choices.rank_orders[:1] if near else choices.rank_orders):
            if key >> len(ORDERED_AXES) + code & 1:
                first.setdefault(tuple(axis for axis in order.split("-") if axis in present), code)
        return [[code] for code in first.values()]

    keys, key_of_cell = np.unique(np.stack(traits, axis=1) @ (1 << np.arange(len(traits))), return_inverse=True)
    lists = _Lists(keys.tolist(), distinct_orders, 1)
    lists.of = lists.of[key_of_cell]
    return lists


def _lines(
    traits: Sequence[bool], orders: Sequence[int], fixed: Mapping[str, Any], choices: Choices
) -> list[tuple[int, ...]]:
    """Every combination of switches that makes sense where ``traits`` hold, as lines of the switch table."""
    plain, parallel, shares, staged, replicable = traits
    sp = [value for value, fine in ((0, plain), (1, parallel)) if fine]
    found: list[tuple[int, ...]] = []
    for zero, hybrid, reshard in _zero_choices(fixed, choices, shares=shares, staged=staged, replicable=replicable):
        for optimizer, parameters in _offload_choices(fixed, choices, zero):
            for one, order in itertools.product(sp, orders):
                # With the data-parallel ranks far apart, no shard group stays inside a node.
                if not (hybrid and order and "dp_replicate" not in fixed):
                    found.append((one, zero, hybrid, reshard, optimizer, parameters, order))
    return found


def _zero_choices(
    fixed: Mapping[str, Any], choices: Choices, *, shares: bool, staged: bool, replicable: bool
) -> list[tuple[int, int, int]]:
    """(zero_stage, hybrid, reshard_after_forward) to try."""
    if "zero_stage" in fixed:
        stages: Sequence[int] = (int(fixed["zero_stage"]),)
    elif not shares:
        stages = (0,)
    else:
        # With a pipeline gradients stay whole until the last micro-batch: stage 2 is stage 1.
        stages = [stage for stage in choices.zero_stages if not (stage == 2 and staged)]
        if int(fixed.get("dp_replicate", 1)) > 1:
            stages = [stage for stage in stages if stage > 0]
    found = []
    for stage in stages:
        # Without resharding a pipeline keeps whole weights for the step: that is stage 1 again.
        reshard = [1] if staged else [1, 0]
        if "reshard_after_forward" in fixed:
            reshard = [int(fixed["reshard_after_forward"])]
        hybrid = [0, 1] if replicable and choices.hybrid_shards and stage == 3 else [0]
        if "dp_replicate" in fixed:
            hybrid = [int(int(fixed["dp_replicate"]) > 1)]
        found += [(stage, h, r) for h, r in itertools.product(hybrid, reshard if stage == 3 else reshard[:1])]
    return found


def _offload_choices(fixed: Mapping[str, Any], choices: Choices, zero_stage: int) -> list[tuple[int, int]]:
    """(offload_optimizer, offload_parameters) to try; parameters never lie farther away than the optimizer state."""
    known = WORDS["offload_optimizer"]
    optimizer = [known.index(word) for word in choices.offloads] if zero_stage >= 1 else [0]
    parameters = [known.index(word) for word in choices.offloads] if zero_stage >= 3 else [0]
    if "offload_optimizer" in fixed:
        optimizer = [known.index(fixed["offload_optimizer"])]
    if "offload_parameters" in fixed:
        parameters = [known.index(fixed["offload_parameters"])]
    said = fixed.keys() & {"offload_optimizer", "offload_parameters"}
    # What is fixed keeps the rules too: only sharded state is offloaded.
    pairs = [(o, p) for o, p in itertools.product(optimizer, parameters) if said or p <= o]
    return [(o, p) for o, p in pairs if (o == 0 or zero_stage >= 1) and (p == 0 or zero_stage >= 3)]


def recompute_modules(job: TrainingJob) -> tuple[str, ...]:
    """Modules whose recomputation frees memory in the layers of this job.

    A fused attention kernel keeps no scores, so recomputing its core frees next to nothing; dense layers among many
    layers of experts hold little.
    """
    kinds = {block.kind for layer in job.model.layer_kinds for block in layer}
    sparse = "moe" in kinds
    found = [name for name, holders in _RECOMPUTABLE.items() if kinds & set(holders)]
    left_out = {"core_attention"} if job.attention == "flash" else set()
    return tuple(name for name in found if name not in left_out and not (sparse and name == "mlp"))


def _recompute_choices(fixed: Mapping[str, Any], modules: Sequence[str]) -> IntArray:
    """Recompute masks to try: none, each set of modules that Megatron-core's ``--recompute-modules`` takes, full."""
    if "recompute" in fixed:
        return np.array([recompute_mask(fixed["recompute"])], np.int32)
    sizes = range(len(modules) + 1)
    subsets = itertools.chain.from_iterable(itertools.combinations(modules, size) for size in sizes)
    # Recomputing the experts recomputes their activation function.
    wanted = (subset for subset in subsets if not {"moe", "moe_activation"} <= set(subset))
    masks = [sum(RECOMPUTE_BITS[module] for module in subset) for subset in wanted]
    return np.array([*masks, RECOMPUTE_NAMES["full"]], np.int32)


class _Lists:
    """Lists of choices of cells, one list for each value of a key, and which list each cell has."""

    def __init__(self, keys: Sequence[_T], make: Callable[[_T], Sequence[Sequence[int]]], width: int) -> None:
        number: dict[_T, int] = {}
        self.of = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
        lists = [np.array(make(key), np.int64).reshape(-1, width) for key in number]
        self.size = np.array([len(entries) for entries in lists], np.int64)
        self.start = np.concatenate([[0], np.cumsum(self.size)[:-1]]).astype(np.int64)
        self.table = np.concatenate(lists) if lists else np.empty((0, width), np.int64)

    def entries(self, number: int) -> list[int]:
        """The first value of every entry of list ``number``."""
        return [int(entry) for entry in self.table[self.start[number] : self.start[number] + self.size[number], 0]]

    def sizes(self) -> IndexArray:
        """Entries of each cell's list."""
        return np.asarray(self.size[self.of], np.int64)

    def take(self, row: IndexArray, digit: IndexArray) -> IndexArray:
        """Entry ``digit`` of the list of ``row``, (n, width)."""
        return np.asarray(self.table[self.start[self.of[row]] + digit], np.int64)


def _cells(job: TrainingJob, cluster: Cluster, fixed: Mapping[str, Any], choices: Choices) -> LayoutBatch:
    splits = tuple(dict.fromkeys((*STAGE_SPLIT_NAMES, str(fixed.get("stage_split", "even")))))
    names = tuple(dict.fromkeys((*choices.schedules, str(fixed.get("schedule", choices.schedules[0])))))
    degrees = _factorisations(job, cluster.n_gpus, fixed)
    experts = _expert_counts(job)
    lists = (
        _Lists([pp for *_rest, pp in degrees], lambda pp: _pipeline_shapes(job, pp, fixed, names, splits), 3),
        _Lists([dp for dp, *_rest in degrees], lambda dp: _micro_batches(job.global_batch, dp, fixed), 1),
        _Lists([cp > 1 for _dp, _tp, cp, _pp in degrees], lambda cut: _cp_kinds(cut, fixed, choices), 1),
        _Lists(
            [(tp, dp * tp * cp) for dp, tp, cp, _pp in degrees],
            lambda key: _expert_degrees(experts, *key, fixed, choices),
            3,
        ),
    )
    number = np.ones(len(degrees), np.int64)
    for of_kind in lists:
        number *= of_kind.sizes()
    row = np.repeat(np.arange(len(degrees)), number)
    digit = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    columns: list[IndexArray] = [np.array(degrees, np.int64).reshape(-1, 4)[row]]
    for of_kind in reversed(lists):
        digit, entry = np.divmod(digit, of_kind.sizes()[row])
        columns.insert(1, of_kind.take(row, entry))
    table = np.concatenate(columns, axis=1).astype(np.int32)
    order = (
        "dp", "tp", "cp", "pp", "vpp", "schedule", "stage_split", "micro_batch", "cp_kind", "ep", "etp", "dispatcher",
    )  # fmt: skip
    found = {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(order)}
    switches = {name: np.zeros(len(table), np.int32) for name in ("sp", "zero_stage", "recompute", "rank_order")}
    switches["sp"] += int(fixed.get("sp", False))
    # Copies of shard groups need shards: the rules see the mildest stage that has them.
    replicas = int(fixed.get("dp_replicate", 1))
    switches["zero_stage"] += int(fixed.get("zero_stage", replicas > 1))
    switches["dp_replicate"] = np.full(len(table), replicas, np.int32)
    orders = (str(fixed["rank_order"]),) if "rank_order" in fixed else choices.rank_orders
    return LayoutBatch(**found, **switches, schedules=names, stage_splits=splits, rank_orders=orders)


def _factorisations(job: TrainingJob, n_gpus: int, fixed: Mapping[str, Any]) -> list[tuple[int, int, int, int]]:
    """(dp, tp, cp, pp) whose product is ``n_gpus``, all divisors, those that agree with ``fixed``."""
    longest_cut = max(job.seq_len // TOKENS_PER_CP_RANK, 1)

    def wanted(axis: str, ranks: int) -> list[int]:
        return [degree for degree in divisors(ranks) if fixed.get(axis, degree) == degree]

    found = []
    for tp in wanted("tp", n_gpus):
        for cp in wanted("cp", n_gpus // tp):
            if cp > longest_cut and "cp" not in fixed:
                break
            ranks = n_gpus // tp // cp
            found += [(dp, tp, cp, ranks // dp) for dp in reversed(wanted("dp", ranks))]
    return [degrees for degrees in found if fixed.get("pp", degrees[-1]) == degrees[-1]]


def _cp_kinds(cut: bool, fixed: Mapping[str, Any], choices: Choices) -> list[list[int]]:
    if "cp_kind" in fixed:
        return [[CP_KINDS.index(fixed["cp_kind"])]]
    return [[CP_KINDS.index(kind)] for kind in choices.cp_kinds] if cut else [[0]]


def _expert_counts(job: TrainingJob) -> int:
    """What ep may divide: the greatest common divisor of the experts of all layers; 0 without experts."""
    return math.gcd(
        *(int(block.options["num_experts"]) for block in itertools.chain(*parts_of(job)) if block.kind == "moe")
    )


def _expert_degrees(
    experts: int, tp: int, ranks: int, fixed: Mapping[str, Any], choices: Choices
) -> list[tuple[int, int, int]]:
    """(ep, etp, dispatcher code) to try on ``ranks`` = tp x cp x dp; experts stay whole or are cut as TP cuts."""
    known = WORDS["dispatcher"]
    words = [fixed["dispatcher"]] if "dispatcher" in fixed else list(choices.dispatchers)
    ep_degrees = [int(fixed["ep"])] if "ep" in fixed else divisors(experts) if experts else [1]
    etp_degrees = [int(fixed["etp"])] if "etp" in fixed else [1, tp] if experts and tp > 1 else [1]
    found = []
    for ep, etp in itertools.product(ep_degrees, etp_degrees):
        if ranks % (ep * etp) == 0 or "ep" in fixed or "etp" in fixed:
            codes = [known.index(word) for word in words] if ep > 1 else [known.index(words[0])]
            found += [(ep, etp, code) for code in codes]
    return found


def _pipeline_shapes(
    job: TrainingJob, pp: int, fixed: Mapping[str, Any], names: Sequence[str], splits: Sequence[str]
) -> list[tuple[int, int, int]]:
    """(vpp, schedule code, split code) that make sense for ``pp`` stages; one pipeline rank has nothing to choose.

    A schedule that refuses ``vpp`` chunks even with as many micro-batches as stages is no choice; one that was fixed
    stays, for the rule that it breaks.
    """
    known, n_layers = schedules(), job.model.n_layers
    wanted = [splits.index(str(fixed["stage_split"]))] if "stage_split" in fixed else [0, 1] if pp > 1 else [0]
    shapes = []
    for split in wanted:
        # With the ends counted as layers, chunks are equal when layers + 2 divides (costmodel's own rule decides).
        layers = n_layers + 2 if splits[split] == "ends" else n_layers
        chunks = [v for v in divisors(layers // pp) if v > 1] if pp > 1 and layers % pp == 0 else []
        options = [int(fixed["vpp"])] if "vpp" in fixed else [1, *chunks]
        if "schedule" in fixed:
            shapes += [(vpp, names.index(str(fixed["schedule"])), split) for vpp in options]
            continue
        suits = [np.broadcast_to(known[name].legal(pp, np.array(options), 4 * pp), len(options)) for name in names]
        for vpp, suit in zip(options, zip(*suits, strict=True), strict=True):
            codes = [code for code, fine in enumerate(suit) if fine]
            # Without a pipeline every schedule is the same one.
            shapes += [(vpp, code, split) for code in (codes if pp > 1 else codes[:1])]
    return shapes


def _micro_batches(global_batch: int, dp: int, fixed: Mapping[str, Any]) -> list[list[int]]:
    if "micro_batch" in fixed:
        return [[int(fixed["micro_batch"])]]
    # A data-parallel degree that does not divide the batch stays as one row, for the rule that it breaks.
    return [[size] for size in divisors(global_batch // dp)] if global_batch % dp == 0 else [[1]]
