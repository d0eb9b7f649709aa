"""What each status of a page means, in a line: listed above the list, and said on the page of one object."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Field, Model
from django.utils.functional import Promise

Text = str | Promise


@dataclasses.dataclass(frozen=True)
class Legend:
    """The lines of one choice field, with the tones of its labels."""

    field: str
    lines: Mapping[Any, Text]
    tones: Mapping[Any, str] = dataclasses.field(default_factory=dict)


def listed(model: type[Model], legends: Iterable[Legend]) -> list[dict[str, Any]]:
    """Every status with its line, in the order of the model's choices, for the list's explanation."""
    return [
        {
            "title": _column(model, legend).verbose_name,
            "rows": [
                {"label": label, "tone": legend.tones.get(value, "neutral"), "line": legend.lines[value]}
                for value, label in _column(model, legend).flatchoices
                if value in legend.lines
            ],
        }
        for legend in legends
    ]


def said_of(obj: Model, legends: Iterable[Legend]) -> list[dict[str, Any]]:
    """What the present status of this object means."""
    said = []
    for legend in legends:
        value = getattr(obj, legend.field)
        if value in legend.lines:
            label = getattr(obj, f"get_{legend.field}_display")()
            said.append({"label": label, "tone": legend.tones.get(value, "neutral"), "line": legend.lines[value]})
    return said


def _column(model: type[Model], legend: Legend) -> Field:
    column = model._meta.get_field(legend.field)
    assert isinstance(column, Field)
    return column
