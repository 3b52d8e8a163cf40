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
