"""Chrome trace JSON, as Perfetto and chrome://tracing show it and as PyTorch's profiler (Kineto) writes it.

Field names are Kineto's (libkineto/src/output_json.cpp), those of collectives PyTorch's (torch/csrc/profiler/util.h):
a tool that reads a PyTorch trace reads this file.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from meshwright.output import whole_file
from meshwright.specs.timeline import Timeline

#: Version of Kineto's JSON.
SCHEMA_VERSION = 1
#: Events turned to text at a time.
_BATCH = 4096


def write(timeline: Timeline, path: Path) -> None:
    """Write ``timeline`` to ``path``, packed if the name ends in ``.gz``: the whole file or none.

    A reader sees the old file or the new one. Raises InputError MW-E411 where ``path`` is a directory, MW-E416 where
    it cannot be written.
    """
    with whole_file(path) as raw:
        _write_to(timeline, raw, packed=path.suffix == ".gz", title=path.name)


def _write_to(timeline: Timeline, raw: Any, *, packed: bool, title: str) -> None:
    if packed:
        # Time and name in the gzip header would make equal timelines differ.
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
            _write_text(timeline, _Encoded(stream), title)
    else:
        _write_text(timeline, _Encoded(raw), title)


class _Encoded:
    """A text stream that only writes, over a binary one that it leaves open."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def write(self, text: str) -> None:
        self.raw.write(text.encode())


def _write_text(timeline: Timeline, stream: _Encoded | TextIO, title: str) -> None:
    head = json.dumps(_head(timeline, title), ensure_ascii=False)
    stream.write(head[:-1] + ', "traceEvents": [')
    separator = "\n"
    batch: list[str] = []
    for event in _events(timeline):
        batch.append(json.dumps(event, ensure_ascii=False))
        if len(batch) == _BATCH:
            stream.write(separator + ",\n".join(batch))
            separator = ",\n"
            batch.clear()
    if batch:
        stream.write(separator + ",\n".join(batch))
    stream.write("\n]}\n")


def _head(timeline: Timeline, title: str) -> dict[str, Any]:
    groups = [
        {
            "pg_name": g.name,
            "pg_desc": g.description,
            "backend_config": g.backend,
            "pg_size": len(g.ranks),
            "ranks": list(g.ranks),
        }
        for g in timeline.groups
    ]
    distributed = {
        "backend": "nccl",
        "rank": timeline.rank or 0,
        "world_size": timeline.world_size,
        "pg_count": len(groups),
        "pg_config": groups,
    }
    return {
        "schemaVersion": SCHEMA_VERSION,
        "deviceProperties": [{"id": i, "name": name} for i, name in enumerate(timeline.devices)],
        "distributedInfo": distributed,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": timeline.base_time_ns,
        "traceName": title,
    }


def _events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    yield from _metadata(timeline)
    arguments = _arguments(timeline)
    lanes = [(lane.process, lane.thread) for lane in timeline.lanes]
    columns = (timeline.lane, timeline.name, timeline.category, timeline.start_ns, timeline.duration_ns)
    for i, (lane, name, category, start, duration) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        process, thread = lanes[lane]
        yield {
            "ph": "X",
            "cat": timeline.categories[category],
            "name": timeline.names[name],
            "pid": process,
            "tid": thread,
            "ts": start / 1000,
            "dur": duration / 1000,
            "args": arguments.get(i, {}),
        }


def _metadata(timeline: Timeline) -> Iterator[dict[str, Any]]:
    begin = int(timeline.start_ns.min()) / 1000 if len(timeline) else 0.0
    named: set[int] = set()
    for lane in timeline.lanes:
        common = {"ph": "M", "ts": begin, "pid": lane.process}
        if lane.process not in named:
            named.add(lane.process)
            yield {"name": "process_name", **common, "tid": 0, "args": {"name": lane.process_name}}
            yield {"name": "process_labels", **common, "tid": 0, "args": {"labels": f"GPU {lane.process}"}}
            yield {"name": "process_sort_index", **common, "tid": 0, "args": {"sort_index": lane.process}}
        yield {"name": "thread_name", **common, "tid": lane.thread, "args": {"name": lane.name}}
        yield {"name": "thread_sort_index", **common, "tid": lane.thread, "args": {"sort_index": lane.thread}}


def _arguments(timeline: Timeline) -> dict[int, dict[str, Any]]:
    """Arguments by span number; spans without any are absent."""
    found: dict[int, dict[str, Any]] = {}
    for name, argument in timeline.arguments.items():
        for span, value in zip(argument.span.tolist(), argument.value.tolist(), strict=True):
            found.setdefault(span, {})[name] = value
    return found
