"""Elements escape what is not HTML yet."""

from __future__ import annotations

import html
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from meshwright.report.html import Html, element, joined


@given(st.text(st.characters(exclude_categories=["C"])), st.text(st.characters(exclude_categories=["C"])))
def test_any_text_comes_back_from_a_parser(text: str, title: str) -> None:
    seen: list[tuple[str, object]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append((tag, attrs))

    written = element("p", text, title=title)
    Reader().feed(written)
    assert seen == [("p", [("title", title)])]
    assert html.unescape(written.split(">", 1)[1].removesuffix("</p>")) == text


def test_html_stays_and_nothing_is_left_out_twice() -> None:
    inner = element("b", "1 < 2")
    assert element("p", inner, None, " & ", class_="note", data_name="x", hidden=True, id=None) == Html(
        '<p class="note" data-name="x" hidden><b>1 &lt; 2</b> &amp; </p>'
    )
    assert joined("<", inner) == "&lt;<b>1 &lt; 2</b>"
