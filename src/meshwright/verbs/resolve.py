"""From text to nouns: what was asked for is looked up, what was not said is assumed and written down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, get_args

from meshwright import catalog
from meshwright.costmodel import block as blocks
from meshwright.costmodel.schedule import schedules
from meshwright.errors import InputError, did_you_mean
from meshwright.i18n import _
from meshwright.ingest.model_file import read_model
from meshwright.plan.change import Case, apply, parse_change
from meshwright.specs.constants import Constants
from meshwright.specs.hardware import Cluster, Gpu
from meshwright.specs.job import OPTIMIZER_ALIASES, TrainingJob
from meshwright.specs.layout import Layout, parse_layout
from meshwright.specs.limits import EXPERT_LOAD, LORA_RANK, SEQUENCES, TOKENS_PER_SEQUENCE, at_most, shortened
from meshwright.specs.model import BlockSpec, ModelSpec
from meshwright.specs.plan import Assumed, Change
from meshwright.specs.request import JobRequest
from meshwright.units import parse_quantity

#: Tokens of one step when no batch is given: what the published runs of 65B to 405B models trained with
#: (GPT-3 3.2 M: arXiv 2005.14165; LLaMA 4 M: 2302.13971; Llama 3 8..16 M after warm-up: 2407.21783).
DEFAULT_TOKENS_PER_STEP = 4_194_304
#: Sequences of one step of fine-tuning, preference pairs or RL: 128 pairs, as Tulu 3 (arXiv 2411.15124, recalled).
DEFAULT_POST_TRAINING_SEQUENCES = 256
#: Longest sequence assumed unasked: pre-training uses far less than what long-context models can do in the end.
DEFAULT_LONGEST_SEQUENCE = 8_192
#: The modelled choices; others are refused by name instead of being silently replaced.
KINDS, PRECISIONS, OPTIMIZERS, ATTENTIONS, MASTER_DTYPES, GRAD_DTYPES = (
    tuple(str(name) for name in get_args(TrainingJob.model_fields[field].annotation))
    for field in ("kind", "precision", "optimizer", "attention", "master_dtype", "grad_dtype")
)
#: Precisions that are taken unasked, the first that the GPU has.
USUAL_PRECISIONS = ("bf16", "fp16", "fp32")
#: MXFP8 is arithmetic of Blackwell's tensor cores (Transformer Engine, MXFP8: SM 10.0 and later).
MXFP8_COMPUTE_CAPABILITY = 100
#: FlashAttention-2 and -3 run on Ampere and later (its README); earlier NVIDIA chips have no supported kernel.
FLASH_COMPUTE_CAPABILITY = 80


@dataclass(frozen=True, slots=True)
class Resolved:
    """The nouns of a request. ``assumed`` has no sensitivities yet."""

    job: TrainingJob
    cluster: Cluster
    constants: Constants
    assumed: dict[str, Assumed]

    def assuming(self, *more: Assumed | None) -> Resolved:
        """The same with these assumptions too; None is none."""
        return replace(self, assumed=self.assumed | {each.name: each for each in more if each is not None})


def resolve(request: JobRequest) -> Resolved:
    """The nouns that ``request`` speaks about.

    Raises InputError: MW-E401 no model, MW-E402 no cluster, MW-E403 a number below one, MW-E404 an unknown or
    unmodelled choice, MW-E405 a choice that the GPU does not have, and those of the catalog and of ``--set``.
    """
    model = _model(request)
    cluster, assumed_of_cluster = _cluster(request)
    assumed = {assumption.name: assumption for assumption in assumed_of_cluster}
    seq_len = _seq_len(request, model, assumed)
    fields: dict[str, Any] = {
        "model": model,
        "seq_len": seq_len,
        "kind": _choice("kind", request.kind, KINDS) or "pretrain",
        "tokens": None if request.tokens is None else _tokens(request.tokens),
        "precision": _precision(request, cluster.gpu, assumed),
        "optimizer": _choice("optimizer", request.optimizer, (*OPTIMIZERS, *OPTIMIZER_ALIASES)) or "adam",
        "attention": _attention(request, model, cluster.gpu, assumed),
    }
    fields["global_batch"] = _global_batch(request, cluster, seq_len, fields["kind"], assumed)
    fields["grad_dtype"] = _grad_dtype(request, fields["precision"], assumed)
    fields |= _given(request)
    fields |= _switches(request, assumed)
    fields["gradient_accumulation_fusion"] = _accumulation_fusion(fields["attention"], assumed)
    case = Case(TrainingJob(**fields), cluster, Layout())
    said = {name for name in ("expert_load_ratio",) if name in fields}
    for text in request.set:
        change = settable(text)
        if change.path.startswith("layout."):
            raise InputError(
                "MW-E151",
                _("'{path}' is a column of the layout.").format(path=change.path),
                where="--set",
                nearest=_("Use --fix for a plan and --layout for an estimate."),
            )
        case = apply(change, case)
        assumed = still_assumed(assumed, change)
        said.add(change.path.removeprefix("job."))
    job = _with_recipe(case.job, case.cluster.gpu, said, assumed)
    check_runnable(job, case.cluster.gpu)
    _assume_by_kind(job, said, assumed)
    return Resolved(job, case.cluster, constants(), assumed)


def settable(text: str) -> Change:
    """``parse_change`` without the model: everything else was resolved for it. Raises InputError MW-E151."""
    change = parse_change(text)
    if change.path == "job.model" or change.path.startswith("job.model."):
        raise InputError(
            "MW-E151",
            _("the model cannot be changed by --set."),
            where=f"--set {change.path}",
            nearest=_("Name another MODEL, or describe one in a TOML file."),
        )
    return change


def layout_values(text: str, *, where: str = "--layout") -> dict[str, Any]:
    """``parse_layout`` with the schedules that there are. Raises InputError MW-E132 for another one."""
    values = parse_layout(text, where=where)
    known = sorted(schedules())
    if (schedule := values.get("schedule", known[0])) not in known:
        raise InputError(
            "MW-E132",
            _("'{value}' is not a {key}.").format(value=schedule, key="schedule"),
            where=f"{where} schedule",
            nearest=did_you_mean(schedule, known),
        )
    return values


def nearest_batch(global_batch: int, share: int) -> int:
    """The multiple of ``share`` (dp x micro_batch sequences) that is nearest to ``global_batch``; at least one."""
    return share * max(1, round(global_batch / share))


def still_assumed(assumed: dict[str, Assumed], change: Change) -> dict[str, Assumed]:
    """The assumptions that are left after ``change``: what was set is no longer assumed."""
    name_set = change.path.split(".")[1]
    return {
        name: assumption
        for name, assumption in assumed.items()
        if name != name_set and (assumption.alternative is None or assumption.alternative.path != change.path)
    }


def constants() -> Constants:
    """The constants of the catalog."""
    return catalog.constants()


def _model(request: JobRequest) -> ModelSpec:
    if not request.model or not request.model.strip():
        raise InputError(
            "MW-E401",
            _("no model was given."),
            where="MODEL",
            nearest=_("Known: {names}.").format(names=", ".join(catalog.names("model")[:6])),
        )
    return read_model(request.model)


def _cluster(request: JobRequest) -> tuple[Cluster, tuple[Assumed, ...]]:
    if not request.cluster or not request.cluster.strip():
        raise InputError(
            "MW-E402",
            _("no cluster was given."),
            where="--cluster",
            nearest=_("Write it like '{example}'.").format(example="8xH100"),
        )
    return catalog.cluster(request.cluster)


def with_site(resolved: Resolved) -> Resolved:
    """The same with what surrounds the cluster: what was not said of it is assumed."""
    cluster, assumed = catalog.with_site(resolved.cluster)
    return replace(resolved, cluster=cluster).assuming(*assumed)


def at_least_one(value: int, where: str) -> int:
    """``value`` if it is a positive count. Raises InputError (MW-E403)."""
    if value < 1:
        raise InputError(
            "MW-E403",
            _("{value} must be one or more.").format(value=shortened(value)),
            where=where,
            nearest=_("The least is {least}.").format(least=1),
        )
    return value


def positive_quantity(text: str, dimension: str, where: str) -> float:
    """A quantity of at least one SI unit of ``dimension``. Raises InputError (MW-E403 and those of quantities)."""
    limit = parse_quantity(text, dimension, where=where)
    at_least_one(int(limit), where)
    return limit


def _seq_len(request: JobRequest, model: ModelSpec, assumed: dict[str, Assumed]) -> int:
    if request.seq_len is not None:
        return at_most(at_least_one(request.seq_len, "--seq-len"), TOKENS_PER_SEQUENCE, "--seq-len")
    value = min(model.max_position_embeddings, DEFAULT_LONGEST_SEQUENCE)
    if value == model.max_position_embeddings:
        why = _("the longest of {model}").format(model=model.name)
    else:
        why = _("{model} goes up to {longest}; pre-training is shorter").format(
            model=model.name, longest=model.max_position_embeddings
        )
    assumed["seq_len"] = Assumed(
        name="seq_len", value=value, why=why, alternative=Change(path="job.seq_len", value=max(1, value // 2))
    )
    return value


def _global_batch(request: JobRequest, cluster: Cluster, seq_len: int, kind: str, assumed: dict[str, Assumed]) -> int:
    if request.global_batch is not None:
        return at_most(at_least_one(request.global_batch, "--global-batch"), SEQUENCES, "--global-batch")
    if kind == "pretrain":
        value = default_global_batch(cluster.n_gpus, seq_len)
        why = _("about 4 M tokens a step, a multiple that the GPUs can share")
    else:
        # Whole pairs: a DPO pair is two sequences.
        value = 2 * _shared_evenly(cluster.n_gpus, DEFAULT_POST_TRAINING_SEQUENCES // 2)
        why = _("about {count} sequences a step, a multiple that the GPUs can share").format(
            count=DEFAULT_POST_TRAINING_SEQUENCES
        )
    assumed["global_batch"] = Assumed(
        name="global_batch",
        value=value,
        why=why,
        alternative=Change(path="job.global_batch", value=2 * value),
    )
    return value


def default_global_batch(n_gpus: int, seq_len: int) -> int:
    """Sequences a step when none are given: near DEFAULT_TOKENS_PER_STEP, and shared evenly by many dp degrees."""
    return _shared_evenly(n_gpus, max(1, DEFAULT_TOKENS_PER_STEP // seq_len))


def _shared_evenly(n_gpus: int, target: int) -> int:
    """A multiple of ``n_gpus``, or of ``n_gpus`` halved as often as it takes to stay near the target."""
    share = n_gpus
    while share > target and share % 2 == 0:
        share //= 2
    times = max(1, round(target / share))
    # Three significant bits: 887 sequences a GPU, a prime, would leave no micro-batch between one and all of them.
    step = 1 << max(0, times.bit_length() - 3)
    return share * step * round(times / step)


def _tokens(text: str) -> float:
    tokens = parse_quantity(text, "count", where="--tokens")
    if tokens < 1:
        raise InputError(
            "MW-E403",
            _("{value} must be one or more.").format(value=text),
            where="--tokens",
            nearest=_("Write it like '{example}'.").format(example="1.4T"),
        )
    return tokens


def _choice(name: str, value: str | None, known: tuple[str, ...]) -> str | None:
    """The value folded to the known spelling. Raises InputError (MW-E404) for one that is not modelled."""
    if value is None:
        return None
    folded = value.strip().casefold()
    if folded not in known:
        raise InputError(
            "MW-E404",
            _("{name} '{value}' is not modelled.").format(name=name, value=value),
            where=f"--{name.replace('_', '-')}",
            nearest=did_you_mean(value, known),
        )
    return folded


def _precision(request: JobRequest, gpu: Gpu, assumed: dict[str, Assumed]) -> str:
    has = [name for name in USUAL_PRECISIONS if name in gpu.peak_flops_per_s]
    chosen = _choice("precision", request.precision, PRECISIONS)
    if not has:
        raise InputError(
            "MW-E405",
            _("{gpu} has no peak for bf16, fp16 or fp32 in the catalog.").format(gpu=gpu.name),
            where="--cluster",
            nearest=_("`mw catalog gpu` lists what each GPU has."),
        )
    if chosen is None:
        chosen = has[0]
        why = (
            _("{gpu} has it")
            if chosen == "bf16"
            else _("{gpu} has no bf16")
            if chosen == "fp16"
            else _("{gpu} has neither bf16 nor fp16")
        ).format(gpu=gpu.name)
        # Both run at the same rate where a chip has both, so there is no alternative that moves the answer.
        assumed["precision"] = Assumed(name="precision", value=chosen, why=why)
    return chosen


def check_runnable(job: TrainingJob, gpu: Gpu) -> None:
    """Refuse a precision that the GPU does not have (MW-E405) and frozen blocks that the model does not (MW-E404)."""
    has = [name for name in PRECISIONS if name in gpu.peak_flops_per_s]
    # A narrow format needs a wide one beside it.
    if job.precision not in has or (job.low_precision and job.wide_dtype not in has):
        raise InputError(
            "MW-E405",
            _("{gpu} has no {precision}.").format(gpu=gpu.name, precision=job.precision),
            where="--precision",
            nearest=_("It has {names}.").format(names=", ".join(has)),
        )
    if job.precision == "fp8" and job.fp8_recipe == "mxfp8" and 0 < gpu.compute_capability < MXFP8_COMPUTE_CAPABILITY:
        raise InputError(
            "MW-E405",
            _("{gpu} has no {precision}.").format(gpu=gpu.name, precision="mxfp8"),
            where="job.fp8_recipe",
            nearest=_("Use {name}.").format(name="tensorwise"),
        )
    kinds = {block.kind for block in _blocks(job.model)}
    for kind in job.frozen:
        if kind not in kinds:
            raise InputError(
                "MW-E404",
                _("{model} has no blocks of kind '{kind}'.").format(model=job.model.name, kind=kind),
                where="job.frozen",
                nearest=did_you_mean(kind, sorted(kinds)),
            )


def _blocks(model: ModelSpec) -> list[BlockSpec]:
    layers = [block for group in model.layers for block in group.blocks]
    return [*model.prologue, *layers, *model.epilogue]


def _with_recipe(job: TrainingJob, gpu: Gpu, said: set[str], assumed: dict[str, Assumed]) -> TrainingJob:
    """The job with the FP8 recipe that is usual on ``gpu``, unless one was named."""
    if job.precision != "fp8" or "fp8_recipe" in said:
        return job
    if gpu.compute_capability >= MXFP8_COMPUTE_CAPABILITY:
        name, other, why = "mxfp8", "tensorwise", _("{gpu} multiplies scaled blocks itself").format(gpu=gpu.name)
    else:
        name, other, why = "tensorwise", "blockwise", _("one scale a tensor, taken from the tensor itself")
    assumed["fp8_recipe"] = Assumed(
        name="fp8_recipe", value=name, why=why, alternative=Change(path="job.fp8_recipe", value=other)
    )
    return job.model_copy(update={"fp8_recipe": name})


def _assume_by_kind(job: TrainingJob, said: set[str], assumed: dict[str, Assumed]) -> None:
    """Write down what only some jobs and models assume: rollouts, a reference model, the balance of experts."""
    rollouts = job.kind in ("grpo", "ppo")
    if rollouts and "rollout_ratio" not in said:
        assumed["rollout_ratio"] = Assumed(
            name="rollout_ratio",
            value=job.rollout_ratio,
            why=_("OpenRLHF reports 80 % of an iteration, arXiv 2405.11143; long answers take more"),
            alternative=Change(path="job.rollout_ratio", value=0.5),
        )
    if (rollouts or job.kind == "dpo") and "reference_forward" not in said:
        assumed["reference_forward"] = Assumed(
            name="reference_forward",
            value=job.reference_forward,
            why=_("the reference model runs in the step, none of its outputs were stored"),
            alternative=Change(path="job.reference_forward", value=not job.reference_forward),
        )
    routed = any(blocks.kind(block).parameters(job.model, block).expert for block in _blocks(job.model))
    if routed and "expert_load_ratio" not in said:
        assumed["expert_load_ratio"] = Assumed(
            name="expert_load_ratio",
            value=job.expert_load_ratio,
            why=_("balanced: every expert rank gets as many tokens"),
            alternative=Change(path="job.expert_load_ratio", value=1.2),
        )


def _given(request: JobRequest) -> dict[str, Any]:
    """The fields that stay at the job's own defaults unless the request names them."""
    found: dict[str, Any] = {"master_dtype": _choice("master_dtype", request.master_dtype, MASTER_DTYPES)}
    if request.lora is not None:
        found["lora_rank"] = at_most(at_least_one(request.lora, "--lora"), LORA_RANK, "--lora")
    if request.document_len is not None:
        found["document_len"] = at_most(
            at_least_one(request.document_len, "--document-len"), TOKENS_PER_SEQUENCE, "--document-len"
        )
    if request.expert_load is not None:
        if not 1.0 <= request.expert_load <= EXPERT_LOAD:
            raise InputError(
                "MW-E403",
                _("{value} is no ratio of the fullest expert rank to the mean.").format(value=request.expert_load),
                where="--expert-load",
                nearest=_("It is 1 where experts are balanced, and above it where they are not."),
            )
        found["expert_load_ratio"] = request.expert_load
    return {name: value for name, value in found.items() if value is not None}


