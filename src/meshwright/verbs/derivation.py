"""How a number came about: the formula calls that a ledger recorded, as a tree for people.

A call hangs below another where its very result went in (the same object or the same memory), or where the tables
here say which calls the cost model summed up for an argument; never because two values happen to be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from meshwright.formula import Entry, Ledger
from meshwright.i18n import N_, _
from meshwright.specs.fact import Noun
from meshwright.specs.layout import Layout
from meshwright.specs.report import ExplanationEntry

#: Deepest chain of formulas, most formulas side by side, most lines in all: beyond that nobody reads on.
DEEPEST = 6
MOST_ROOTS = 12
MOST_NODES = 150


class Calls(NamedTuple):
    """Which recorded calls make a number: formulas, called somewhere ``within`` and nowhere within ``outside``.

    ``how`` says what the cost model does with the calls' results, where the number is none of them.
    """

    formulas: tuple[str, ...]
    within: str = ""
    outside: tuple[str, ...] = ()
    how: str = ""

    def of(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of ``entries`` that are meant."""
        return [
            entry
            for entry in entries
            if entry.name in self.formulas
            and (not self.within or self.within in entry.within)
            and not any(name in entry.within for name in self.outside)
        ]


_KERNELS = ("gemm_time_s", "attention_time_s", "memory_time_s")
_NETWORK = ("tuning_time_s", "ramp_factor")
_PIPELINE = (
    "one_f_one_b_time_s",
    "interleaved_time_s",
    "gpipe_time_s",
    "zb_h1_time_s",
    "zb_v_time_s",
    "dual_pipe_time_s",
)
_PER_LAYER = N_("It sums the calls below over the layers of a stage and multiplies by the micro-batches.")
#: full name of a number -> the calls that make it; other numbers have the formula of their own name, or none
MADE_OF: Mapping[str, Calls] = {
    "breakdown_s.forward": Calls(_KERNELS, "forward_time_s", how=_PER_LAYER),
    "breakdown_s.backward": Calls((*_KERNELS, "gradient_accumulation_s"), outside=("forward_time_s",), how=_PER_LAYER),
    "breakdown_s.recompute": Calls(_KERNELS, "forward_time_s", how=_PER_LAYER),
    "breakdown_s.tp_comm": Calls((*_NETWORK, "exposed_s"), "tensor", how=_PER_LAYER),
    "breakdown_s.cp_comm": Calls((*_NETWORK, "exposed_beside_s"), "context", how=_PER_LAYER),
    "breakdown_s.ep_comm": Calls((*_NETWORK, "deduplicated_ratio"), "experts", how=_PER_LAYER),
    "breakdown_s.data": Calls(("rollout_time_s",)),
    "breakdown_s.pp_comm": Calls(
        (*_PIPELINE, *_NETWORK),
        outside=("block_times", "_data_parallel_s"),
        how=N_(
            "It is the pipeline's time less its time with instant transfers, both shown below, plus the all-reduce of "
            "a tied embedding."
        ),
    ),
    "breakdown_s.dp_comm": Calls(("exposed_s", *_NETWORK), "_data_parallel_s", ("block_times",)),
    "breakdown_s.bubble": Calls(
        _PIPELINE,
        "_breakdown",
        how=N_("It is the pipeline's time with instant transfers, shown below, less the slowest stage's own work."),
    ),
    "breakdown_s.launch": Calls(("launch_wait_s",), how=_PER_LAYER),
    "breakdown_s.contention": Calls(("contention_s",)),
    "breakdown_s.optimizer": Calls(("optimizer_time_s",)),
    "breakdown_s.straggler": Calls(("step_time_s",)),
    "step_time_interval_s": Calls(
        ("log_sd",), how=N_("Its ends are step_time_s over and times exp(1.2816 sd), with the sd shown below.")
    ),
    "memory.peak_reserved_bytes": Calls(("reserved_bytes",)),
    "memory.by.weights": Calls(("state_bytes",), "by_class"),
    "memory.by.gradients": Calls(("state_bytes",), "by_class"),
    "memory.by.optimizer": Calls(("state_bytes",), "by_class"),
    "memory.by.activations": Calls(("activation_bytes",), "by_class"),
    "memory.by.gather": Calls(("gathered_weight_bytes",), "by_class"),
}
#: (formula, argument) -> the calls that the cost model put together for it
FED_BY: Mapping[tuple[str, str], Calls] = {
    ("step_time_s", "pipeline_s"): Calls(_PIPELINE),
    ("step_time_s", "dp_exposed_s"): MADE_OF["breakdown_s.dp_comm"],
    ("step_time_s", "tied_embedding_s"): Calls(_NETWORK, "_tied_embedding_s"),
    ("step_time_s", "optimizer_s"): MADE_OF["breakdown_s.optimizer"],
    ("exposed_s", "communication_s"): Calls(_NETWORK, "_data_parallel_s", ("block_times",)),
}


