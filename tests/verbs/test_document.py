"""Files: written whole or not at all, and refused with a reason where they are no plan."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from meshwright.errors import InputError
from meshwright.specs.plan import Plan
from meshwright.verbs.document import check_writable, pick, read_plan, render, write_whole


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    write_whole(path, "new")
    assert path.read_text() == "new"

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(InputError, match="No space left"):
        write_whole(path, "newer")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"], "a part of a file was left behind"


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    umask = os.umask(0o022)
    try:
        write_whole(path, "x")
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o600)
    write_whole(path, "y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(("name", "code"), [("", "MW-E411"), ("missing/plan.json", "MW-E416")])
def test_unwritable_places_are_refused_before_the_work(tmp_path: Path, name: str, code: str) -> None:
    for refuse in (check_writable, lambda path: write_whole(path, "x")):
        with pytest.raises(InputError) as caught:
            refuse(tmp_path / name)
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "MW-E410"),
        ("", "MW-E412"),
        (" \n", "MW-E412"),
        ("{", "MW-E413"),
        ("[1]", "MW-E413"),
        ("{}", "MW-E413"),
        ('{"schema": "meshwright/estimate/1"}', "MW-E413"),
        ('{"schema": "meshwright/plan/1"}', "MW-E414"),
        ('{"schema": "meshwright/plan/1", "layouts": [{}]}', "MW-E413"),
    ],
)
def test_what_is_no_plan_is_refused(tmp_path: Path, content: str | None, code: str) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError) as caught:
        pick(path)
    assert caught.value.code == code
    assert str(path) in str(caught.value)


def test_directories_and_binaries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_plan(tmp_path)
    assert caught.value.code == "MW-E411"
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError) as caught:
        read_plan(tmp_path / "x.json")
    assert caught.value.code == "MW-E413"


def test_a_near_file_name_is_suggested(small_plan: tuple[Plan, Path]) -> None:
    with pytest.raises(InputError, match=r"plan\.json"):
        read_plan(small_plan[1].with_name("pln.json"))


@pytest.mark.parametrize("number", [0, -1, 6, 99])
def test_numbers_beyond_the_plan_are_refused(small_plan: tuple[Plan, Path], number: int) -> None:
    with pytest.raises(InputError, match="1 to 5") as caught:
        pick(small_plan[1], number)
    assert caught.value.code == "MW-E414"


def test_a_plan_reads_back_as_it_was(small_plan: tuple[Plan, Path], small_document: dict[str, Any]) -> None:
    found, path = small_plan
    picked = pick(path, 2)
    assert picked.layout == found.layouts[1].layout
    assert picked.job.model.n_layers == found.model["n_layers"]
    assert picked.cluster.n_gpus == found.cluster["n_gpus"] == 16
    # Sources travel with the plan.
    assert picked.cluster.gpu.facts["memory_bytes"].source
    assert json.loads(render("plan", found)) == small_document


def test_numbers_that_json_lacks_become_null() -> None:
    from meshwright.specs.plan import Assumed
    from meshwright.verbs.document import document

    found = document("x", Assumed(name="a", value=1, why="", step_time_ratio=float("inf")))
    assert found["step_time_ratio"] is None
