"""A fact: a value with the place it comes from and how far to trust it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

#: How a number is known. Only ``predicted`` numbers are ours.
Label = Literal["measured", "vendor", "published", "inferred", "community", "fitted", "predicted"]


class Noun(BaseModel):
    """Base of every border type: frozen, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Fact(Noun):
    """Where one catalog value comes from. ``text`` is the value as written, with its unit."""

    text: str
    source: str
    label: Label


class CatalogEntry(Noun):
    """Something the catalog knows by name. ``facts`` maps a field (dotted where nested) to its provenance."""

    name: str
    aliases: tuple[str, ...] = ()
    facts: Mapping[str, Fact] = Field(default_factory=dict, repr=False)
