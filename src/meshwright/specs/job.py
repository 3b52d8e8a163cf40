"""TrainingJob: what is trained and how, apart from where (Cluster) and how it is cut (Layout)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from meshwright.errors import InputError
from meshwright.i18n import _
from meshwright.specs.fact import Noun
from meshwright.specs.limits import SEQUENCES, TOKENS_PER_SEQUENCE
from meshwright.specs.model import ModelSpec

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


class TrainingJob(Noun):
    """A training job. ``global_batch`` is in sequences; ``tokens`` the length of the whole training (None: not asked).

    ``attention``: ``flash`` keeps no score matrix, ``unfused`` writes it to memory (Megatron before 2023).
    ``overlap_grad_reduce`` / ``overlap_param_gather``: Megatron's flags of the same names.
    ``gradient_accumulation_fusion``: weight-gradient GEMMs add into the gradient buffer; without it a pass of its own.
    ``cuda_graphs``: the CPU launch floor vanishes. ``straggler_ratio``: share by which the slowest rank is slower.
    """

    model: ModelSpec
    seq_len: int = Field(ge=1, le=TOKENS_PER_SEQUENCE)
    global_batch: int = Field(ge=1, le=SEQUENCES)
    tokens: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    precision: Literal["fp16", "bf16"] = "bf16"
    grad_dtype: Literal["fp32", "fp16", "bf16"] = "fp32"
    optimizer: Literal["adam"] = "adam"
    attention: Literal["flash", "unfused"] = "flash"
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    gradient_accumulation_fusion: bool = True
    cuda_graphs: bool = False
    straggler_ratio: float = Field(default=0.0, ge=0.0, le=1.0)

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

    @property
    def element_bytes(self) -> int:
        """Bytes of one activation or working-weight element."""
        return ELEMENT_BYTES[self.precision]

    @property
    def grad_bytes(self) -> int:
        """Bytes of one accumulated gradient element."""
        return ELEMENT_BYTES[self.grad_dtype]

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step."""
        return self.global_batch * self.seq_len
