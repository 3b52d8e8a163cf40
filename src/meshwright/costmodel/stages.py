"""Stages: which layers each pipeline rank holds, compressed to classes of equal ranks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.costmodel.schedule import stages_of_rank

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


@functools.lru_cache(maxsize=65536)
def layers_per_stage(split: str, n_layers: int, pp: int, vpp: int = 1) -> tuple[int, ...] | None:
    """Layers of each virtual stage (``pp * vpp`` of them, in model order); None where the split does not fit.

    ``even``: equal, the first stages take the remainder (interleaved: must divide). ``ends``: embedding and head
    each count as one layer, and the rest must come out even; with one layer a stage the ends hold nothing else.
    ``5-6-6-5``: as said, one number a rank.
    """
    n_stages = pp * vpp
    if split == "even":
        base, extra = divmod(n_layers, n_stages)
        fits = base > 0 and not (extra and vpp > 1)
        return (base + 1,) * extra + (base,) * (n_stages - extra) if fits else None
    if split == "ends":
        base, extra = divmod(n_layers + 2, n_stages)
        fits = not extra and n_stages > 1
        return (base - 1, *(base,) * (n_stages - 2), base - 1) if fits else None
    counts = tuple(int(part) if part.isdecimal() else 0 for part in split.split("-"))
    fits = vpp == 1 and len(counts) == pp and sum(counts) == n_layers and min(counts) > 0
    return counts if fits else None


class StageKey(NamedTuple):
    """What decides which layers a rank holds."""

    pp: int
    vpp: int
    split: str
    schedule: str

    @property
    def n_stages(self) -> int:
        """Virtual stages that the model is cut into."""
        return self.pp * self.vpp

    def of_rank(self, rank: int) -> tuple[int, ...]:
        """The virtual stages that ``rank`` holds, chunk by chunk."""
        return stages_of_rank(self.schedule, rank, self.pp, self.vpp)


@dataclass(frozen=True, slots=True)
class StageTable:
    """Rank classes of distinct StageKeys, padded to C classes with multiplicity 0.

    Shapes: ``counts`` (C, K, d) occurrences of each part (prologue, kinds of layers..., epilogue) on a rank of the
    class; ``multiplicity`` and ``first_rank`` (C, d); ``first_chunk`` / ``last_chunk`` (K, d): what the very first
    and last virtual stage hold beyond a regular chunk (zero where a rank holds one chunk). Rows come last, so that a
    class or a part of all rows lies together in memory.
    """

    counts: FloatArray
    multiplicity: IntArray
    first_rank: IntArray
    first_chunk: FloatArray
    last_chunk: FloatArray


def stage_table(keys: Sequence[StageKey], sequence: tuple[int, ...]) -> StageTable:
    """The table of ``keys`` for a model whose layers are of the kinds ``sequence``.

    Raises KeyError where a split does not fit (legality comes first).
    """
    rows = [_classes(key, sequence) for key in keys]
    n_classes = max((len(row[0]) for row in rows), default=1)
    n_parts = max(sequence) + 3
    table = StageTable(
        counts=np.zeros((n_classes, n_parts, len(rows))),
        multiplicity=np.zeros((n_classes, len(rows)), np.int32),
        first_rank=np.zeros((n_classes, len(rows)), np.int32),
        first_chunk=np.zeros((n_parts, len(rows))),
        last_chunk=np.zeros((n_parts, len(rows))),
    )
    for i, (classes, first, last) in enumerate(rows):
        for j, (parts, multiplicity, rank) in enumerate(classes):
            table.counts[j, :, i] = parts
            table.multiplicity[j, i] = multiplicity
            table.first_rank[j, i] = rank
        table.first_chunk[:, i], table.last_chunk[:, i] = first, last
    return table


Parts = tuple[float, ...]


@functools.lru_cache(maxsize=65536)
def _classes(key: StageKey, sequence: tuple[int, ...]) -> tuple[tuple[tuple[Parts, int, int], ...], Parts, Parts]:
    chunks = chunk_parts(key, sequence)
    classes: list[tuple[Parts, int, int]] = []
    for rank in range(key.pp):
        parts = tuple(map(sum, zip(*(chunks[stage] for stage in key.of_rank(rank)), strict=True)))
        if classes and classes[-1][0] == parts:
            classes[-1] = (parts, classes[-1][1] + 1, classes[-1][2])
        else:
            classes.append((parts, 1, rank))
    regular = np.asarray(chunks[len(chunks) // 2]) if len(key.of_rank(0)) > 1 else None
    zero = (0.0,) * len(chunks[0])
    first = zero if regular is None else tuple(np.asarray(chunks[0]) - regular)
    last = zero if regular is None else tuple(np.asarray(chunks[-1]) - regular)
    return tuple(classes), first, last


def chunk_parts(key: StageKey, sequence: tuple[int, ...]) -> list[Parts]:
    """Parts of each virtual stage in model order: (prologue, layers of each kind..., epilogue)."""
    n_stages = key.n_stages
    stages = layers_per_stage(key.split, len(sequence), key.pp, key.vpp)
    if stages is None:
        raise KeyError(f"split {key.split} does not fit {len(sequence)} layers on {n_stages} stages")
    kinds = range(max(sequence) + 1)
    found, start = [], 0
    for stage, size in enumerate(stages):
        held = sequence[start : start + size]
        start += size
        layers = (float(held.count(kind)) for kind in kinds)
        found.append((float(stage == 0), *layers, float(stage == n_stages - 1)))
    return found
