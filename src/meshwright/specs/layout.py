"""Layout: how a job is cut over the GPUs. One row (pydantic) or many (``LayoutBatch``, numpy columns).

The column names are those of the JSON and of ``--layout``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import PositiveInt, computed_field, model_validator

from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import Noun
from meshwright.specs.limits import GPUS, at_most

IntArray = npt.NDArray[np.int32]

#: Modules that can be recomputed, bit by bit; an operator and a saved activation name the module they belong to.
#: ``moe_activation`` is the activation function inside the experts, ``mla_up`` the up-projections of latent attention.
RECOMPUTE_MODULES = ("core_attention", "attention", "mlp", "norm", "layer", "moe", "moe_activation", "mla_up")
RECOMPUTE_BITS = {module: 1 << i for i, module in enumerate(RECOMPUTE_MODULES)}
#: The names people use. Selective is arXiv 2205.05198's: the attention core; full keeps each layer's input only.
RECOMPUTE_NAMES = {"none": 0, "selective": RECOMPUTE_BITS["core_attention"], "full": RECOMPUTE_BITS["layer"]}

#: Rank order, fastest-varying axis first (Megatron's ``--order`` notation). Experts are folded into tp x cp x dp.
DEFAULT_RANK_ORDER = "tp-cp-dp-pp"
#: The orders a search tries, Megatron's two; the second is its ``--use-tp-pp-dp-mapping``: pipeline neighbours before
#: replicas. TP comes first in both: it sends most.
RANK_ORDERS = (DEFAULT_RANK_ORDER, "tp-cp-pp-dp")
#: The axes that a rank order names, each once.
ORDERED_AXES = ("tp", "cp", "dp", "pp")
#: ``even``: equal layers a stage, the first stages take the remainder. ``ends``: embedding and head each count as a
#: layer (Megatron's ``--account-for-embedding-in-pipeline-split`` and its loss twin). Else an explicit ``5-6-6-5``.
STAGE_SPLIT_NAMES = ("even", "ends")
#: How context parallelism exchanges: ``ring`` passes keys and values on (zigzag, so that causal work is even),
#: ``ulysses`` turns sequence shards into head shards by all-to-all, ``allgather`` gathers keys and values first.
CP_KINDS = ("ring", "ulysses", "allgather")
#: How tokens reach their experts: NCCL's all-to-all, an all-gather of all tokens, or DeepEP's kernels.
DISPATCHERS = ("alltoall", "allgather", "deepep")
#: Where offloaded state lives.
OFFLOADS = ("none", "cpu", "nvme")
#: Columns whose values are words of a fixed list; the batch holds their position in it.
WORDS = {
    "cp_kind": CP_KINDS,
    "dispatcher": DISPATCHERS,
    "offload_optimizer": OFFLOADS,
    "offload_parameters": OFFLOADS,
}


class Layout(Noun):
    """One layout. ``micro_batch`` in sequences; ``vpp`` model chunks a pipeline rank (1: not interleaved).

    ``zero_stage`` 1 shards the optimizer state, 2 the gradients too, 3 the weights too, over ``dp_shard`` of the
    ``dp`` replicas and over ``cp``; ``dp_replicate`` such shard groups hold equal copies (HSDP).
    Stage 3 with ``reshard_after_forward`` is FSDP's full sharding; without it weights stay gathered from forward to
    backward. ``ep`` x ``etp`` ranks of tp x cp x dp share the experts of a layer.
    """

    dp: PositiveInt = 1
    dp_replicate: PositiveInt = 1
    tp: PositiveInt = 1
    sp: bool = False
    cp: PositiveInt = 1
    cp_kind: Literal["ring", "ulysses", "allgather"] = "ring"
    pp: PositiveInt = 1
    vpp: PositiveInt = 1
    schedule: str = "1f1b"
    stage_split: str = "even"
    ep: PositiveInt = 1
    etp: PositiveInt = 1
    dispatcher: Literal["alltoall", "allgather", "deepep"] = "alltoall"
    zero_stage: Literal[0, 1, 2, 3] = 1
    reshard_after_forward: bool = True
    micro_batch: PositiveInt = 1
    recompute: str = "none"
    offload_optimizer: Literal["none", "cpu", "nvme"] = "none"
    offload_parameters: Literal["none", "cpu", "nvme"] = "none"
    rank_order: str = DEFAULT_RANK_ORDER

    @model_validator(mode="before")
    @classmethod
    def _degrees(cls, values: Any) -> Any:
        return data_parallel_degrees(values) if isinstance(values, dict) else values

    @computed_field  # type: ignore[prop-decorator]
    @property
    def dp_shard(self) -> int:
        """Replicas over which ZeRO shards."""
        return max(self.dp // self.dp_replicate, 1)

    @property
    def n_gpus(self) -> int:
        """GPUs the layout uses."""
        return self.dp * self.tp * self.cp * self.pp


def data_parallel_degrees(values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` without ``dp_shard``: it says dp or dp_replicate, whichever is missing.

    All three may be there if they agree; where they do not, or one is no number, dp_shard stays and is refused.
    """
    shard = values.get("dp_shard")
    rest = {name: value for name, value in values.items() if name != "dp_shard"}
    degrees = [rest.get(name, 1) for name in ("dp", "dp_replicate")]
    if shard is None or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in (shard, *degrees)):
        return dict(values)
    if "dp" not in rest:
        return rest | {"dp": shard * degrees[1]}
    if "dp_replicate" not in rest and degrees[0] % shard == 0:
        return rest | {"dp_replicate": degrees[0] // shard}
    return rest if max(degrees[0] // degrees[1], 1) == shard else dict(values)


#: Degrees and micro-batches beyond this are typing errors, and would not fit the int32 columns together.
LARGEST_DEGREE = GPUS
#: An example value of each key, for messages.
_EXAMPLES = {
    "sp": "true",
    "reshard_after_forward": "true",
    "schedule": "1f1b",
    "stage_split": "even",
    "recompute": "full",
    "rank_order": DEFAULT_RANK_ORDER,
    **{name: words[0] for name, words in WORDS.items()},
}
#: What ``--layout`` and ``--fix`` take.
KEYS = (*Layout.model_fields, "dp_shard")
#: Short and misremembered spellings that are unambiguous.
_SYNONYMS = {"mbs": "micro_batch", "zero": "zero_stage", "order": "rank_order", "reshard": "reshard_after_forward"}
_SWITCH_WORDS = {
    "true": True,
    "yes": True,
    "1": True,
    "on": True,
    "false": False,
    "no": False,
    "0": False,
    "off": False,
}


def rank_order(text: str) -> str | None:
    """A rank order with every axis, from one that may leave out some: ``tp-dp-pp`` is ``tp-cp-dp-pp``.

    Context parallelism comes after tensor parallelism where it is left out, as in Megatron; ``ep`` may stand in it,
    as Megatron writes it, and says nothing: experts are folded into tp x cp x dp. None where it is no order.
    """
    axes = [axis for axis in text.split("-") if axis != "ep"]
    if "cp" not in axes and "tp" in axes:
        axes.insert(axes.index("tp") + 1, "cp")
    return "-".join(axes) if sorted(axes) == sorted(ORDERED_AXES) else None


def parse_layout(text: str, *, where: str = "--layout") -> dict[str, Any]:
    """``tp=4,pp=12,recompute=full`` as a dict of Layout fields (only those given).

    Raises InputError (MW-E130..MW-E134) that names the key, the value and the nearest right thing.
    """
    values: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        key = _SYNONYMS.get(key, key)
        if key not in KEYS:
            raise InputError(
                "MW-E130",
                _("'{key}' is not a layout key.").format(key=key),
                where=where,
                nearest=did_you_mean(key, KEYS, show=24),
            )
        if not equals or not value:
            raise InputError(
                "MW-E131",
                _("'{part}' is not key=value.").format(part=part),
                where=where,
                nearest=_("Write it like '{example}'.").format(example=f"{key}={_EXAMPLES.get(key, '4')}"),
            )
        if key in values:
            raise InputError(
                "MW-E131",
                _("'{key}' is given twice.").format(key=key),
                where=where,
                nearest=_("Keep one of them."),
            )
        values[key] = _parse_value(key, value, where)
    whole = data_parallel_degrees(values)
    if "dp_shard" in whole:
        raise InputError(
            "MW-E132",
            _("dp_shard = {shard} does not go into dp = {dp}.").format(shard=whole["dp_shard"], dp=whole.get("dp", 1)),
            where=where,
            nearest=_("dp is dp_shard times dp_replicate; say two of the three."),
        )
    return whole


def _parse_value(key: str, value: str, where: str) -> Any:
    place = f"{where} {key}"
    if key == "recompute":
        return recompute_name(recompute_mask(value, where=place))
    if key == "schedule":
        return value
    if key == "rank_order":
        order = rank_order(value)
        if order is None:
            raise InputError(
                "MW-E132",
                _("'{value}' is no value of {key}.").format(value=value, key=key),
                where=place,
                nearest=did_you_mean(value, RANK_ORDERS),
            )
        return order
    if key == "stage_split" or key in WORDS:
        known = WORDS.get(key, STAGE_SPLIT_NAMES)
        if value not in known and not (key == "stage_split" and re.fullmatch(r"\d+(-\d+)+", value)):
            raise InputError(
                "MW-E132",
                _("'{value}' is no value of {key}.").format(value=value, key=key),
                where=place,
                nearest=did_you_mean(value, (*known, "5-6-6-5") if key == "stage_split" else known),
            )
        return value
    if key in ("sp", "reshard_after_forward"):
        if value.lower() not in _SWITCH_WORDS:
            raise InputError(
                "MW-E132",
                _("'{value}' is not true or false.").format(value=value),
                where=place,
                nearest=did_you_mean(value, ("true", "false")),
            )
        return _SWITCH_WORDS[value.lower()]
    if not re.fullmatch(r"[+-]?\d+", value) or int(value) < (0 if key == "zero_stage" else 1):
        raise InputError(
            "MW-E132",
            _("'{value}' is not a whole number of at least {least}.").format(
                value=value, least=0 if key == "zero_stage" else 1
            ),
            where=place,
            nearest=_("Write it like '{example}'.").format(example=f"{key}=1"),
        )
    at_most(int(value), LARGEST_DEGREE, place, "MW-E132")
    if key == "zero_stage" and int(value) > 3:
        raise InputError(
            "MW-E133",
            _("there is no ZeRO stage {value}.").format(value=value),
            where=place,
            nearest=_("Stages 0 to 3 are: nothing, optimizer, gradients too, weights too."),
        )
    return int(value)


def recompute_mask(text: str, *, where: str = "recompute") -> int:
    """The bit mask of ``none``, ``selective``, ``full`` or modules joined with ``+``."""
    if text in RECOMPUTE_NAMES:
        return RECOMPUTE_NAMES[text]
    mask = 0
    for module in text.split("+"):
        if module not in RECOMPUTE_BITS:
            raise InputError(
                "MW-E134",
                _("'{module}' is not a module that can be recomputed beside others.").format(module=module)
                if module in RECOMPUTE_NAMES
                else _("'{module}' cannot be recomputed.").format(module=module),
                where=where,
                nearest=_("'{module}' stands alone.").format(module=module)
                if module in RECOMPUTE_NAMES
                else did_you_mean(module, (*RECOMPUTE_NAMES, *RECOMPUTE_MODULES), show=20),
            )
        mask |= RECOMPUTE_BITS[module]
    return mask


def recompute_name(mask: int) -> str:
    """The name of a recompute mask; ``layer`` swallows everything below it."""
    if mask & RECOMPUTE_BITS["layer"]:
        return "full"
    names = {value: name for name, value in RECOMPUTE_NAMES.items()}
    return names.get(mask) or "+".join(m for m, bit in RECOMPUTE_BITS.items() if mask & bit)


def _rows(column: IntArray, index: npt.NDArray[Any] | slice | Sequence[int]) -> IntArray:
    if isinstance(index, np.ndarray) and index.dtype != np.bool_:
        # Twice as fast as indexing; a search takes rows all the time.
        return np.asarray(column.take(index))
    return column[index]


#: Stands for a column that was not given; the batch fills in what it says by default.
_ABSENT = np.empty(0, np.int32)


@dataclass(slots=True)
class LayoutBatch:
    """Many layouts, one a row: int32 columns of equal length ``n``.

    ``schedule``, ``stage_split`` and ``rank_order`` are codes into the name tuples ``schedules``, ``stage_splits``
    and ``rank_orders``; the columns of WORDS are positions in those lists; ``recompute`` is the bit mask of
    RECOMPUTE_MODULES. Columns that are not given say what ``Layout`` says by default. ``cell``, where whoever made
    the rows knows it, numbers them so that rows of one cell differ in SWITCHES only: it spares looking for equal rows.
    """

    dp: IntArray
    tp: IntArray
    sp: IntArray
    pp: IntArray
    vpp: IntArray
    schedule: IntArray
    stage_split: IntArray
    zero_stage: IntArray
    micro_batch: IntArray
    recompute: IntArray
    rank_order: IntArray
    dp_replicate: IntArray = field(default_factory=lambda: _ABSENT)
    cp: IntArray = field(default_factory=lambda: _ABSENT)
    cp_kind: IntArray = field(default_factory=lambda: _ABSENT)
    ep: IntArray = field(default_factory=lambda: _ABSENT)
    etp: IntArray = field(default_factory=lambda: _ABSENT)
    dispatcher: IntArray = field(default_factory=lambda: _ABSENT)
    reshard_after_forward: IntArray = field(default_factory=lambda: _ABSENT)
    offload_optimizer: IntArray = field(default_factory=lambda: _ABSENT)
    offload_parameters: IntArray = field(default_factory=lambda: _ABSENT)
    schedules: tuple[str, ...] = ("1f1b", "interleaved")
    stage_splits: tuple[str, ...] = STAGE_SPLIT_NAMES
    rank_orders: tuple[str, ...] = (DEFAULT_RANK_ORDER,)
    cell: IntArray | None = None
    _source: LayoutBatch | None = field(default=None, init=False, repr=False, compare=False)
    _index: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        n = len(self.dp)
        for name, value in _DEFAULTS.items():
            if len(getattr(self, name)) != n:
                setattr(self, name, np.full(n, value, np.int32))

    def __len__(self) -> int:
        return len(self.dp)

    @property
    def dp_shard(self) -> IntArray:
        """Replicas over which ZeRO shards, (n,)."""
        return np.asarray(np.maximum(self.dp // self.dp_replicate, 1), np.int32)

    def take(self, index: npt.NDArray[Any] | slice | Sequence[int]) -> LayoutBatch:
        """The rows of ``index`` (positions, slice or boolean mask).

        A column is gathered when it is first asked for: a search takes rows all the time and looks at few columns.
        """
        rows = object.__new__(LayoutBatch)
        rows.schedules, rows.stage_splits, rows.rank_orders = self.schedules, self.stage_splits, self.rank_orders
        rows._source, rows._index = self, index
        return rows

    def __getattr__(self, name: str) -> Any:
        # Only asked for slots that are not filled yet.
        if name not in _GATHERED:
            raise AttributeError(name)
        whole = getattr(self._source, name)
        column = None if whole is None else _rows(whole, self._index)
        setattr(self, name, column)
        return column

    def row(self, i: int) -> Layout:
        """Row ``i`` as a Layout."""
        values: dict[str, Any] = {name: int(getattr(self, name)[i]) for name in COLUMNS}
        words = {name: known[values[name]] for name, known in WORDS.items()}
        return Layout(
            **values
            | words
            | {
                "sp": bool(values["sp"]),
                "reshard_after_forward": bool(values["reshard_after_forward"]),
                "schedule": self.schedules[values["schedule"]],
                "stage_split": self.stage_splits[values["stage_split"]],
                "rank_order": self.rank_orders[values["rank_order"]],
                "recompute": recompute_name(values["recompute"]),
            }
        )

    @classmethod
    def of(cls, layouts: Iterable[Layout]) -> LayoutBatch:
        """A batch of single layouts."""
        rows = list(layouts)
        schedules = tuple(dict.fromkeys(row.schedule for row in rows))
        splits = tuple(dict.fromkeys(row.stage_split for row in rows))
        orders = tuple(dict.fromkeys(row.rank_order for row in rows))
        codes: dict[str, list[int]] = {
            "schedule": [schedules.index(row.schedule) for row in rows],
            "stage_split": [splits.index(row.stage_split) for row in rows],
            "rank_order": [orders.index(row.rank_order) for row in rows],
            "recompute": [recompute_mask(row.recompute) for row in rows],
        } | {name: [known.index(getattr(row, name)) for row in rows] for name, known in WORDS.items()}
        columns = {
            name: np.array(codes.get(name) or [int(getattr(row, name)) for row in rows], np.int32) for name in COLUMNS
        }
        return cls(**columns, schedules=schedules, stage_splits=splits, rank_orders=orders)


#: The columns in which the rows of one cell may differ.
SWITCHES = (
    "sp", "zero_stage", "dp_replicate", "reshard_after_forward", "recompute", "offload_optimizer", "offload_parameters",
    "rank_order",
)  # fmt: skip
#: The integer columns of LayoutBatch, in the order of Layout.
COLUMNS = tuple(Layout.model_fields)
#: What ``take`` gathers.
_GATHERED = frozenset((*COLUMNS, "cell"))
#: What the columns that may be left out hold then.
_DEFAULTS = {
    "dp_replicate": 1, "cp": 1, "cp_kind": 0, "ep": 1, "etp": 1, "dispatcher": 0, "reshard_after_forward": 1,
    "offload_optimizer": 0, "offload_parameters": 0,
}  # fmt: skip
