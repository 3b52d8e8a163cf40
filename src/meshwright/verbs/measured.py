"""Files of measured runs as cases: rows with a job, a cluster, a layout and the measured step time."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from meshwright import catalog
from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.specs.hardware import Cluster
from meshwright.specs.job import TrainingJob
from meshwright.specs.layout import Layout
from meshwright.specs.limits import GPUS, LAYERS, LAYOUT, SEQUENCES, TOKENS_PER_SEQUENCE, WIDTH
from meshwright.specs.model import Transformer
from meshwright.verbs.document import read_text


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """One measured run; ``skipped_because`` is set (and the nouns are None) where the row cannot be understood.

    ``column`` is the first column that cannot be read, None where all can.
    """

    id: str
    trust: str
    measured_s: float | None
    n_gpus: int | None = None
    job: TrainingJob | None = None
    cluster: Cluster | None = None
    layout: Layout | None = None
    skipped_because: str | None = None
    column: str | None = None


#: The columns of ``vtrain_a100.csv``: measured iterations of Megatron-DeepSpeed (VIA-Research/vTrain, MIT licence).
_VTRAIN_NUMBERS = ("n_gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "seq_len", "tp", "dp", "pp")
_VTRAIN_COLUMNS = ("id", *_VTRAIN_NUMBERS, "step_time_s", "trust")
#: What is larger is a slip, not a run.
_LARGEST: Mapping[str, int] = LAYOUT | {
    "n_gpus": GPUS,
    "global_batch": SEQUENCES,
    "seq_len": TOKENS_PER_SEQUENCE,
    "layers": LAYERS,
}
#: Servers of these runs: 8 A100-80GB with 4 HDR InfiniBand adapters (the file's description).
_VTRAIN_GPUS_PER_NODE = 8
_VTRAIN_CLUSTER = "1x8 A100-80GB, 4x200Gb IB"
_VTRAIN_VOCABULARY = 51_200


def vtrain(path: Path) -> list[MeasuredCase]:
    """Rows of a file with the columns of ``vtrain_a100.csv``.

    All rows share the setup of the file's description: Megatron-DeepSpeed, fp16 with fp16 gradients, full recompute,
    no ZeRO, unfused attention, gradients reduced after the backward, GPT with learned positions and dropout.
    Raises InputError: MW-E431 (no rows or columns missing) and those of reading a file.
    """
    node, _assumed = catalog.cluster(_VTRAIN_CLUSTER)
    return [_vtrain_case(row, node) for row in _table(path, _VTRAIN_COLUMNS)]


def _table(path: Path, columns: tuple[str, ...]) -> list[Mapping[str, str]]:
    hint = _("The columns are {names}.").format(names=", ".join(columns))
    lines = io.StringIO(read_text(path, if_empty=hint).lstrip("\ufeff"))
    reader = csv.DictReader(lines, skipinitialspace=True)
    present = list(reader.fieldnames or ())
    missing = [name for name in columns if name not in present]
    if missing:
        raise InputError(
            "MW-E431",
            _("missing columns: {names}.").format(names=", ".join(missing)),
            where=str(path),
            nearest=_("The file has {names}.").format(names=_shown(present)) if present else None,
        )
    # A short line has None in its last columns; they are left out.
    rows: list[Mapping[str, str]] = [{name: row[name] for name in columns if row[name] is not None} for row in reader]
    if not rows:
        raise InputError("MW-E431", _("the file holds no rows."), where=str(path))
    return rows


def _shown(names: list[str], most: int = 12) -> str:
    """The first names of a file, however wide it is."""
    return ", ".join(name[:40] for name in names[:most]) + (", ..." if len(names) > most else "")


def _is_number(column: str, text: str) -> bool:
    """Whether the text of a column is the kind of number that belongs there."""
    try:
        float(text) if column == "step_time_s" else int(text)
    except ValueError:
        return False
    return True


def _vtrain_case(row: Mapping[str, str], node: Cluster) -> MeasuredCase:
    name, trust = row.get("id", ""), row.get("trust", "")
    if len(row) < len(_VTRAIN_COLUMNS):
        missing = next(column for column in _VTRAIN_COLUMNS if column not in row)
        return MeasuredCase(name, trust, None, skipped_because=_("the row is cut short"), column=missing)
    if odd := [column for column in ("step_time_s", *_VTRAIN_NUMBERS) if not _is_number(column, row[column])]:
        reason = _("{column} is not a number").format(column=odd[0])
        return MeasuredCase(name, trust, None, skipped_because=reason, column=odd[0])
    measured_s = float(row["step_time_s"])
    number = {column: int(row[column]) for column in _VTRAIN_NUMBERS}
    low = [] if 0 < measured_s < float("inf") else ["step_time_s"]
    if low := [*low, *(column for column, value in number.items() if value < 1)]:
        return MeasuredCase(name, trust, None, skipped_because=_("a number is not positive"), column=low[0])
    if high := [column for column, value in number.items() if value > _LARGEST.get(column, WIDTH)]:
        return MeasuredCase(name, trust, measured_s, skipped_because=_("a number is too large"), column=high[0])
    n_gpus = number["n_gpus"]
    if n_gpus > _VTRAIN_GPUS_PER_NODE and n_gpus % _VTRAIN_GPUS_PER_NODE:
        return MeasuredCase(name, trust, measured_s, n_gpus, skipped_because=_("the GPUs do not fill their nodes"))
    per_node = min(n_gpus, _VTRAIN_GPUS_PER_NODE)
    cluster = node.model_copy(update={"n_nodes": n_gpus // per_node, "gpus_per_node": per_node})
    layout = Layout(
        dp=number["dp"],
        tp=number["tp"],
        pp=number["pp"],
        micro_batch=number["micro_batch"],
        zero_stage=0,
        recompute="full",
    )
    return MeasuredCase(name, trust, measured_s, n_gpus, _vtrain_job(number), cluster, layout)


def _vtrain_job(number: Mapping[str, int]) -> TrainingJob:
    hidden, heads = number["hidden"], number["heads"]
    model = Transformer(
        hidden_size=hidden,
        num_hidden_layers=number["layers"],
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=max(1, hidden // heads),
        intermediate_size=4 * hidden,
        vocab_size=_VTRAIN_VOCABULARY,
        max_position_embeddings=number["seq_len"],
        gated_mlp=False,
        activation="gelu",
        norm="layernorm",
        position="learned",
        qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
        dropout=True,
    )
    return TrainingJob(
        model=model.spec(f"gpt-{hidden}-{number['layers']}", "gpt"),
        seq_len=number["seq_len"],
        global_batch=number["global_batch"],
        precision="fp16",
        grad_dtype="fp16",
        attention="unfused",
        overlap_grad_reduce=False,
        overlap_param_gather=False,
        gradient_accumulation_fusion=False,
    )


#: kind of file -> its reader
KINDS: Mapping[str, Callable[[Path], list[MeasuredCase]]] = {"vtrain": vtrain}
