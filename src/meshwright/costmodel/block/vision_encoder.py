"""Vision encoder in front of a decoder: patch embedding, bidirectional layers and a projector to the decoder's width.

It is made of the other kinds with a picture's shapes in place of the sequence's. TP cuts it like the decoder; context
and sequence parallelism leave it whole, as Megatron-LM's multimodal models set them off for the vision part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel import block as blocks
from meshwright.costmodel.operator import FloatArray, Operator, Parameters, Saved, Shapes, memory
from meshwright.specs.layout import LayoutBatch
from meshwright.specs.model import BlockSpec, ModelSpec

KIND = "vision_encoder"
TP_REDUCE = ("forward", "backward")
MODULE = "embedding"


class _Piece(NamedTuple):
    """``times`` such blocks that work on ``tokens`` tokens of each picture."""

    name: str
    times: int
    block: BlockSpec
    tokens: int


def _pieces(model: ModelSpec, block: BlockSpec) -> list[_Piece]:
    options = block.options
    layers, hidden = int(options["num_hidden_layers"]), int(options["hidden_size"])
    heads, biases = int(options["num_attention_heads"]), bool(options.get("biases"))
    tokens = _image_tokens(block)

    def norm(width: int = 0, kind: str = str(options.get("norm", "layernorm"))) -> BlockSpec:
        return BlockSpec(kind="norm", options={"norm": kind, "width": width})

    attention = BlockSpec(
        kind="attention",
        options={
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "head_dim": hidden // heads,
            "qkv_bias": biases,
            "output_bias": biases,
            "causal": False,
        },
    )
    mlp = BlockSpec(
        kind="mlp",
        options={
            "intermediate_size": int(options["intermediate_size"]),
            "gated": bool(options.get("gated")),
            "bias": biases,
        },
    )
    patches = BlockSpec(
        kind="patch_embedding",
        options={
            "patch_size": int(options["patch_size"]),
            "channels": int(options.get("channels", 3)),
            "image_tokens": int(options["image_tokens"]),
            "positions": int(options.get("positions", 0)),
            "class_token": bool(options.get("class_token")),
            "bias": bool(options.get("patch_bias", biases)),
        },
    )
    pieces = [
        _Piece("vision", 1, patches, tokens),
        _Piece("vision_layer", 2 * layers, norm(), tokens),
        _Piece("vision_layer", layers, attention, tokens),
        _Piece("vision_layer", layers, mlp, tokens),
    ]
    pieces += [_Piece(f"vision_{at}", 1, norm(), tokens) for at in ("pre", "final") if options.get(f"{at}_norm")]
    merged = hidden * int(options.get("merge", 1))
    out_tokens = _out_tokens(block)
    if options.get("projector_norm"):
        pieces.append(_Piece("projector", 1, norm(merged, str(options["projector_norm"])), out_tokens))
    depth, inner = int(options.get("projector_layers", 0)), int(options.get("projector_hidden", 0))
    widths = [merged, *[inner or model.hidden_size] * (depth - 1), model.hidden_size]
    for layer in range(depth):
        dense = {
            "in_size": widths[layer],
            "out_size": widths[layer + 1],
            "bias": bool(options.get("projector_bias", biases)),
            "activation": "" if layer == depth - 1 else "gelu",
        }
        pieces.append(_Piece(f"projector_{layer + 1}", 1, BlockSpec(kind="dense", options=dense), out_tokens))
    return pieces


def _image_tokens(block: BlockSpec) -> int:
    return int(block.options["image_tokens"]) + (1 if block.options.get("class_token") else 0)


def _out_tokens(block: BlockSpec) -> int:
    return int(block.options.get("out_tokens", 0)) or int(block.options["image_tokens"])


def _inside(model: ModelSpec, block: BlockSpec) -> ModelSpec:
    return model.model_copy(update={"hidden_size": int(block.options["hidden_size"])})


def _shapes(block: BlockSpec, shapes: Shapes, tokens: int) -> Shapes:
    whole = np.ones_like(shapes.tp)
    return replace(
        shapes,
        micro_batch=shapes.micro_batch * float(block.options.get("images_per_sequence", 1)),
        sp_degree=whole,
        cp=whole,
        seq_len=tokens,
        document_len=float(tokens),
        hidden_size=int(block.options["hidden_size"]),
    )


def _each(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> Iterator[tuple[_Piece, blocks.BlockKind, Shapes]]:
    for piece in _pieces(model, block):
        yield piece, blocks.kind(piece.block), _shapes(block, shapes, piece.tokens)


def legal(model: ModelSpec, block: BlockSpec, layouts: LayoutBatch) -> Mapping[str, npt.NDArray[np.bool_]]:
    """What its attention and its MLP refuse."""
    found: dict[str, npt.NDArray[np.bool_]] = {}
    for piece in _pieces(model, block):
        found |= blocks.violations(_inside(model, block), piece.block, layouts)
    return found


def parameters(model: ModelSpec, block: BlockSpec) -> Parameters:
    """Sums over its pieces."""
    inside = _inside(model, block)
    counts = [(p.times, blocks.kind(p.block).parameters(inside, p.block)) for p in _pieces(model, block)]
    return Parameters(
        sum(count * each.sharded for count, each in counts), sum(count * each.replicated for count, each in counts)
    )


def operators(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Operator]:
    """Those of its pieces, each as often as it stands in the encoder, and writing into the decoder's sequence."""
    inside = _inside(model, block)
    found = [
        replace(operator, name=f"{piece.name}_{operator.name}", module="embedding", count=piece.times * operator.count)
        for piece, kind, seen in _each(model, block, shapes)
        for operator in kind.operators(inside, piece.block, seen)
    ]
    images = shapes.micro_batch * float(block.options.get("images_per_sequence", 1))
    rows = shapes.element_bytes * images * _out_tokens(block) * shapes.hidden_size
    return [*found, memory("vision_merge", "embedding", 2 * rows, 2 * rows, kernels=(2, 2))]


def saved(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> list[Saved]:
    """Those of its pieces, each as often as it stands in the encoder."""
    inside = _inside(model, block)
    return [
        Saved(f"{piece.name}_{item.name}", "embedding", piece.times * item.size_bytes)
        for piece, kind, seen in _each(model, block, shapes)
        for item in kind.saved(inside, piece.block, seen)
    ]


def tp_reductions(model: ModelSpec, block: BlockSpec, shapes: Shapes) -> tuple[float, FloatArray]:
    """Two reductions a layer, each of one activation of the encoder."""
    seen = _shapes(block, shapes, _image_tokens(block))
    ratio = seen.tokens * seen.hidden_size / (shapes.tokens * shapes.hidden_size)
    return 2.0 * int(block.options["num_hidden_layers"]), ratio