class Derivation:
    """The recorded calls of one layout, ready to be shown."""

    def __init__(self, ledger: Ledger, layout: Layout) -> None:
        self._sources = ledger.sources
        self._entries = ledger.entries()
        self._layout = layout
        self._left = MOST_NODES

    def of(self, key: str) -> tuple[ExplanationEntry, ...]:
        """The calls that made the number ``key`` as trees; none where no formula was recorded for it."""
        leaf = key.rsplit(".", 1)[-1]
        calls = MADE_OF.get(key, Calls((leaf,)))
        return self._trees(self._of_this_layout(calls.of(self._entries)), MOST_ROOTS)

    def _of_this_layout(self, entries: list[Entry]) -> list[Entry]:
        """Without the collectives that only the other setting of sequence parallelism uses, and what is nested."""
        found: list[Entry] = []
        skipped = False
        for entry in entries:
            if entry.name == "tuning_time_s":
                plain = entry.arguments.get("collective") == "all_reduce"
                skipped = "tensor" in entry.within and plain == self._layout.sp
            # A ramp belongs to the collective that was priced before it.
            if not (skipped and entry.name in _NETWORK):
                found.append(entry)
        if any(entry.name == "exposed_s" for entry in found):
            # What hides carries its collective below it; the rest stands for itself.
            last = max(entry.order for entry in found if entry.name == "exposed_s")
            return [entry for entry in found if entry.name == "exposed_s" or entry.order > last]
        return found

    def _trees(self, entries: list[Entry], most: int, above: tuple[int, ...] = ()) -> tuple[ExplanationEntry, ...]:
        """Each call once, however often it was made with the same values; what is left out is counted."""
        shown: list[ExplanationEntry] = []
        left_out = 0
        for entry in entries:
            if entry.order in above:
                continue
            if len(shown) >= most or self._left <= 0:
                left_out += 1
                continue
            tree = self._tree(entry, above)
            if tree not in shown:
                shown.append(tree)
        if left_out:
            what = _("{count} further calls are left out.").format(count=left_out)
            shown.append(ExplanationEntry(name="...", what=what))
        return tuple(shown)

    def _tree(self, entry: Entry, above: tuple[int, ...]) -> ExplanationEntry:
        """``entry`` with its arguments, each with what it came from, and the formulas it called itself."""
        self._left -= 1
        path = (*above, entry.order)
        children: list[ExplanationEntry] = []
        if len(path) <= DEEPEST:
            for name, value in entry.arguments.items():
                if not isinstance(value, Noun) and (child := self._argument(name, value, entry, path)) is not None:
                    children.append(child)
            names = {child.name for child in children}
            children.extend(self._trees([c for c in entry.children if c.name not in names], MOST_ROOTS, path))
        return ExplanationEntry(
            name=entry.name,
            value=_plain(entry.result, self._row(entry)),
            unit=entry.unit,
            source=entry.source,
            what=_(entry.what) if entry.what else "",
            children=tuple(children),
        )

    def _argument(self, name: str, value: Any, user: Entry, path: tuple[int, ...]) -> ExplanationEntry | None:
        maker = self._maker(value, user)
        if maker is not None and maker.order not in path and self._left > 0:
            return self._tree(maker, path)
        plain = _plain(value, self._row(user))
        if plain is None:
            return None
        self._left -= 1
        fed = self._fed(user, name) if plain else []
        children = self._trees(self._of_this_layout(fed), MOST_ROOTS, path)
        source = _("put together from the calls below") if children else self._source(name, plain)
        return ExplanationEntry(name=name, value=plain, source=source, children=children)

    def _fed(self, user: Entry, name: str) -> list[Entry]:
        """The calls that were put together for an argument: since the last call of the same formula."""
        calls = FED_BY.get((user.name, name))
        if calls is None:
            return []
        earlier = [entry.order for entry in self._entries if entry.name == user.name and entry.order < user.order]
        since = max(earlier, default=-1)
        return calls.of(entry for entry in self._entries if since < entry.order < user.order)

    def _source(self, name: str, value: Any) -> str | None:
        """Where a value comes from; what was derived from a catalog value says so."""
        if name not in self._sources:
            return None
        written, source = self._sources[name]
        return source if written == value else _("from {value}: {source}").format(value=written, source=source)

    def _maker(self, value: Any, user: Entry) -> Entry | None:
        """The last call before ``user`` that returned this very array."""
        if not isinstance(value, np.ndarray):
            return None
        for entry in reversed(self._entries):
            if entry.order < user.order and any(_is_same(result, value) for result in _results(entry)):
                return entry
        return None

    def _row(self, entry: Entry) -> int | None:
        """The tables of blocks hold each shape without and with sequence parallelism; one of them is shown."""
        return int(self._layout.sp) if "block_times" in entry.within else None


