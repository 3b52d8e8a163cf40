"""Layout: how a job is cut over the GPUs. One row (pydantic) or many (``LayoutBatch``, numpy columns).

The column names are those of the JSON and of ``--layout``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import PositiveInt

from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.specs.fact import Noun
from meshwright.specs.limits import GPUS, at_most

IntArray = npt.NDArray[np.int32]

#: Modules that can be recomputed, bit by bit; an operator and a saved activation name the module they belong to.
RECOMPUTE_MODULES = ("core_attention", "attention", "mlp", "norm", "layer")
RECOMPUTE_BITS = {module: 1 << i for i, module in enumerate(RECOMPUTE_MODULES)}
#: The names people use. Selective is arXiv 2205.05198's: the attention core; full keeps each layer's input only.
RECOMPUTE_NAMES = {"none": 0, "selective": RECOMPUTE_BITS["core_attention"], "full": RECOMPUTE_BITS["layer"]}

#: Rank order, fastest-varying axis first (Megatron's ``--order`` notation).
DEFAULT_RANK_ORDER = "tp-dp-pp"
#: Megatron's two orders; the second is its ``--use-tp-pp-dp-mapping``: pipeline neighbours before replicas. TP always
#: comes first: it sends most.
RANK_ORDERS = (DEFAULT_RANK_ORDER, "tp-pp-dp")
#: ``even``: equal layers a stage, the first stages take the remainder. ``ends``: embedding and head each count as a
#: layer (Megatron's ``--account-for-embedding-in-pipeline-split`` and its loss twin). Else an explicit ``5-6-6-5``.
STAGE_SPLIT_NAMES = ("even", "ends")


class Layout(Noun):
    """One layout. ``micro_batch`` in sequences; ``vpp`` model chunks a pipeline rank (1: not interleaved)."""

    dp: PositiveInt = 1
    tp: PositiveInt = 1
    sp: bool = False
    pp: PositiveInt = 1
    vpp: PositiveInt = 1
    schedule: str = "1f1b"
    stage_split: str = "even"
    zero_stage: Literal[0, 1] = 1
    micro_batch: PositiveInt = 1
    recompute: str = "none"
    rank_order: str = DEFAULT_RANK_ORDER

    @property
    def n_gpus(self) -> int:
        """GPUs the layout uses."""
        return self.dp * self.tp * self.pp


#: Columns that layouts of other planners and later versions have; refused by name, not as unknown.
NOT_MODELLED = (
    "cp", "cp_kind", "ep", "etp", "dispatcher", "dp_shard", "dp_replicate", "reshard_after_forward",
    "offload_optimizer", "offload_parameters",
)  # fmt: skip
#: Degrees and micro-batches beyond this are typing errors, and would not fit the int32 columns together.
LARGEST_DEGREE = GPUS
#: An example value of each key, for messages.
_EXAMPLES = {"sp": "true", "schedule": "1f1b", "stage_split": "even", "recompute": "full", "rank_order": "tp-dp-pp"}
#: Short and misremembered spellings that are unambiguous.
_SYNONYMS = {"mbs": "micro_batch", "zero": "zero_stage", "order": "rank_order"}


def parse_layout(text: str, *, where: str = "--layout") -> dict[str, Any]:
    """``tp=4,pp=12,recompute=full`` as a dict of Layout fields (only those given).

    Raises InputError (MW-E130..MW-E134) that names the key, the value and the nearest right thing.
    """
    values: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        key = _SYNONYMS.get(key, key)
        if key in NOT_MODELLED:
            raise InputError(
                "MW-E133",
                _("'{key}' is not modelled yet.").format(key=key),
                where=where,
                nearest=_("Known: {names}.").format(names=", ".join(Layout.model_fields)),
            )
        if key not in Layout.model_fields:
            raise InputError(
                "MW-E130",
                _("'{key}' is not a layout key.").format(key=key),
                where=where,
                nearest=did_you_mean(key, Layout.model_fields, show=20),
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
    return values


def _parse_value(key: str, value: str, where: str) -> Any:
    place = f"{where} {key}"
    if key == "recompute":
        return recompute_name(recompute_mask(value, where=place))
    if key == "schedule":
        return value
    if key in ("stage_split", "rank_order"):
        known = STAGE_SPLIT_NAMES if key == "stage_split" else RANK_ORDERS
        if value not in known and not (key == "stage_split" and re.fullmatch(r"\d+(-\d+)+", value)):
            raise InputError(
                "MW-E132",
                _("'{value}' is not a {key}.").format(value=value, key=key),
                where=place,
                nearest=did_you_mean(value, (*known, "5-6-6-5") if key == "stage_split" else known),
            )
        return value
    if key == "sp":
        words = {
            "true": True,
            "yes": True,
            "1": True,
            "on": True,
            "false": False,
            "no": False,
            "0": False,
            "off": False,
        }
        if value.lower() not in words:
            raise InputError(
                "MW-E132",
                _("'{value}' is not true or false.").format(value=value),
                where=place,
                nearest=did_you_mean(value, ("true", "false")),
            )
        return words[value.lower()]
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
    if key == "zero_stage" and int(value) > 1:
        raise InputError(
            "MW-E133",
            _("ZeRO stage {value} is not modelled yet.").format(value=value),
            where=place,
            nearest=_("Stages 0 and 1 are."),
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


@dataclass(slots=True)
class LayoutBatch:
    """Many layouts, one a row: int32 columns of equal length ``n``.

    ``schedule``, ``stage_split`` and ``rank_order`` are codes into the name tuples ``schedules``, ``stage_splits``
    and ``rank_orders``; ``recompute`` is the bit mask of RECOMPUTE_MODULES. ``cell``, where whoever made the rows
    knows it, numbers them so that rows of one cell differ in SWITCHES only: it spares looking for equal rows.
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
    schedules: tuple[str, ...] = ("1f1b", "interleaved")
    stage_splits: tuple[str, ...] = STAGE_SPLIT_NAMES
    rank_orders: tuple[str, ...] = (DEFAULT_RANK_ORDER,)
    cell: IntArray | None = None

    def __len__(self) -> int:
        return len(self.dp)

    def take(self, index: npt.NDArray[Any] | slice | Sequence[int]) -> LayoutBatch:
        """The rows of ``index`` (positions, slice or boolean mask)."""
        return LayoutBatch(
            **{name: _rows(getattr(self, name), index) for name in COLUMNS},
            schedules=self.schedules,
            stage_splits=self.stage_splits,
            rank_orders=self.rank_orders,
            cell=None if self.cell is None else _rows(self.cell, index),
        )

    def row(self, i: int) -> Layout:
        """Row ``i`` as a Layout."""
        values: dict[str, Any] = {name: int(getattr(self, name)[i]) for name in COLUMNS}
        return Layout(
            **values
            | {
                "sp": bool(values["sp"]),
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
        }
        columns = {
            name: np.array(codes.get(name) or [int(getattr(row, name)) for row in rows], np.int32) for name in COLUMNS
        }
        return cls(**columns, schedules=schedules, stage_splits=splits, rank_orders=orders)


#: The columns in which the rows of one cell may differ.
SWITCHES = ("sp", "zero_stage", "recompute", "rank_order")
#: The integer columns of LayoutBatch, in order.
COLUMNS = tuple(Layout.model_fields)
