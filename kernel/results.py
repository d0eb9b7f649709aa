"""Results of commands: frozen dataclasses whose canonical JSON is what the API answers and a replay repeats."""

import dataclasses
import json
import types
import typing
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")

REPLAYED = "replayed"
"""The one field of a result that is never stored or sent: it says that this call repeated an earlier one."""


def to_data(result: Any) -> dict[str, Any]:
    """A result as JSON types, field order kept, `replayed` and fields marked `metadata={"stored": False}` left out."""
    return {
        field.name: _plain(getattr(result, field.name))
        for field in dataclasses.fields(result)
        if field.name != REPLAYED and field.metadata.get("stored", True)
    }


def to_json(result: Any) -> str:
    """Canonical JSON text of a result."""
    return canonical_json(to_data(result))


def canonical_json(value: Any) -> str:
    """Compact JSON of plain values, keys in the order given."""
    return _COMPACT(value)


def from_data(kind: type[T], data: dict[str, Any], **extra: Any) -> T:
    """Rebuild a result from its stored data; UUID, datetime, date and nested results by their annotations."""
    hints = _hints(kind)  # type: ignore[arg-type]  # a class is hashable
    known = {name: _revive(hints[name], value) for name, value in data.items() if name in hints}
    return kind(**{**known, **extra})


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    if dataclasses.is_dataclass(value):
        return to_data(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_plain).encode


@lru_cache(maxsize=256)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _revive(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _revive(next(part for part in typing.get_args(hint) if part is not type(None)), value)
    if origin in (list, tuple):
        (item_hint, *_rest) = typing.get_args(hint) or (Any,)
        return origin(_revive(item_hint, item) for item in value)
    if hint is UUID:
        return UUID(value)
    if hint is datetime:
        return datetime.fromisoformat(value)
    if hint is date:
        return date.fromisoformat(value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_data(hint, value)
    return value