def _results(entry: Entry) -> tuple[Any, ...]:
    return entry.result if isinstance(entry.result, tuple) else (entry.result,)


def _is_same(result: Any, value: Any) -> bool:
    """The same object, or a view of the same memory. The ledger keeps results alive, so memory is not used twice."""
    return result is value or (isinstance(result, np.ndarray) and np.may_share_memory(result, value))


def _plain(value: Any, row: int | None = None) -> Any:
    """A number, a short list of numbers, or text; None for what has no short form."""
    if hasattr(value, "time_s"):
        # What NCCL would choose: the time is what goes on.
        return _plain(value.time_s, row)
    if isinstance(value, tuple):
        return [_plain(part, row) for part in value]
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        if row is not None and flat.size == 2:
            return flat[row].item()
        return flat[0].item() if flat.size == 1 else [item.item() for item in flat[:8]]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, int | float | str | bool) else None


#: Where a term is zero, the layout's column that says so.
_ZERO_BECAUSE: Mapping[str, str] = {"tp_comm": "tp", "pp_comm": "pp", "bubble": "pp", "dp_comm": "dp"}


def why_zero(key: str, layout: Layout) -> str:
    """The sentence for a term of the step or a class of memory that is zero under ``layout``."""
    leaf = key.rsplit(".", 1)[-1]
    column = _ZERO_BECAUSE.get(leaf)
    if column is not None and getattr(layout, column) == 1:
        return _("It is zero here, because {column} is 1.").format(column=column)
    if leaf == "recompute" and layout.recompute == "none":
        return _("It is zero here, because {column} is {value}.").format(column="recompute", value="none")
    if key.startswith("memory."):
        return _("It is zero on the fullest pipeline rank of this layout.")
    return _("It is zero for this layout.")


