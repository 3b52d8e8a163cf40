"""Patch embedding of a vision transformer (arXiv 2010.11929): a convolution, learned positions, a class token.

Whole on every TP rank, as Megatron-LM keeps it.
"""

from __future__ import annotations

from meshwright.costmodel.operator import Operator, Parameters, Saved, Shapes, gemm, memory
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "patch_embedding"
TP_REDUCE: tuple[str, ...] = ()


def _patch_elements(block: BlockSpec) -> int:
    return int(block.options["patch_size"]) ** 2 * int(block.options.get("channels", 3))


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Convolution with its bias, positions, class token; replicated."""
    options = block.options
    vectors = _patch_elements(block) + int(options.get("positions", 0))
    vectors += (1 if options.get("bias", True) else 0) + (1 if options.get("class_token") else 0)
    return Parameters(0, vectors * model.hidden_size)


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """The convolution as a GEMM over patches (pixels need no gradient, the GEMM counts one), and adding positions."""
    patches = shapes.micro_batch * int(block.options["image_tokens"]) / shapes.cp
    rows = shapes.element_bytes * shapes.tokens * model.hidden_size
    return [
        gemm(
            "patch_projection",
            "embedding",
            patches,
            model.hidden_size,
            _patch_elements(block),
            kernels=(2, 2),
            low_precision=False,
        ),
        memory("patch_positions", "embedding", 4 * rows, 2 * rows, kernels=(2, 2)),
    ]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """The pixels of every patch."""
    patches = shapes.micro_batch * int(block.options["image_tokens"]) / shapes.cp
    return [Saved("patches", "embedding", shapes.element_bytes * patches * _patch_elements(block))]
