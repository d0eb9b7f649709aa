"""JSON as we take it: UTF-8, and nothing that two readers could understand differently.

The standard parser lets through what no later check can put right: a member named twice (the last one wins here, the
first one elsewhere), NaN, numbers that overflow to infinity, lone surrogates and NUL (PostgreSQL takes neither), and it
leaves a body of a thousand brackets with a RecursionError. All of that is refused here, once, for every endpoint.
"""

import json
from math import isinf
from typing import Any

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer


def loads(raw: bytes) -> Any:
    """The value of a JSON text. Raises ValueError."""
    text = raw.decode()
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
        if "\\u" in text:
            _check(value)
    except RecursionError:
        raise ValueError("nested too deep") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member is named twice")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError("a number is too large")
    return value


def _check(value: Any) -> None:
    """NUL and lone surrogates come in as \\u escapes only: as bytes they are neither JSON nor UTF-8."""
    if isinstance(value, str):
        if "\x00" in value:
            raise ValueError("a text holds NUL")
        value.encode()  # UnicodeEncodeError is a ValueError
    elif isinstance(value, dict):
        for name, item in value.items():
            _check(name)
            _check(item)
    elif isinstance(value, list):
        for item in value:
            _check(item)


class JSONBodyParser(BaseParser):
    """DRF's door to `loads`."""

    media_type = "application/json"
    renderer_class = JSONRenderer

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        try:
            return loads(stream.read())
        except ValueError as error:
            raise ParseError(_("The body is not the JSON we take.")) from error
