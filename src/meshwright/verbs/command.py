"""The next command to type: a request written back as a command line."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from meshwright.specs.fact import Noun
from meshwright.specs.layout import Layout
from meshwright.specs.request import JobRequest

#: What nobody needs to say: shorter text that means the same.
_USUAL = Layout(zero_stage=0).model_dump()


def layout_text(layout: Layout) -> str:
    """The layout as ``--layout`` takes it: the degrees and the micro-batch always, the rest where it is not usual."""
    always = ("dp", "tp", "pp", "micro_batch", "zero_stage")
    said = []
    for name in Layout.model_fields:
        value = getattr(layout, name)
        if name in always or value != _USUAL[name]:
            said.append(f"{name}={written(value)}")
    return ",".join(said)


def command(verb: str, request: JobRequest, *, set: Iterable[str] = (), **flags: Any) -> str:
    """``mw verb`` with what ``request`` says and further ``flags`` (None: left out)."""
    words = ["mw", verb]
    if request.model:
        words.append(request.model)
    values = {name: getattr(request, name) for name in JobRequest.model_fields if name not in ("model", "set")}
    for name, value in (values | flags).items():
        words.extend(_flag(name, value))
    for text in (*request.set, *set):
        words.extend(("--set", text))
    return shlex.join(words)


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else f"--no-{flag[2:]}"]
    return [flag, str(value)]


def change_texts(changes: Iterable[Any]) -> list[str]:
    """Changes as ``--set`` takes them."""
    return [f"{change.path}={written(change.value)}" for change in changes]


def written(value: Any) -> str:
    """A value as one types it: truth values in lower case, catalog entries by name."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.name if isinstance(value, Noun) and hasattr(value, "name") else str(value)
