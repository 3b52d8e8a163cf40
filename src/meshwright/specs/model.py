"""ModelSpec: a model as blocks of named kinds; what a kind costs lives in ``costmodel/block/<kind>.py``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from pydantic import Field, PositiveInt

from meshwright.specs.fact import CatalogEntry, Noun

Option = int | float | str | bool


class BlockSpec(Noun):
    """One block: its kind (a file of ``costmodel/block/``) and that kind's options."""

    kind: str
    options: Mapping[str, Option] = Field(default_factory=dict)


class LayerGroup(Noun):
    """``repeat`` equal layers in a row, each made of ``blocks`` in order."""

    repeat: PositiveInt
    blocks: tuple[BlockSpec, ...]


class ModelSpec(CatalogEntry):
    """A model: prologue (embedding), run-length list of layers, epilogue (final norm and head)."""

    family: str
    hidden_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    prologue: tuple[BlockSpec, ...]
    layers: tuple[LayerGroup, ...]
    epilogue: tuple[BlockSpec, ...]
    tie_word_embeddings: bool
    dropout: bool = False

    @property
    def n_layers(self) -> int:
        """Layers in all."""
        return sum(group.repeat for group in self.layers)

    @cached_property
    def layer_kinds(self) -> tuple[tuple[BlockSpec, ...], ...]:
        """The distinct layers, each as its blocks, in order of first appearance."""
        kinds: list[tuple[BlockSpec, ...]] = []
        for group in self.layers:
            if group.blocks not in kinds:
                kinds.append(group.blocks)
        return tuple(kinds)

    @cached_property
    def layer_sequence(self) -> tuple[int, ...]:
        """The index into ``layer_kinds`` of each layer, in order."""
        return tuple(self.layer_kinds.index(group.blocks) for group in self.layers for _each in range(group.repeat))


class DenseTransformer(Noun):
    """The fields by which people describe a dense decoder (the names of Hugging Face's ``config.json``).

    ``gated_mlp``: SwiGLU (three matrices) instead of two. ``norm``: LayerNorm has a bias. ``*_bias``: linear layers
    with a bias. ``position``: learned positions are parameters, rotary and ALiBi are not.
    """

    hidden_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt
    intermediate_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    gated_mlp: bool
    activation: str
    norm: Literal["layernorm", "rmsnorm"]
    position: Literal["learned", "rotary", "alibi"]
    qkv_bias: bool
    attention_output_bias: bool
    mlp_bias: bool
    tie_word_embeddings: bool
    embedding_norm: bool = False
    position_offset: int = 0
    dropout: bool = False

    def spec(self, name: str, family: str, **entry: object) -> ModelSpec:
        """The blocks of this model: pre-norm attention and MLP layers between embedding, final norm and head."""
        norm = BlockSpec(kind="norm", options={"norm": self.norm})
        attention = BlockSpec(
            kind="attention",
            options={
                "num_attention_heads": self.num_attention_heads,
                "num_key_value_heads": self.num_key_value_heads,
                "head_dim": self.head_dim,
                "qkv_bias": self.qkv_bias,
                "output_bias": self.attention_output_bias,
                "rotary": self.position == "rotary",
                "alibi": self.position == "alibi",
                "dropout": self.dropout,
            },
        )
        mlp = BlockSpec(
            kind="mlp",
            options={
                "intermediate_size": self.intermediate_size,
                "gated": self.gated_mlp,
                "activation": self.activation,
                "bias": self.mlp_bias,
                "dropout": self.dropout,
            },
        )
        positions = self.max_position_embeddings + self.position_offset if self.position == "learned" else 0
        embedding = BlockSpec(kind="embedding", options={"position_embeddings": positions, "dropout": self.dropout})
        head = BlockSpec(kind="head", options={"tied": self.tie_word_embeddings})
        return ModelSpec.model_validate(
            {
                "name": name,
                "family": family,
                "hidden_size": self.hidden_size,
                "vocab_size": self.vocab_size,
                "max_position_embeddings": self.max_position_embeddings,
                "prologue": (embedding, norm) if self.embedding_norm else (embedding,),
                "layers": (LayerGroup(repeat=self.num_hidden_layers, blocks=(norm, attention, norm, mlp)),),
                "epilogue": (norm, head),
                "tie_word_embeddings": self.tie_word_embeddings,
                "dropout": self.dropout,
                **entry,
            }
        )
