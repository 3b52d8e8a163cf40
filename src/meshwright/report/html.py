"""HTML built from elements: text is escaped unless it is ``Html`` already."""

from __future__ import annotations

import html


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *children: str | None, **attributes: object) -> Html:
    """``<tag attributes>children</tag>``; a child that is no ``Html`` is escaped, None left out.

    ``class_`` is written ``class``, ``data_name`` ``data-name``; an attribute of None is left out, True has no value.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items() if value is not None)
    return Html(f"<{tag}{written}>{joined(*children)}</{tag}>")


def joined(*children: str | None) -> Html:
    """The children one after the other, escaped where they are plain text."""
    return Html(
        "".join(
            child if isinstance(child, Html) else html.escape(child, quote=False)
            for child in children
            if child is not None
        )
    )


def _attribute(name: str, value: object) -> str:
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
