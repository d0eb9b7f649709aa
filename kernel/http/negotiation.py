"""Which format an answer has."""

from collections.abc import Sequence
from typing import Any

from rest_framework.negotiation import DefaultContentNegotiation


class OneFormat(DefaultContentNegotiation):
    """A view with one format answers in it, whatever `Accept` or `?format=` say. A 406 would help no caller, and a
    channel's callback must not be lost over a header."""

    def select_renderer(self, request: Any, renderers: Sequence[Any], format_suffix: str | None = None) -> Any:
        if len(renderers) == 1:
            return renderers[0], renderers[0].media_type
        return super().select_renderer(request, renderers, format_suffix)
