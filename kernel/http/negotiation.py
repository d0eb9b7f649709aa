"""Which format an answer has."""

from collections.abc import Iterable
from typing import Any

from rest_framework.negotiation import DefaultContentNegotiation


class OneFormat(DefaultContentNegotiation):
    """A view with one format answers in it, whatever `Accept` or `?format=` say. A 406 would help no caller, and a
    channel's callback must not be lost over a header."""

    def select_renderer(self, request: Any, renderers: Iterable[Any], format_suffix: str | None = None) -> Any:
        offered = list(renderers)
        if len(offered) == 1:
            return offered[0], offered[0].media_type
        return super().select_renderer(request, offered, format_suffix)
