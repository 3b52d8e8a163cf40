"""Constants by name and qualifier."""

from __future__ import annotations

import pytest

from meshwright import catalog


def test_the_first_known_qualifier_wins() -> None:
    constants = catalog.constants()
    plain = constants.get("gemm_ceiling_ratio")
    assert constants.get("gemm_ceiling_ratio", "ampere") != plain
    assert constants.get("gemm_ceiling_ratio", "no such chip") == plain
    assert constants.get("gemm_ceiling_ratio", "no such chip", "ampere") == constants.get(
        "gemm_ceiling_ratio", "ampere"
    )


def test_replacing_changes_values_and_nothing_else() -> None:
    constants = catalog.constants()
    changed = constants.replace({"gemm_half_m": 1.0})
    assert changed.get("gemm_half_m") == 1.0
    assert constants.get("gemm_half_m") != 1.0
    assert changed.by_name["gemm_half_m"].prior == constants.by_name["gemm_half_m"].prior
    assert changed.get("gemm_half_n") == constants.get("gemm_half_n")


def test_every_constant_says_where_it_comes_from() -> None:
    """A fitted constant has a standard error; no name or source is a family of measured runs."""
    for name, constant in catalog.constants().by_name.items():
        assert constant.source, name
        assert constant.what, name
        assert constant.identified_by, name
        assert (constant.standard_error_ratio is not None) == (constant.label == "fitted"), name
        assert constant.label == "fitted" or constant.value == pytest.approx(constant.prior), name
        assert "vtrain" not in name.casefold()