def has_flash_attention(gpu: Gpu) -> bool:
    """Whether a supported flash-attention kernel exists (NVIDIA: Ampere and later; other vendors bring their own)."""
    return gpu.compute_capability == 0 or gpu.compute_capability >= FLASH_COMPUTE_CAPABILITY


def _attention(request: JobRequest, model: ModelSpec, gpu: Gpu, assumed: dict[str, Assumed]) -> str:
    chosen = _choice("attention", request.attention, ATTENTIONS)
    possible = has_flash_attention(gpu)
    if chosen == "flash" and not possible:
        raise InputError(
            "MW-E405",
            _("FlashAttention does not run on {gpu}.").format(gpu=gpu.name),
            where="--attention",
            nearest=_("Use {name}.").format(name="unfused"),
        )
    if chosen is None:
        chosen, why = _usual_attention(model, gpu)
        assumed["attention"] = Assumed(
            name="attention",
            value=chosen,
            why=why,
            alternative=Change(path="job.attention", value="unfused" if chosen == "flash" else "flash")
            if possible
            else None,
        )
    return chosen


def _usual_attention(model: ModelSpec, gpu: Gpu) -> tuple[str, str]:
    """The attention kernel that such a model usually trains with on ``gpu``, and why."""
    if not has_flash_attention(gpu):
        return "unfused", _("FlashAttention does not run on {gpu}").format(gpu=gpu.name)
    if any(block.options.get("alibi") for block in _blocks(model)):
        return "unfused", _("Megatron's fused kernels have no ALiBi bias")
    return "flash", _("every current framework uses it")


