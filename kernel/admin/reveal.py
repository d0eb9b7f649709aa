"""Personal data of buyers: masked unless the reader's role lifts it, each reveal written down."""

from collections.abc import Callable
from typing import Any

from django.db.models import Model

from kernel.admin.columns import dig

Reader = Callable[[Any], Any]
_FIELDS: dict[type[Model], dict[str, Reader]] = {}


def declare(model: type[Model], name: str, read: Reader | None = None) -> None:
    """Say that `name` on a model is personal data; `read` takes the value out of a row (default: the attribute)."""
    _FIELDS.setdefault(model, {})[name] = read or (lambda row: dig(row, name))


def personal_fields(model: type[Model]) -> dict[str, Reader]:
    """The declared personal values of a model."""
    return _FIELDS.get(model, {})
