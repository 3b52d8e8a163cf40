"""``import meshwright`` is light, and its verbs are the functions of ``meshwright.verbs``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import meshwright
from meshwright.errors import InputError
from meshwright.specs.request import EstimateRequest


def test_import_loads_neither_numpy_nor_pydantic(root: Path) -> None:
    program = "import sys, meshwright; dir(meshwright); print(sorted({'numpy', 'pydantic', 'rich'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_verbs_take_a_request_or_its_fields() -> None:
    fields = {"cluster": "8xA100-80GB", "global_batch": 16, "layout": "tp=2,pp=2"}
    by_fields = meshwright.estimate("gpt2", **fields)
    by_request = meshwright.estimate(EstimateRequest(model="gpt2", **fields))
    assert by_fields == by_request


def test_a_room_of_a_verbs_name_is_both(root: Path) -> None:
    """``meshwright.plan`` and ``meshwright.catalog`` are packages and verbs, in whatever order they are used."""
    for first in ("import meshwright.plan.space", "from meshwright import plan", "from meshwright.plan import space"):
        program = f"""
{first}
import meshwright
found = meshwright.plan("gpt2", cluster="8xA100-80GB", global_batch=16, top=1)
assert len(found.layouts) == 1
import meshwright.plan.search
assert meshwright.plan.search.search
assert meshwright.catalog("gpu").rows and meshwright.catalog.gpu("h100")
"""
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONPATH": str(root / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_unknown_attributes_are_errors() -> None:
    with pytest.raises(AttributeError, match="plann"):
        meshwright.plann  # noqa: B018 - the access is the test


def test_wrong_keywords_are_our_own_errors() -> None:
    with pytest.raises(InputError, match="global_batch") as caught:
        meshwright.plan("gpt2", cluster="8xA100-80GB", globalbatch=3)
    assert caught.value.code == "MW-E101"
    with pytest.raises(InputError, match="global_batch") as caught:
        meshwright.estimate("gpt2", cluster="8xA100-80GB", global_batch="many")
    assert caught.value.code == "MW-E103"
    assert "http" not in str(caught.value)


def test_a_second_positional_is_answered_with_its_keyword() -> None:
    with pytest.raises(InputError, match="cluster='8xH100'") as caught:
        meshwright.plan("llama-2-7b", "8xH100")
    assert caught.value.code == "MW-E101"


def test_truth_values_are_no_counts() -> None:
    for key in ("global_batch", "seq_len"):
        with pytest.raises(InputError, match=key) as caught:
            meshwright.estimate("gpt2", cluster="8xH100", layout="tp=1", **{key: True})
        assert caught.value.code == "MW-E103"
    with pytest.raises(InputError, match="top"):
        meshwright.plan("gpt2", cluster="8xH100", top=True)


def test_a_path_may_stand_for_a_model_and_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('gpu = "A100-80GB"\nn_nodes = 1\n')
    fields = {"global_batch": 16, "layout": "tp=2,pp=2"}
    assert meshwright.estimate("gpt2", cluster=path, **fields) == meshwright.estimate(
        "gpt2", cluster=str(path), **fields
    )
    assert EstimateRequest(model=Path("config.json")).model == "config.json"  # type: ignore[arg-type]


def test_nothing_to_explain_is_an_input_error() -> None:
    with pytest.raises(InputError) as caught:
        meshwright.explain(None)
    assert caught.value.code == "MW-E420"
