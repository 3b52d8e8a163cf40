"""Reports: one file that asks no network, shows the answer's numbers, escapes what users wrote, in both languages."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.cli import numbers
from meshwright.errors import InputError
from meshwright.i18n import set_language
from meshwright.report import answer as answer_page
from meshwright.report import page as whole_page
from meshwright.report import sections
from meshwright.report.answer import report, write_report
from meshwright.specs.plan import Plan
from meshwright.specs.report import EstimateReport
from tests.report.pages import Page

MIB = 2**20
CHINESE = re.compile(r"[\u4e00-\u9fff]")
HOSTILE = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\"&"


@pytest.fixture
def chinese() -> Iterator[None]:
    set_language("zh_CN")
    yield
    set_language("en")


def every_answer(request: pytest.FixtureRequest) -> list[Plan | EstimateReport]:
    return [request.getfixturevalue(name) for name in ("large", "single", "too_large", "one_layout")]


def test_nothing_comes_from_elsewhere(request: pytest.FixtureRequest) -> None:
    for found in every_answer(request):
        text = report(found)
        page = Page(text)
        assert len(text.encode()) < 6 * MIB
        assert not [a for _tag, a in page.elements if {"src", "href", "action", "data", "srcset"} & set(a)]
        assert {tag for tag, _a in page.elements} & {"link", "img", "iframe", "object", "base"} == set()
        assert text.count("plotly.js v") == 1
        plotly, own = page.scripts
        assert len(plotly) > MIB
        assert "://" not in own + "".join(page.styles) + page.text
        policy = next(a["content"] for a in page.tags("meta") if a.get("http-equiv"))
        assert policy is not None
        assert policy.startswith("default-src 'none';")
        assert "http" not in policy
        assert "connect-src" not in policy


def test_the_page_says_what_the_plan_says(large: Plan) -> None:
    page = Page(report(large))
    best = large.layouts[large.chosen]
    assert page.text.index("LLaMA-1-65B on 256x8 A100-80GB: ") < page.text.index("Step time")
    for shown in (
        numbers.step(best.step_time_s),
        numbers.interval(*best.step_time_interval_s),
        numbers.digits(best.tokens_per_s_per_gpu),
        f"{100 * best.mfu_ratio:.1f}%",
        numbers.gib(best.memory.peak_reserved_bytes),
        f"{large.searched:,} layouts",
        *large.rejected,
        *large.assumed,
        *(item.why for item in large.assumed.values()),
    ):
        assert shown in page.text
    assert large.time_to_train_s is not None
    assert numbers.long_time(large.time_to_train_s) in page.text
    assert page.text.count("step time") >= 2
    assert large.next_command.split()[2] in page.text.rsplit("Next", 1)[1]
    breakdown = page.figures[0]
    assert sum(bar["x"][0] for bar in breakdown["data"]) == pytest.approx(best.step_time_s)


def test_only_what_is_known_is_shown(large: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = dict.fromkeys(
        ("time_to_train_s", "time_to_train_interval_s", "time_to_train_with_failures_s", "cost_usd", "energy_j")
    )
    plain = Page(report(large.model_copy(update=unknown)))
    assert "Time to train" not in plain.text
    described = answer_page.document
    more = {"cost_usd": 1234567.0, "energy_j": 7.2e12, "time_to_train_with_failures_s": {"p50": 2e6, "p90": 3e6}}
    monkeypatch.setattr(answer_page, "document", lambda kind, found: described(kind, found) | more)
    page = Page(report(large))
    for shown in ("Cost", "$1,234,567", "Energy", "2,000 MWh", "With failures", "23.1 days", "p90 34.7 days"):
        assert shown in page.text
        assert shown not in plain.text


def test_what_is_not_validated_is_said(large: Plan) -> None:
    best = large.layouts[large.chosen]

    def text_of(*reasons: str) -> str:
        shown = best.model_copy(update={"not_validated": reasons})
        return Page(report(large.model_copy(update={"layouts": (shown, *large.layouts[1:]), "chosen": 0}))).text

    assert "Not validated by measured runs, so the interval is wider: mixtures of experts." in text_of("experts")
    assert "Not validated" not in text_of()


def test_where_nothing_fits_it_says_by_how_much_and_what_helps(too_large: Plan) -> None:
    page = Page(report(too_large))
    assert "No layout of Llama-2-70B fits on 8xA100-40GB." in page.text
    assert too_large.nearest is not None
    missing = too_large.nearest["misses_bytes"]
    assert f"misses by {missing / 2**30:.1f} GiB" in page.text
    assert numbers.digits(missing / 2**30) in page.text
    for remedy in too_large.remedies:
        assert remedy["changes"][0]["path"] in page.text
        assert numbers.step(remedy["step_time_s"]) in page.text
    [memory] = page.figures
    total = sum(bar["x"][0] for bar in memory["data"] if bar["marker"]["color"] != "#c3c9d0")
    assert total * 2**30 == pytest.approx(too_large.nearest["peak_allocated_bytes"])
    assert "Where the step goes" not in page.text


def test_where_every_layout_breaks_a_rule_there_is_no_figure(too_large: Plan) -> None:
    nearest = {"rule": "memory", "what": "every layout breaks a rule"}
    page = Page(report(too_large.model_copy(update={"nearest": nearest, "remedies": ()})))
    assert "every layout breaks a rule." in page.text
    assert page.figures == []


def test_an_interrupted_search_says_so(large: Plan, too_large: Plan) -> None:
    assert (
        "Interrupted: the best of what was searched"
        in Page(report(large.model_copy(update={"interrupted": True}))).text
    )
    bare = Page(report(too_large.model_copy(update={"interrupted": True, "nearest": None, "remedies": ()})))
    assert "nothing that fits was scored yet" in bare.text
    assert "No layout" not in bare.text


def test_an_estimate_has_its_own_page(one_layout: EstimateReport) -> None:
    page = Page(report(one_layout))
    assert numbers.step(one_layout.estimate.step_time_s) in page.text
    assert [len(figure["data"]) > 0 for figure in page.figures] == [True] * 3
    assert "The best layouts" not in page.text


def test_a_scaling_curve_where_one_is_given(large: Plan) -> None:
    page = Page(report(large, scaling={1024: large.layouts[1], 2048: large.layouts[0]}))
    assert "More and fewer GPUs" in page.text
    assert f"{2048 * large.layouts[0].tokens_per_s_per_gpu:,.0f}" in page.text
    assert "More and fewer GPUs" not in Page(report(large)).text


def test_a_step_of_many_tasks_is_shown_at_both_ends(large: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    step_s = large.layouts[0].step_time_s
    monkeypatch.setattr(sections, "MOST_TASKS", 200)
    page = Page(report(large))
    ranges = [figure["layout"]["xaxis"].get("range") for figure in page.figures]
    (begin, width), (start, end) = [found for found in ranges if found]
    assert begin == 0.0
    assert end == pytest.approx(step_s, rel=0.01)
    assert end - start == pytest.approx(width)
    assert width < step_s / 4
    tasks = [sum(len(bar["x"]) for bar in f["data"]) for f in page.figures if f["layout"]["xaxis"].get("range")]
    assert max(tasks) < 400


def test_every_word_of_a_user_is_escaped(large: Plan, one_layout: EstimateReport) -> None:
    for found in (large, one_layout):
        cluster = dict(found.cluster) | {"text": HOSTILE}
        hostile = found.model_copy(update={"model": dict(found.model) | {"name": HOSTILE}, "cluster": cluster})
        page = Page(report(hostile))
        assert HOSTILE in page.text
        assert page.tags("img") == []
        assert len(page.scripts) == 2
        # A notebook shows them too.
        cell = Page(hostile._repr_html_())
        assert cell.tags("img") == []
        assert cell.scripts == []
        assert HOSTILE in cell.text


def test_data_cannot_end_its_script() -> None:
    import plotly.graph_objects as go

    name = "</script><b>"
    written = whole_page.figure(go.Figure(go.Bar(name=name)).update_layout(height=100), name)
    page = Page(written)
    assert page.figures[0]["data"][0]["name"] == name
    assert page.tags("b") == []


@pytest.mark.usefixtures("chinese")
def test_the_page_speaks_chinese(request: pytest.FixtureRequest) -> None:
    for found in every_answer(request):
        page = Page(report(found))
        assert page.tags("html") == [{"lang": "zh-CN"}]
        headings = re.findall(r"<h2>(.*?)</h2>", report(found))
        assert headings
        assert all(CHINESE.search(heading) for heading in headings)
        titles = [str(a["title"]) for a in page.tags("span") if a.get("class") == "term"]
        assert any(CHINESE.search(title) for title in titles)
        axes = [
            f["layout"][axis]["title"]["text"]
            for f in page.figures
            for axis in ("xaxis", "yaxis")
            if "title" in f["layout"][axis]
        ]
        assert all(CHINESE.search(axis) for axis in axes)


def test_every_axis_has_its_unit(large: Plan) -> None:
    page = Page(report(large, scaling={1024: large.layouts[1], 2048: large.layouts[0]}))
    for figure in page.figures:
        title = figure["layout"]["xaxis"]["title"]["text"]
        assert re.search(r"\((s|GiB)\)|GPUs", title), title
    assert page.tags("html") == [{"lang": "en"}]


def test_words_explain_themselves(large: Plan) -> None:
    page = Page(report(large))
    terms = [a for a in page.tags("span") if a.get("class") == "term"]
    assert len(terms) > 20
    assert all(a["title"] and a["tabindex"] == "0" for a in terms)


def test_the_file_is_written_whole_or_not_at_all(single: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.html"
    write_report(single, path)
    before = path.read_bytes()
    assert before.startswith(b"<!DOCTYPE html>")
    assert before.endswith(b"</html>\n")

    def fails(*_arguments: object, **_more: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(answer_page, "page", fails)
    with pytest.raises(RuntimeError):
        write_report(single, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["plan.html"]
    monkeypatch.undo()
    with pytest.raises(InputError, match="directory"):
        write_report(single, tmp_path)


def test_the_same_answer_gives_the_same_file(single: Plan) -> None:
    assert report(single) == report(single)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser here")
def test_a_browser_draws_every_figure_without_network(large: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    write_report(large, path)
    done = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom",
         path.as_uri()],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    figures = Page(report(large)).figures
    assert done.stdout.count('<div class="figure js-plotly-plot') == len(figures)
    lengths = [x for figure in figures for bar in figure["data"] if bar["type"] == "bar" for x in bar["x"]]
    assert done.stdout.count('<g class="point"') == len(lengths)
    # Words explain themselves by script: the browser's own tooltip is gone.
    assert 'aria-description="' in done.stdout
