"""TrainingJob: what is trained and how, apart from where (Cluster) and how it is cut (Layout)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.specs.fact import Noun
from meshwright.specs.limits import EXPERT_LOAD, LORA_RANK, SEQUENCES, TOKENS_PER_SEQUENCE
from meshwright.specs.model import ModelSpec

#: Bytes of an activation or working weight. FP8 and FP4 recipes quantise the operands of GEMMs; the rest stays in bf16.
ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "nvfp4": 2}
#: Precisions whose GEMMs run in a narrower format than everything around them.
LOW_PRECISIONS = ("fp8", "nvfp4")
STATE_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "none": 0}
#: What people call the optimizers.
OPTIMIZER_ALIASES = {
    "adamw": "adam",
    "fused_adam": "adam",
    "fused_adamw": "adam",
    "unfused_adamw": "unfused_adam",
    "adam8bit": "adam_8bit",
    "adamw8bit": "adam_8bit",
    "adamw_8bit": "adam_8bit",
}


class TrainingJob(Noun):
    """A training job. ``global_batch`` is in sequences; ``tokens`` the length of the whole training (None: not asked).

    ``kind``: what a step does with a sequence. A DPO pair is two sequences; ``grpo`` and ``ppo`` generate their own,
    which takes ``rollout_ratio`` of an iteration. ``reference_forward``: the reference model runs in the step (DPO may
    have computed its log-probabilities before).
    ``precision`` fp8 and nvfp4: GEMMs of linear layers only, by ``fp8_recipe``; ``fp8_param_gather`` keeps the weights
    in fp8 alone. ``master_dtype``, ``grad_dtype``, ``moment_dtype``: what the optimizer's copy of the weights, the
    accumulated gradients and the moments are kept in.
    ``lora_rank`` > 0 trains adapters beside the ``lora_targets`` and nothing else; ``frozen`` names kinds of blocks
    that are not trained; ``frozen_dtype`` nf4 stores what is not trained as QLoRA does.
    ``attention``: ``flash`` keeps no score matrix, ``unfused`` writes it to memory (Megatron before 2023).
    ``document_len``: mean length of the documents packed into a sequence, to which attention is confined (None: one).
    ``expert_load_ratio``: tokens of the fullest expert rank over the mean.
    ``overlap_grad_reduce`` / ``overlap_param_gather`` / ``tp_comm_overlap``: Megatron's flags of the same names.
    ``gradient_accumulation_fusion``: weight-gradient GEMMs add into the gradient buffer; without it a pass of its own.
    ``cuda_graphs``: the CPU launch floor vanishes. ``straggler_ratio``: share by which the slowest rank is slower.
    """

    model: ModelSpec
    seq_len: int = Field(ge=1, le=TOKENS_PER_SEQUENCE)
    global_batch: int = Field(ge=1, le=SEQUENCES)
    tokens: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    kind: Literal["pretrain", "sft", "dpo", "grpo", "ppo"] = "pretrain"
    reference_forward: bool = True
    rollout_ratio: float = Field(default=0.8, ge=0.0, lt=1.0)
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4"] = "bf16"
    fp8_recipe: Literal["delayed", "tensorwise", "blockwise", "mxfp8"] = "tensorwise"
    fp8_param_gather: bool = False
    master_dtype: Literal["fp32", "fp16", "bf16", "none"] = "fp32"
    grad_dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    moment_dtype: Literal["fp32", "fp16", "bf16", "fp8"] = "fp32"
    optimizer: Literal["adam", "unfused_adam", "adam_8bit", "sgd", "adafactor", "muon"] = "adam"
    lora_rank: int = Field(default=0, ge=0, le=LORA_RANK)
    lora_targets: Literal["attention", "all-linear"] = "all-linear"
    frozen: tuple[str, ...] = ()
    frozen_dtype: Literal["same", "nf4"] = "same"
    attention: Literal["flash", "unfused"] = "flash"
    document_len: float | None = Field(default=None, ge=1, allow_inf_nan=False)
    expert_load_ratio: float = Field(default=1.0, ge=1.0, le=EXPERT_LOAD, allow_inf_nan=False)
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    tp_comm_overlap: bool = False
    gradient_accumulation_fusion: bool = True
    cuda_graphs: bool = False
    straggler_ratio: float = Field(default=0.0, ge=0.0, le=1.0)

    @field_validator("optimizer", mode="before")
    @classmethod
    def _usual_name(cls, value: Any) -> Any:
        return OPTIMIZER_ALIASES.get(value, value) if isinstance(value, str) else value

    @field_validator("frozen", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _positions(self) -> TrainingJob:
        first = self.model.prologue[0].options if self.model.prologue else {}
        learned = int(first.get("position_embeddings") or first.get("positions", 0))
        if learned and self.seq_len > learned:
            raise InputError(
                "MW-E120",
                _("sequence length {seq_len} exceeds the {limit} learned positions of {model}.").format(
                    seq_len=self.seq_len, limit=learned, model=self.model.name
                ),
                where="--seq-len",
                nearest=_("The longest is {limit}.").format(limit=learned),
            )
        return self

    @model_validator(mode="after")
    def _whole_pairs(self) -> TrainingJob:
        if self.kind == "dpo" and self.global_batch % 2:
            raise InputError(
                "MW-E121",
                _("a DPO pair is two sequences, and {batch} is odd.").format(batch=self.global_batch),
                where="--global-batch",
                nearest=_("The nearest is {batch}.").format(batch=self.global_batch + 1),
            )
        return self

    @model_validator(mode="after")
    def _something_frozen(self) -> TrainingJob:
        if self.frozen_dtype != "same" and not self.lora_rank and not self.frozen:
            raise InputError(
                "MW-E122",
                _("{dtype} is for weights that are not trained, and all are.").format(dtype=self.frozen_dtype),
                where="job.frozen_dtype",
                nearest=_("Train adapters with --lora {rank}.").format(rank=16),
            )
        return self

    @property
    def low_precision(self) -> bool:
        """Whether the GEMMs of linear layers run in a narrower format than the activations."""
        return self.precision in LOW_PRECISIONS

    @property
    def wide_dtype(self) -> Literal["fp32", "fp16", "bf16"]:
        """What activations and working weights are kept in."""
        if self.precision in ("fp32", "tf32"):
            return "fp32"
        return "fp16" if self.precision == "fp16" else "bf16"

    @property
    def element_bytes(self) -> int:
        """Bytes of one activation or working-weight element."""
        return ELEMENT_BYTES[self.precision]

    @property
    def grad_bytes(self) -> int:
        """Bytes of one accumulated gradient element."""
        return STATE_BYTES[self.grad_dtype]

    @property
    def master_bytes(self) -> int:
        """Bytes of the optimizer's own copy of a weight; none where the weights themselves are fp32."""
        return 0 if self.wide_dtype == "fp32" else STATE_BYTES[self.master_dtype]

    @property
    def param_gather_bytes(self) -> int:
        """Bytes a weight travels with when updated weights are gathered."""
        return 1 if self.fp8_param_gather and self.precision == "fp8" else self.element_bytes

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step."""
        return self.global_batch * self.seq_len
