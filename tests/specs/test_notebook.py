"""What a notebook shows of plans and estimates: their numbers in a table, without plotly."""

from __future__ import annotations

from meshwright.specs.plan import Plan
from meshwright.specs.request import PlanRequest
from meshwright.verbs.plan import plan
from tests.report.pages import Page


def _small() -> Plan:
    return plan(PlanRequest(model="gpt2", cluster="1xH100", global_batch=32))


def test_a_plan_is_a_table_with_the_chosen_layout_in_bold() -> None:
    found = _small()
    page = Page(found._repr_html_())
    assert "GPT-2 on 1xH100" in page.text
    assert len(page.tags("tr")) == 1 + len(found.layouts)
    best = found.layouts[found.chosen]
    assert f"<b>dp=1 tp=1 pp=1 micro_batch={best.layout.micro_batch}</b>" in found._repr_html_()
    for estimate in found.layouts:
        assert f"{1e3 * estimate.step_time_s:.1f} ms" in page.text
        assert f"{estimate.tokens_per_s_per_gpu:,.0f}" in page.text
        assert f"{100 * estimate.mfu_ratio:.1f}%" in page.text


def test_an_estimate_is_one_row() -> None:
    page = Page(_small().layouts[0]._repr_html_())
    assert len(page.tags("tr")) == 2
    assert page.tags("p") == []


def test_where_nothing_fits_the_distance_is_shown() -> None:
    found = plan(PlanRequest(model="llama-2-70b", cluster="8xA100-40GB", seq_len=4096, global_batch=64))
    page = Page(found._repr_html_())
    assert found.nearest is not None
    assert found.nearest["what"] in page.text
    assert page.tags("table") == []
