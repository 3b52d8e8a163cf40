"""The constants file of the catalog and a user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshwright import catalog
from meshwright.errors import InputError
from meshwright.specs.constants import IntervalSpec

TEXT = """
[constant."launch_s"]
value = 5e-6
unit = "s"
prior = 4e-6
prior_sd_ratio = 0.5
label = "inferred"
source = "a test"
identified_by = "small models"
what = "one launch"
[constant."launch_s.hopper"]
value = 3e-6
unit = "s"
prior = 4e-6
prior_sd_ratio = 0.5
label = "fitted"
source = "a test"
identified_by = "small models"
what = "one launch"
[interval]
"""


def interval() -> str:
    """Every field of the interval, whatever fields it has by now."""
    lines = []
    for name, field in IntervalSpec.model_fields.items():
        value = {float: "0.25", int: "512", bool: "true", str: '"a test"'}.get(field.annotation, '["one"]')
        value = "{ gpu = 0.1 }" if name == "unseen_sd" else value
        lines.append(f"{name} = {value}\n")
    return "".join(lines)


def test_the_bundled_constants_are_whole() -> None:
    constants = catalog.constants()
    assert constants.by_name
    for name, constant in constants.by_name.items():
        assert constant.value > 0, name
        assert constant.prior > 0, name
        assert constant.source
        assert constant.what
    assert constants.interval.base_sd > 0
    assert catalog.constants() is constants


def test_a_file_of_constants(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TEXT + interval())
    constants = catalog.constants(path)
    assert constants.get("launch_s", "ampere") == 5e-6
    assert constants.get("launch_s", "hopper") == 3e-6
    assert constants.interval.validated_n_gpus == 512
    assert constants.interval.base_sd == 0.25
    assert constants.interval.validated_gpus == ("one",)


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("value = 5e-6\n", "", "MW-E206", "mine.toml: launch_s: missing: value"),
        ('label = "fitted"', 'label = "guessed"', "MW-E205", "launch_s.hopper: label"),
        ("[interval]", "[intervals]", "MW-E206", "[interval]"),
        ("[interval]", "[interval", "MW-E203", "mine.toml"),
    ],
)
def test_wrong_constants(tmp_path: Path, old: str, new: str, code: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((TEXT + interval()).replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        catalog.constants(path)
    assert caught.value.code == code
    assert said in str(caught.value)


def test_missing_constants(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no\\.toml"):
        catalog.constants(tmp_path / "no.toml")
    with pytest.raises(InputError, match="default"):
        catalog.constants("defualt")
