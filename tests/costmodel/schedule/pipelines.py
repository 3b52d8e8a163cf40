"""Random pipelines as profile rows, the same rows laid out in full, and how far closed form and replay are apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.costmodel.pipeline import FloatArray, PipelineProfile, PipelineTimes
from meshwright.costmodel.schedule import schedules, stages_of_rank
from meshwright.timeline.replay import replay

MICRO_BATCHES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 33, 48, 64, 100, 128, 200, 256)


@dataclass(frozen=True)
class Pipeline:
    """One pipeline: work of each rank, (pp,), what its two ends hold beyond a regular chunk, and a hop.

    ``weight`` is the share of the weight gradients in the backwards; schedule "" is 1F1B, or interleaved with vpp > 1.
    """

    pp: int
    vpp: int
    n_micro_batches: int
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    hop_s: float = 0.0
    embedding_s: tuple[float, float] = (0.0, 0.0)
    head_s: tuple[float, float] = (0.0, 0.0)
    weight: float = 0.4
    schedule: str = ""

    @property
    def name(self) -> str:
        """The schedule's name."""
        return self.schedule or ("interleaved" if self.vpp > 1 else "1f1b")


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
        weight_s=np.array([[row.weight] for row in rows]) * table[:, :, 2],
        embedding_forward_s=ends[:, 0],
        embedding_backward_s=ends[:, 1],
        head_forward_s=ends[:, 2],
        head_backward_s=ends[:, 3],
        hop_s=ends[:, 4],
    )


def times(row: Pipeline) -> PipelineTimes:
    """The row chunk by chunk."""
    stages = np.array([stages_of_rank(row.name, rank, row.pp, row.vpp) for rank in range(row.pp)])
    first, last = stages == 0, stages == row.pp * row.vpp - 1
    tables = []
    for rank_s, embedding, head in zip((row.forward_s, row.backward_s), row.embedding_s, row.head_s, strict=True):
        ends = first * embedding + last * head
        regular = (np.array(rank_s) - ends.sum(axis=1)) / stages.shape[1]
        tables.append(regular[:, None] + ends)
    forward_s, backward_s = tables
    return PipelineTimes(
        row.name, row.pp, row.vpp, row.n_micro_batches, forward_s, backward_s, row.weight * backward_s, row.hop_s
    )


def closed_form_s(rows: Sequence[Pipeline]) -> FloatArray:
    """Seconds by the schedule's closed form, (n,); all rows of one schedule."""
    return np.asarray(schedules()[rows[0].name].pipeline_time_s(profile(rows)))


def errors(rows: Sequence[Pipeline]) -> FloatArray:
    """Closed form over replay, less one, (n,)."""
    return np.asarray(closed_form_s(rows) / np.array([replay(times(row)).step_time_s for row in rows]) - 1.0)


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


def as_schedule(rows: Sequence[Pipeline], schedule: str, seed: int) -> list[Pipeline]:
    """Rows of 1F1B under another schedule of one chunk a rank; a third of them with weight = input gradient."""
    rng = np.random.default_rng(seed)
    shares = np.where(rng.random(len(rows)) < 0.3, 1 / 3, rng.uniform(0.25, 0.5, len(rows)))
    pairs = zip(rows, shares.tolist(), strict=True)
    return [dataclasses.replace(row, schedule=schedule, weight=share) for row, share in pairs]


def random_v(schedule: str, seed: int, n: int, *, uneven: bool = False, hop_ratio: float = 0.2) -> list[Pipeline]:
    """Rows of a V-shaped schedule: chunks of 2..6 layers, ends of up to 1.5 layers more, hops as part of a chunk.

    ``uneven``: some ranks hold one layer more in both chunks.
    """
    rng = np.random.default_rng(seed)
    rows: list[Pipeline] = []
    both_ways = 2 if schedule == "dualpipe" else 1
    while len(rows) < n:
        half = (
            int(rng.choice([1, 2, 3, 4, 5, 6, 8, 12, 16])) if both_ways == 2 else int(rng.choice([2, 3, 4, 6, 8, 16]))
        )
        m = int(rng.integers(2 * half, 2 * half + 30)) if rng.integers(2) else int(rng.choice([2, 4, 5, 8])) * 2 * half
        if half * m > 700:
            continue
        layers, ratio = np.full(half, 2.0 * rng.integers(2, 7)), rng.uniform(1.5, 3.5)
        if uneven:
            cut = np.sort(rng.integers(0, half + 1, 2))
            layers[cut[0] : cut[1]] += 2
        embedding, head = rng.uniform(0, 1.5, 2) * rng.integers(0, 2, 2)
        ends = (embedding, embedding * rng.uniform(0.3, 3.5)), (head, head * 2.0)
        forward, backward = layers.copy(), layers * ratio
        forward[0] += ends[0][0] + ends[1][0]
        backward[0] += ends[0][1] + ends[1][1]
        hop_s = hop_ratio * layers.mean() / 2 * (1 + ratio) * rng.choice([0.0, 0.02, 0.2, 1.0]) * rng.uniform()
        if both_ways == 2:
            forward, backward = np.append(forward, forward[::-1]), np.append(backward, backward[::-1])
        rows.append(
            Pipeline(
                both_ways * half,
                3 - both_ways,
                both_ways * m,
                tuple(forward.tolist()),
                tuple(backward.tolist()),
                float(hop_s),
                *ends,
            )
        )
    return as_schedule(rows, schedule, seed)


def take(rows: PipelineProfile, index: slice) -> PipelineProfile:
    """Some rows of a profile."""
    return PipelineProfile(**{f.name: getattr(rows, f.name)[index] for f in dataclasses.fields(rows)})
