"""The newcomer's questions from ``mw --help``, and the pages of scale, fit, compare and ``--why-not``."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from meshwright.cli.app import QUESTIONS, main
from meshwright.cli.interrupts import Interrupts
from meshwright.i18n import set_language


class Run:
    """Runs the command line in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, status: int = 0) -> str:
        done = main(list(arguments))
        out, self.err = self.capsys.readouterr()
        assert done == status, f"{done}: {out}{self.err}"
        return out

    def document(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*arguments, "--json", status=status))
        return found


@pytest.fixture
def mw(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


@pytest.fixture(params=["en", "zh-CN"])
def language(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param
    set_language("en")


#: A small command of each page, with its status.
PAGES: dict[str, tuple[list[str], int]] = {
    "scale": (["scale", "llama-2-7b", "--cluster", "8x4090", "--gpus", "4..128", "--tokens", "10B"], 0),
    "scale weak": (["scale", "gpt2", "--cluster", "8xA100-80GB", "--gpus", "8,16", "--weak"], 0),
    "scale none": (["scale", "llama-2-70b", "--cluster", "8x4090", "--gpus", "8"], 1),
    "fit": (["fit", "llama-3.1-8b", "--cluster", "8x4090", "--seq-len", "8192"], 0),
    "fit no": (["fit", "llama-3.1-8b", "--cluster", "H100"], 1),
    "fit tight": (["fit", "llama-3.1-8b", "--cluster", "2xH100", "--seq-len", "8192"], 0),
    "compare": (["compare", "llama-3.1-8b", "--clusters", "8xH100", "8xB200", "--tokens", "100B"], 0),
    "compare all": (
        ["compare", "gpt3-2.7b", "--cluster", "8xA100-80GB", "--cluster", "256x8 A100-80GB, 4x100Gb OPA",
         "--deadline", "2d", "--budget", "10k USD"],
        0,
    ),
    "compare none": (["compare", "llama-2-7b", "--clusters", "8x4090", "--deadline", "1h", "--global-batch", "64"], 1),
    "slower": (["explain", "llama-3.1-8b", "--cluster", "8xH100", "--why-not", "tp=2,pp=4"], 0),
    "memory": (["explain", "llama-3.1-8b", "--cluster", "8xH100", "--why-not", "tp=8,micro_batch=64"], 0),
    "illegal": (["explain", "llama-3.1-8b", "--cluster", "8xH100", "--why-not", "tp=3"], 0),
}  # fmt: skip


def _commands_off(page: str) -> list[str]:
    """The lines of a page without the command to copy, which may be longer."""
    return [line for line in page.splitlines() if not re.match(r" +(mw |--)", line)]


@pytest.mark.parametrize("name", PAGES)
def test_pages_stay_within_80_columns_in_both_languages(name: str, language: str, mw: Run) -> None:
    arguments, status = PAGES[name]
    page = mw(*arguments, "--lang", language, status=status)
    long = [line for line in _commands_off(page) if cell_len(line) > 80]
    assert long == []
    assert re.search(r"[\u4e00-\u9fff]", page.splitlines()[0]) if language == "zh-CN" else page.isprintable() is False
    # No English sentence is left over in Chinese.
    assert language == "en" or not re.search(r"\b(the|with|takes|fits on|against)\b", page.splitlines()[0])


@pytest.mark.parametrize("name", PAGES)
def test_documents_carry_their_schema_and_the_verdict_comes_first(name: str, mw: Run) -> None:
    arguments, status = PAGES[name]
    document = mw.document(*arguments, status=status)
    assert document["schema"] == f"meshwright/{arguments[0]}/1"
    verdict = document.get("verdict") or document["sentence"]
    page = " ".join(mw(*arguments, status=status).split())
    assert page.startswith(" ".join(verdict.split())[:60])
    assert document["next_command"].startswith("mw ")


@pytest.mark.parametrize("name", ["scale", "fit", "compare", "compare all", "slower"])
def test_the_next_command_runs(name: str, mw: Run) -> None:
    arguments, status = PAGES[name]
    document = mw.document(*arguments, status=status)
    mw(*shlex.split(document["next_command"])[1:])


@pytest.mark.parametrize("name", ["scale", "fit", "compare"])
def test_out_holds_the_same_document(name: str, mw: Run, tmp_path: Path) -> None:
    arguments, status = PAGES[name]
    path = tmp_path / "answer.json"
    printed = mw.document(*arguments, "--out", str(path), status=status)
    assert str(path) in mw.err
    written = json.loads(path.read_text(encoding="utf-8"))
    for timing in ("elapsed_s",):
        printed.pop(timing), written.pop(timing)
    assert written == printed


@pytest.mark.slow
def test_help_holds_the_questions_and_their_commands(mw: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = mw("--help")
    monkeypatch.chdir(tmp_path)
    for question, command in QUESTIONS:
        assert question in page
        assert command in page
        mw(*shlex.split(command)[1:])
    assert "Questions" not in mw("fit", "--help")


@pytest.mark.slow
def test_six_questions_six_commands(mw: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a newcomer asks, each by a command that the help page shows, with other names in it."""
    monkeypatch.chdir(tmp_path)
    on_4090 = mw("fit", "Llama-3.1-8B", "--cluster", "8x4090", "--seq-len", "8192")
    assert on_4090.startswith("Yes: Llama-3.1-8B with sequences of 8,192 trains on 8x4090")
    on_a100 = mw("fit", "Llama-3.1-8B", "--cluster", "8xA100-40GB", "--seq-len", "8192")
    assert on_a100.startswith("Yes: Llama-3.1-8B with sequences of 8,192 trains on 8xA100-40GB")
    assert "The largest micro-batch is" in " ".join(on_a100.split())
    needed = mw("compare", "llama-3.1-70b", "--clusters", "H100", "B200", "--deadline", "10d")
    verdict = " ".join(needed.split())
    h100, h100_cost, b200, b200_cost = re.findall(
        r"takes (\d+)xH100 \(([\d.]+[kM]) USD\) or (\d+)xB200 \(([\d.]+[kM]) USD\)", verdict
    )[0]
    assert int(b200) < int(h100)
    assert (h100_cost, b200_cost) != ("", "")
    assert len(re.findall(r"^Price: [\d.]+ USD a GPU-hour, ", needed, re.MULTILINE)) == 2
    assert "misses" not in needed, "that one node is too small is no news where only the kind counts"
    mw("plan", "llama-3.1-8b", "--cluster", "8xH100", "--out", "plan.json")
    page = " ".join(mw("explain", "plan.json", "--why-not", "tp=2,pp=4").split())
    assert re.match(r"Slower: even its best variant .* a step against .*%: mostly .*tp_comm \+", page)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["scale", "gpt2", "--cluster", "8xH100", "--gpus", "8..x"], ["MW-E450", "--gpus", "8..1024"]),
        (["scale", "gpt2", "--cluster", "8xH100", "--gpu", "8"], ["MW-E101", "--gpus"]),
        (["compare", "gpt2", "--clusters", "8xH10"], ["MW-E201", "H100"]),
        (["compare", "gpt2", "--clusters", "8xH100", "--deadline", "10"], ["MW-E111", "--deadline", "10d"]),
        (["compare", "gpt2", "--clusters", "8xH100", "--budget", "2M"], ["MW-E112", "--budget"]),
        (["compare", "gpt2"], ["MW-E402", "--clusters 8xH100 8xB200"]),
        (["fit", "gtp2", "--cluster", "8xH100"], ["MW-E201", "Did you mean gpt2?"]),
        (["fit", "gpt2", "--cluster", "8xH100", "--layout", "ttp=2"], ["MW-E130", "tp"]),
        (["explain", "tp", "--cluster", "8xH100"], ["MW-E102", "--cluster", "--why-not"]),
        (["explain", "nothing.json", "--why-not", "tp=2"], ["MW-E410", "nothing.json"]),
        (["explain", "gpt2", "step", "--cluster", "8xH100", "--why-not", "tp=2"], ["MW-E105", "--why-not"]),
    ],
)
def test_bad_input_is_one_clear_message(arguments: list[str], expected: list[str], mw: Run) -> None:
    assert mw(*arguments, status=2) == ""
    for text in expected:
        assert text in mw.err
    assert "Traceback" not in mw.err


@pytest.mark.parametrize("name", ["scale", "fit", "compare", "slower"])
def test_ctrl_c_gives_what_there_is_and_130(name: str, mw: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, _status = PAGES[name]
    seen: list[int] = []

    def check(_self: Any) -> None:
        seen.append(1)
        if len(seen) > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Interrupts, "check", check)
    page = mw(*arguments, status=130)
    assert page.startswith("Interrupted: ")
    assert "\nNext\n" in page


def test_why_not_without_cluster_reads_a_plan(mw: Run, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    mw("plan", "gpt3-2.7b", "--cluster", "2x8 A100-80GB", "--global-batch", "64", "--out", str(path))
    page = mw("explain", str(path), "--why-not", "tp=8", "--pick", "2")
    assert page.startswith("Slower")
    assert "tensor-parallel communication" in page
    assert mw("explain", str(path), "step_time_s", "--pick", "2").startswith("step_time_s = ")
