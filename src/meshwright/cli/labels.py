"""Short names beside the JSON's own: what a reader sees first; ``mw explain NAME`` says the rest."""

from __future__ import annotations

from meshwright.i18n import N_, _

#: terms of the breakdown
TERMS = {
    "forward": N_("forward compute"),
    "backward": N_("backward compute"),
    "recompute": N_("activations computed again"),
    "tp_comm": N_("tensor-parallel communication"),
    "cp_comm": N_("context-parallel communication"),
    "ep_comm": N_("expert-parallel communication"),
    "pp_comm": N_("pipeline sends"),
    "dp_comm": N_("data-parallel communication"),
    "bubble": N_("pipeline bubble"),
    "launch": N_("waiting for the CPU's launches"),
    "contention": N_("compute slowed by communication"),
    "optimizer": N_("optimizer step"),
    "data": N_("waiting for data"),
    "checkpoint": N_("writing checkpoints"),
    "straggler": N_("slowest rank"),
}
#: classes of device memory
MEMORY = {
    "weights": N_("weights"),
    "gradients": N_("gradients"),
    "optimizer": N_("optimizer states"),
    "activations": N_("activations"),
    "logits": N_("logits and loss"),
    "gather": N_("gathered block input"),
    "buffers": N_("communication buffers"),
    "context": N_("CUDA context"),
    "reserve": N_("reserved by the allocator"),
    "free": N_("free"),
}
FITS = {"yes": N_("yes"), "tight": N_("tight"), "no": N_("no")}
#: whether a deadline or a budget is met: the whole interval does, the prediction does, only its good end, or nothing
MEETS = FITS | {"likely": N_("likely"), "unlikely": N_("unlikely")}


def label(table: dict[str, str], name: str) -> str:
    """The translated short name, the name itself where there is none."""
    return _(table[name]) if name in table else name
