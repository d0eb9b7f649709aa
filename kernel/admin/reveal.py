"""Personal data of buyers: masked unless the reader's role lifts it, each reveal written down."""

from collections.abc import Callable
from typing import Any

from django.db.models import Model

from kernel.admin.columns import dig, mask

Reader = Callable[[Any], Any]
_FIELDS: dict[type[Model], dict[str, Reader]] = {}


def declare(model: type[Model], name: str, read: Reader | None = None) -> None:
    """Say that `name` on a model is personal data; `read` takes the value out of a row (default: the attribute)."""
    _FIELDS.setdefault(model, {})[name] = read or (lambda row: dig(row, name))


def personal_fields(model: type[Model]) -> dict[str, Reader]:
    """The declared personal values of a model."""
    return _FIELDS.get(model, {})


def name_for(obj: Model, how: str) -> str:
    """What an object calls itself, with the personal values in it as this reader may see them: "plain", "masked",
    anything else hidden."""
    text = str(obj)
    if how == "plain":
        return text
    for read in personal_fields(type(obj)).values():
        value = str(read(obj) or "")
        if value and value in text:
            text = text.replace(value, mask(value) if how == "masked" else "••••")
    return text