#: number outside the cost model's formulas -> how it is computed, and what goes in
ARITHMETIC: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tokens_per_s_per_gpu": ("tokens_per_step / (step_time_s x n_gpus)", ("tokens_per_step", "step_time_s", "n_gpus")),
    "mfu_ratio": (
        N_("model FLOPs of a step / (step_time_s x n_gpus x dense peak of the precision)"),
        ("tokens_per_step", "step_time_s", "n_gpus", "peak_flops_per_s"),
    ),
    "hfu_ratio": (
        N_("(model FLOPs of a step + recomputed FLOPs) / (step_time_s x n_gpus x dense peak of the precision)"),
        ("tokens_per_step", "step_time_s", "n_gpus", "peak_flops_per_s"),
    ),
    "time_to_train_s": ("tokens / tokens_per_step x step_time_s", ("tokens", "tokens_per_step", "step_time_s")),
    "time_to_train_interval_s": (
        "tokens / tokens_per_step x step_time_interval_s",
        ("tokens", "tokens_per_step", "step_time_interval_s"),
    ),
    "p50": (
        N_("median of time_to_train_s with checkpoints, restarts and lost work; failures are Poisson"),
        ("time_to_train_s", "mttf_s", "checkpoint_interval_s", "checkpoint_write_s", "restart_s"),
    ),
    "p90": (
        N_("nine tenths of time_to_train_s with checkpoints, restarts and lost work; failures are Poisson"),
        ("time_to_train_s", "mttf_s", "checkpoint_interval_s", "checkpoint_write_s", "restart_s"),
    ),
    "cost_usd": ("n_gpus x p50 / 3600 x usd_per_gpu_hour", ("n_gpus", "p50", "usd_per_gpu_hour")),
    "energy_j": ("mean_power_w x p50", ("mean_power_w", "p50")),
    "step_energy_j": ("mean_power_w x step_time_s", ("mean_power_w", "step_time_s")),
    "mean_power_w": (
        N_("n_gpus x (power of a GPU by the shares of the step's terms + host_power_ratio x tdp_w) x pue"),
        ("n_gpus", "tdp_w", "pue"),
    ),
    "mttf_s": (
        "86400 / (n_gpus / 8 x failures_per_1000_node_days / 1000)",
        ("n_gpus", "failures_per_1000_node_days"),
    ),
    "checkpoint_interval_s": (
        N_("the interval of least expected time; about sqrt(2 x checkpoint_write_s x mttf_s)"),
        ("checkpoint_write_s", "mttf_s"),
    ),
    "checkpoint_write_s": (
        "checkpoint_bytes / (n_nodes x storage_bytes_per_s)",
        ("checkpoint_bytes", "n_nodes", "storage_bytes_per_s"),
    ),
    "effective_ratio": (
        N_("interval / (M e^(R/M) (e^((interval + write)/M) - 1)) with M = mttf_s, R = restart_s"),
        ("checkpoint_interval_s", "checkpoint_write_s", "restart_s", "mttf_s"),
    ),
    "count": ("p50 / mttf_s", ("p50", "mttf_s")),
    "checkpoint_bytes": (
        N_("n_parameters x (bytes of a working weight + 12)"),
        ("n_parameters", "precision"),
    ),
    "checkpoint_bytes_per_s": (
        "checkpoint_bytes / min(1800 s x 0.05, 2 x 0.05^2 x mttf_s)",
        ("checkpoint_bytes", "mttf_s"),
    ),
    "loader_tokens_per_s": ("tokens_per_step / step_time_s", ("tokens_per_step", "step_time_s")),
    "free": ("capacity_bytes - peak_reserved_bytes", ("capacity_bytes", "peak_reserved_bytes")),
    "power_w": ("n_gpus x (tdp_w + host_power_ratio x tdp_w) x pue", ("n_gpus", "tdp_w", "pue")),
}


def arithmetic(key: str, value: Any, unit: str | None, look_up: Callable[[str], Any]) -> tuple[ExplanationEntry, ...]:
    """The formula of a number that is plain arithmetic on others, with what goes in; ``look_up`` finds a value."""
    leaf = key.rsplit(".", 1)[-1]
    if leaf not in ARITHMETIC:
        return ()
    text, inputs = ARITHMETIC[leaf]
    found = [(name, look_up(name)) for name in inputs]
    children = tuple(ExplanationEntry(name=name, value=value) for name, value in found if value is not None)
    return (ExplanationEntry(name=leaf, value=value, unit=unit, what=_(text), children=children),)
