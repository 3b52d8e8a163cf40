"""Random pipelines as profile rows, the same rows laid out in full, and how far closed form and replay are apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.costmodel.pipeline import FloatArray, PipelineProfile, PipelineTimes
from meshwright.costmodel.schedule import schedules
from meshwright.timeline.replay import replay

MICRO_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 33, 48, 64, 100, 128, 200, 256)


@dataclass(frozen=True)
class Pipeline:
    """One pipeline: work of each rank, (pp,), what its two ends hold beyond a regular chunk, and a hop."""

    pp: int
    vpp: int
    n_micro_batches: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    hop_s: float = 0.0
    embedding_s: tuple[float, float] = (0.0, 0.0)
    head_s: tuple[float, float] = (0.0, 0.0)


def profile(rows: Sequence[Pipeline]) -> PipelineProfile:
    """The rows with neighbours of equal work as one class, padded with a class of no ranks."""
    classes: list[list[list[float]]] = []
    for row in rows:
        found: list[list[float]] = []
        for forward, backward in zip(row.forward_s, row.backward_s, strict=True):
            if found and found[-1][1:] == [forward, backward]:
                found[-1][0] += 1
            else:
                found.append([1, forward, backward])
        classes.append(found)
    width = max(len(found) for found in classes) + 1
    table = np.array([found + [[0, 0.0, 0.0]] * (width - len(found)) for found in classes])
    counts = np.array([(row.pp, row.vpp, row.n_micro_batches) for row in rows], np.int32)
    ends = np.array([(*row.embedding_s, *row.head_s, row.hop_s) for row in rows])
    return PipelineProfile(
        pp=counts[:, 0],
        vpp=counts[:, 1],
        n_micro_batches=counts[:, 2],
        multiplicity=table[:, :, 0].astype(np.int32),
        forward_s=table[:, :, 1],
        backward_s=table[:, :, 2],
        weight_s=0.4 * table[:, :, 2],
        embedding_forward_s=ends[:, 0],
        embedding_backward_s=ends[:, 1],
        head_forward_s=ends[:, 2],
        head_backward_s=ends[:, 3],
        hop_s=ends[:, 4],
    )


def times(row: Pipeline) -> PipelineTimes:
    """The row chunk by chunk."""
    tables = []
    for rank_s, embedding, head in zip((row.forward_s, row.backward_s), row.embedding_s, row.head_s, strict=True):
        regular = np.array(rank_s)
        regular[0] -= embedding
        regular[-1] -= head
        table = np.repeat(regular[:, None] / row.vpp, row.vpp, axis=1)
        table[0, 0] += embedding
        table[-1, -1] += head
        tables.append(table)
    name = "interleaved" if row.vpp > 1 else "1f1b"
    return PipelineTimes(name, row.pp, row.vpp, row.n_micro_batches, tables[0], tables[1], 0.4 * tables[1], row.hop_s)


def closed_form_s(rows: Sequence[Pipeline]) -> FloatArray:
    """Seconds by the schedule's closed form, (n,); all rows of one schedule."""
    return schedules()[times(rows[0]).schedule].pipeline_time_s(profile(rows))


def errors(rows: Sequence[Pipeline]) -> FloatArray:
    """Closed form over replay, less one, (n,)."""
    return closed_form_s(rows) / np.array([replay(times(row)).step_time_s for row in rows]) - 1.0


def table(title: str, rows: Sequence[Pipeline], error: FloatArray, show: int = 3) -> str:
    """What a failing sweep prints: the spread of the errors and the worst rows."""
    size = np.abs(error) * 100
    lines = [f"{title}: {len(rows)} rows, max {size.max():.3f} %, p99 {np.quantile(size, 0.99):.3f} %"]
    lines += [f"  {error[i] * 100:+.3f} %  {rows[i]}" for i in np.argsort(-size)[:show]]
    return "\n".join(lines)


def random_rows(seed: int, n: int, *, uneven: bool = False, hop_ratio: float = 0.2, most: int = 2048) -> list[Pipeline]:
    """1F1B rows: 1..6 layers a rank, or 1..3 more on some; embedding and head of up to 1.5 layers; m * pp <= most."""
    rng = np.random.default_rng(seed)
    rows: list[Pipeline] = []
    while len(rows) < n:
        pp = int(rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64]))
        m = int(rng.choice(MICRO_BATCHES))
        if pp * m > most:
            continue
        layers = np.full(pp, float(rng.integers(1, 7)))
        if uneven:
            cuts = np.sort(rng.integers(0, pp + 1, int(rng.integers(1, 4))))
            for part in np.split(np.arange(pp), cuts):
                layers[part] += rng.integers(0, 4)
        ratio = rng.uniform(1.5, 3.5)
        embedding, head = rng.uniform(0, 1.5, 2) * rng.integers(0, 2, 2)
        forward, backward = layers.copy(), layers * ratio
        forward[0] += embedding
        forward[-1] += head
        backward[0] += embedding * rng.uniform(1.5, 3.5)
        backward[-1] += head * 2.0
        hop_s = hop_ratio * float(np.mean(forward + backward)) * rng.choice([0.0, 0.02, 0.2, 1.0]) * rng.uniform()
        rows.append(Pipeline(pp, 1, m, tuple(forward.tolist()), tuple(backward.tolist()), float(hop_s)))
    return rows


def random_interleaved(
    seed: int, n: int, *, ends_hold_fewer: bool = False, hop_ratio: float = 0.2, most: int = 2048
) -> list[Pipeline]:
    """Interleaved rows: equal chunks of 1..5 layers, ends as above; a hop is a part of one *chunk's* time."""
    rng = np.random.default_rng(seed)
    rows: list[Pipeline] = []
    while len(rows) < n:
        pp, vpp = int(rng.choice([2, 3, 4, 5, 6, 8, 12, 16, 32])), int(rng.choice([2, 3, 4, 6, 8]))
        m = pp * int(rng.choice([1, 2, 3, 4, 6, 8]))
        if pp * m * vpp > most:
            continue
        layers, ratio = float(rng.integers(2 if ends_hold_fewer else 1, 6)), rng.uniform(1.5, 3.5)
        embedding, head = rng.uniform(0, 1.5, 2) * rng.integers(0, 2, 2)
        fewer = rng.integers(0, 2, 2) if ends_hold_fewer else np.zeros(2)
        first = (embedding - fewer[0], embedding * rng.uniform(0.3, 3.5) - fewer[0] * ratio)
        last = (head - fewer[1], head * 2.0 - fewer[1] * ratio)
        forward, backward = np.full(pp, layers * vpp), np.full(pp, layers * vpp * ratio)
        forward[0] += first[0]
        backward[0] += first[1]
        forward[-1] += last[0]
        backward[-1] += last[1]
        hop_s = hop_ratio * layers * (1 + ratio) * rng.choice([0.0, 0.02, 0.2, 1.0]) * rng.uniform()
        rows.append(Pipeline(pp, vpp, m, tuple(forward.tolist()), tuple(backward.tolist()), float(hop_s), first, last))
    return rows


def take(rows: PipelineProfile, index: slice) -> PipelineProfile:
    """Some rows of a profile."""
    return PipelineProfile(**{f.name: getattr(rows, f.name)[index] for f in dataclasses.fields(rows)})
