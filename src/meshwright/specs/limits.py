"""How large a number may be: far above every job and cluster that exists, far below where arithmetic overflows.

The largest published runs use some 2^15 GPUs (arXiv 2407.21783), batches of 2^14 sequences and contexts of 2^24 tokens;
GPU counts of layouts are 32-bit columns, FLOPs and bytes are sums of products of these numbers.
"""

from __future__ import annotations

from meshwright.errors import InputError
from meshwright.i18n import _

#: Sequences of one step, tokens of one sequence.
SEQUENCES = 1 << 24
TOKENS_PER_SEQUENCE = 1 << 24
#: GPUs of a cluster, so also each degree of a layout.
GPUS = 1 << 20
NICS_PER_NODE = 1 << 10
OVERSUBSCRIPTION = 1000.0
LAYERS = 10_000
#: Rank of an adapter, and tokens of the fullest expert rank over the mean.
LORA_RANK = 1 << 16
EXPERT_LOAD = 1000.0
#: Rows of a model's tables (vocabulary, positions) and the width of all its heads together.
ROWS = 1 << 24
#: Any other size of a model: hidden size, MLP width, heads.
WIDTH = 1 << 20
#: By field, for whoever checks a model's sizes.
MODEL_SIZES = {"num_hidden_layers": LAYERS, "vocab_size": ROWS, "max_position_embeddings": ROWS}
#: By column of a layout.
LAYOUT = {"dp": GPUS, "tp": GPUS, "pp": GPUS, "vpp": LAYERS, "micro_batch": SEQUENCES}


def at_most(value: int, largest: int, where: str, code: str = "MW-E403") -> int:
    """``value`` if it is no larger than ``largest``. Raises InputError with ``code`` that names the limit."""
    if value > largest:
        raise InputError(
            code,
            _("{value} is too large.").format(value=shortened(value)),
            where=where,
            nearest=_("The most is {most}.").format(most=largest),
        )
    return value


def shortened(value: int) -> str:
    """A whole number as text; a very long one by its magnitude (Python refuses to write thousands of digits)."""
    return str(value) if abs(value) < 10**30 else f"2^{value.bit_length() - 1}"
