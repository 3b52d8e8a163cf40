"""The flags that several commands share, as dataclasses that cyclopts flattens into options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token

from meshwright.errors import InputError
from meshwright.i18n import _

if TYPE_CHECKING:
    from meshwright.specs.estimate import Estimate
    from meshwright.specs.plan import Plan
    from meshwright.specs.report import EstimateReport


def whole_number(_kind: Any, tokens: Sequence[Token]) -> int:
    """The whole number of an option's token. Raises InputError (MW-E103) for 1.5, which int() would cut to 1."""
    token = tokens[0]
    try:
        value = float(token.value)
        if value.is_integer():
            return int(value)
    except ValueError:
        pass
    message = _("'{value}' is not a whole number.").format(value=token.value)
    raise InputError("MW-E103", message, where=token.keyword)


def option(text: str, metavar: str | None = None, **more: Any) -> Parameter:
    """An option with its (translated) help; no ``--no-...`` twin and no default shown, None says "not said"."""
    return Parameter(help=text, metavar=metavar, negative="", show_default=False, **more)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OutputFlags:
    """How the answer is shown. ``--lang`` is taken out before parsing; it stands here for the help page."""

    json: Annotated[bool, option(_("Print one JSON document on stdout and nothing else."))] = False
    wide: Annotated[bool, option(_("Use the whole width of the terminal instead of 80 columns."))] = False
    lang: Annotated[str | None, option(_("Language: en or zh-CN (as the environment says)."), "LANG")] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FileFlags(OutputFlags):
    """The same for a verb that can also write its document to a file."""

    out: Annotated[Path | None, option(_("Write the JSON document to this file."), "FILE")] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ReportFlags(FileFlags):
    """The same for a verb that can also write a report."""

    report: Annotated[
        Path | None, option(_("Write a report to this HTML file, which opens without network."), "FILE")
    ] = None

    def write_report(self, answer: Plan | EstimateReport, scaling: Mapping[int, Estimate] | None = None) -> None:
        """Write the report, if one was asked for; ``scaling`` are the best layouts at other numbers of GPUs."""
        if self.report is not None:
            from meshwright.report.answer import write_report  # noqa: PLC0415 - plotly loads for a report only

            write_report(answer, self.report, scaling=scaling)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ClusterFlags:
    """Where it is trained, as text."""

    cluster: Annotated[
        str | None,
        option(_("'8xH100', '256x8 A100-80GB', '48x8 A100-80GB, 4x100Gb OPA', a TOML file, or local."), "TEXT"),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainingFlags:
    """What is trained and how, as text; the names are those of ``JobRequest``."""

    seq_len: Annotated[int | None, option(_("Sequence length in tokens."), "N", converter=whole_number)] = None
    global_batch: Annotated[int | None, option(_("Sequences in one optimizer step."), "N", converter=whole_number)] = (
        None
    )
    tokens: Annotated[
        str | None, option(_("Tokens of the whole training, such as 1.4T: asks for its time."), "COUNT")
    ] = None
    kind: Annotated[str | None, option(_("What a step does: pretrain, sft, dpo, grpo or ppo."), "NAME")] = None
    precision: Annotated[str | None, option(_("bf16, fp16, fp8, nvfp4, tf32 or fp32."), "NAME")] = None
    master_dtype: Annotated[
        str | None, option(_("The optimizer's own copy of the weights: fp32, bf16, fp16 or none."), "NAME")
    ] = None
    grad_dtype: Annotated[str | None, option(_("What gradients are accumulated in: fp32, bf16 or fp16."), "NAME")] = (
        None
    )
    optimizer: Annotated[str | None, option(_("adam, unfused_adam, adam_8bit, sgd, adafactor or muon."), "NAME")] = None
    lora: Annotated[
        int | None, option(_("Train LoRA adapters of this rank and nothing else."), "RANK", converter=whole_number)
    ] = None
    document_len: Annotated[
        int | None, option(_("Mean tokens of the documents packed into a sequence."), "N", converter=whole_number)
    ] = None
    expert_load: Annotated[float | None, option(_("Tokens of the fullest expert rank over the mean."), "RATIO")] = None
    attention: Annotated[str | None, option(_("flash, or unfused (writes the score matrix)."), "NAME")] = None
    overlap: Annotated[
        bool | None,
        Parameter(help=_("Hide data-parallel communication behind compute, or not."), show_default=False),
    ] = None
    cuda_graphs: Annotated[
        bool | None, Parameter(help=_("Launch kernels from CUDA graphs, or one by one."), show_default=False)
    ] = None
    set: Annotated[
        tuple[str, ...],
        option(
            _("Change one field of the job or the cluster, such as cluster.nics_per_node=8. Repeatable."),
            "PATH=VALUE",
            name="--set",
        ),
    ] = ()

    def fields(self) -> dict[str, Any]:
        """The fields for a request."""
        return dict(vars(self))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class JobFlags(TrainingFlags, ClusterFlags):
    """What is trained and where."""
