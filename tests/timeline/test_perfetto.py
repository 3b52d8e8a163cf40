"""The file for Perfetto: JSON, Kineto's names, to the nanosecond, whole or not at all."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshwright.costmodel.pipeline import PipelineTimes
from meshwright.errors import InputError
from meshwright.specs.timeline import Argument, Lane, Timeline
from meshwright.timeline import perfetto
from meshwright.timeline.replay import replay
from meshwright.timeline.step import StepLabels, step_timeline

CASE = PipelineTimes(
    "interleaved", 2, 2, 4, np.full((2, 2), 1.234567e-3), np.full((2, 2), 2.5e-3), np.full((2, 2), 1e-3), 1e-5
)
#: Arguments that PyTorch has but no trace at hand shows (torch/csrc/profiler/util.h), and those that are ours.
UNSEEN = {"Src Rank", "Dst Rank"}
OURS = {"term", "micro batch", "chunk", "stage"}


def load(path: Path) -> dict[str, Any]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def timeline() -> Timeline:
    labels = StepLabels(ranks=("rank 0 (stages 0, 2)",), device="NVIDIA A100-SXM4-80GB", send_elements=1024)
    return step_timeline(CASE, {"dp_comm": 1e-3, "optimizer": 5e-4, "straggler": 1e-4}, labels=labels)


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
def test_the_file_holds_the_timeline(timeline: Timeline, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    perfetto.write(timeline, path)
    spans = [event for event in load(path)["traceEvents"] if event["ph"] == "X"]
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert len(spans) == len(timeline)
    for i, event in enumerate(spans):
        lane = timeline.lanes[timeline.lane[i]]
        assert (event["pid"], event["tid"]) == (lane.process, lane.thread)
        assert round(event["ts"] * 1000) == timeline.start_ns[i]
        assert round(event["dur"] * 1000) == timeline.duration_ns[i]
        assert event["args"] == timeline.arguments_of(i)
    step_s = replay(CASE).step_time_s + 1.6e-3
    assert max(e["ts"] + e["dur"] for e in spans) == pytest.approx(step_s * 1e6, abs=1e-3)


def test_spans_of_a_thread_do_not_overlap(timeline: Timeline, tmp_path: Path) -> None:
    perfetto.write(timeline, tmp_path / "step.json")
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in load(tmp_path / "step.json")["traceEvents"]:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            threads.setdefault((event["pid"], event["tid"]), []).append((start, start + round(event["dur"] * 1000)))
    assert len(threads) > 4
    for spans in threads.values():
        spans.sort()
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(spans))


def test_processes_and_threads_have_names(timeline: Timeline, tmp_path: Path) -> None:
    perfetto.write(timeline, tmp_path / "step.json")
    events = [event for event in load(tmp_path / "step.json")["traceEvents"] if event["ph"] == "M"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "rank 0 (stages 0, 2)", 1: "pipeline rank 1"}
    threads = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert threads == {(lane.process, lane.thread) for lane in timeline.lanes}
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    assert order == {0: 0, 1: 1}


def test_names_are_those_of_real_traces(timeline: Timeline, tmp_path: Path, shared: Path) -> None:
    folder = shared / "traces" / "kineto_json"
    (nccl,), (b200,) = folder.glob("hta__*nccl_data*.gz"), folder.glob("tracelens__b200*.gz")
    real = [load(nccl), load(b200)]
    perfetto.write(timeline, tmp_path / "step.json")
    ours = load(tmp_path / "step.json")
    assert set(ours) <= set().union(*real)
    assert set(ours["distributedInfo"]) <= set().union(*(r["distributedInfo"] for r in real))
    groups = [group for r in real for group in r["distributedInfo"]["pg_config"]]
    assert all(set(group) <= set().union(*groups) for group in ours["distributedInfo"]["pg_config"])
    assert set(ours["deviceProperties"][0]) <= set(real[0]["deviceProperties"][0])

    def of(trace: dict[str, Any], phase: str) -> list[dict[str, Any]]:
        return [event for event in trace["traceEvents"] if event["ph"] == phase]

    spans = [event for trace in real for event in of(trace, "X")]
    assert set().union(*of(ours, "X")) <= set().union(*spans)
    assert {e["cat"] for e in of(ours, "X")} <= {e["cat"] for e in spans} | {"gpu_user_annotation"}
    known = set().union(*(event.get("args", {}) for event in spans))
    assert set().union(*(event["args"] for event in of(ours, "X"))) - known == UNSEEN | OURS
    assert {e["name"] for e in of(ours, "M")} <= {e["name"] for trace in real for e in of(trace, "M")}


def test_collectives_are_described_as_nccl_kernels_are(timeline: Timeline, tmp_path: Path, shared: Path) -> None:
    (path,) = (shared / "traces" / "kineto_json").glob("hta__*nccl_data*.gz")
    real = next(e for e in load(path)["traceEvents"] if "Collective name" in e.get("args", {}) and e["cat"] == "kernel")
    perfetto.write(timeline, tmp_path / "step.json")
    events = load(tmp_path / "step.json")["traceEvents"]
    ours = next(e for e in events if e["ph"] == "X" and e["args"].get("term") == "dp_comm")
    assert ours["name"].startswith("nccl")
    assert ours["args"]["Collective name"] == real["args"]["Collective name"] == "allreduce"
    for name, value in ours["args"].items():
        if name not in OURS:
            assert type(value) is type(real["args"][name]), name


def test_nanoseconds_survive_a_day(tmp_path: Path) -> None:
    start = np.array([86_400_000_000_001, 86_400_000_000_123], np.int64)
    lane = Lane(3, 7, "rank 3", "stream 7", "compute")
    day = Timeline(
        lane=np.zeros(2, np.int32),
        start_ns=start,
        duration_ns=np.array([122, 7], np.int64),
        name=np.zeros(2, np.int32),
        category=np.zeros(2, np.int32),
        lanes=(lane,),
        names=("forward",),
        categories=("kernel",),
        arguments={"chunk": Argument(np.array([1]), np.array([4]))},
        base_time_ns=1_700_000_000_000_000_000,
    )
    perfetto.write(day, tmp_path / "day.json")
    text = (tmp_path / "day.json").read_text(encoding="utf-8")
    assert '"ts": 86400000000.001' in text
    assert '"baseTimeNanoseconds": 1700000000000000000' in text
    events = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    assert [round(event["ts"] * 1000) for event in events] == start.tolist()
    assert [event["args"] for event in events] == [{}, {"chunk": 4}]


def test_an_empty_timeline_is_a_file_too(tmp_path: Path) -> None:
    none = np.zeros(0, np.int64)
    codes = np.zeros(0, np.int32)
    perfetto.write(Timeline(codes, none, none, codes, codes, (), (), ()), tmp_path / "none.json")
    assert load(tmp_path / "none.json")["traceEvents"] == []


def test_a_failed_write_leaves_the_old_file(
    timeline: Timeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "step.json"
    path.write_text("old", encoding="utf-8")

    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(perfetto, "_metadata", full)
    with pytest.raises(InputError, match="No space left") as caught:
        perfetto.write(timeline, path)
    assert caught.value.code == "MW-E416"
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["step.json"]


def test_a_directory_and_a_missing_directory_are_refused(timeline: Timeline, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        perfetto.write(timeline, tmp_path)
    assert caught.value.code == "MW-E411"
    with pytest.raises(InputError) as caught:
        perfetto.write(timeline, tmp_path / "missing" / "step.json")
    assert caught.value.code == "MW-E416"


def test_the_same_timeline_gives_the_same_bytes(timeline: Timeline, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        perfetto.write(timeline, tmp_path / folder / "step.json.gz")
    assert (tmp_path / "a" / "step.json.gz").read_bytes() == (tmp_path / "b" / "step.json.gz").read_bytes()