def _grad_dtype(request: JobRequest, precision: str, assumed: dict[str, Assumed]) -> str:
    chosen = _choice("grad_dtype", request.grad_dtype, GRAD_DTYPES)
    if chosen is None:
        chosen = "fp32"
        narrower = {"fp16": "fp16", "fp32": None, "tf32": None}.get(precision, "bf16")
        assumed["grad_dtype"] = Assumed(
            name="grad_dtype",
            value=chosen,
            why=_("Megatron accumulates and reduces gradients in fp32"),
            alternative=None if narrower is None else Change(path="job.grad_dtype", value=narrower),
        )
    return chosen


def _accumulation_fusion(attention: str, assumed: dict[str, Assumed]) -> bool:
    """Whether weight gradients are accumulated inside their GEMM: stacks with fused attention do that too."""
    fused = attention == "flash"
    assumed["gradient_accumulation_fusion"] = Assumed(
        name="gradient_accumulation_fusion",
        value=fused,
        why=(
            _("usual where attention is fused")
            if fused
            else _("stacks without fused attention add in a pass of its own")
        ),
        alternative=Change(path="job.gradient_accumulation_fusion", value=not fused),
    )
    return fused


def _switches(request: JobRequest, assumed: dict[str, Assumed]) -> dict[str, bool]:
    overlap = request.overlap if request.overlap is not None else True
    cuda_graphs = bool(request.cuda_graphs)
    if request.overlap is None:
        for name in ("overlap_grad_reduce", "overlap_param_gather"):
            assumed[name] = Assumed(
                name=name,
                value=True,
                why=_("the usual setting of large runs"),
                alternative=Change(path=f"job.{name}", value=False),
            )
    if request.cuda_graphs is None:
        assumed["cuda_graphs"] = Assumed(
            name="cuda_graphs",
            value=False,
            why=_("off unless switched on"),
            alternative=Change(path="job.cuda_graphs", value=True),
        )
    return {"overlap_grad_reduce": overlap, "overlap_param_gather": overlap, "cuda_graphs": cuda_graphs}
