"""Keyset pages: constant cost at any depth, no counts."""

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request
from rest_framework.views import APIView


class KeysetPagination(CursorPagination):
    """`?cursor=…&limit=…` over (-created_at, -id); limit 1 to 100, 20 by default. A cursor that no page of ours gave
    is 404, one whose position is no value of the column too (the library would ask the database for it)."""

    page_size = 20
    max_page_size = 100
    page_size_query_param = "limit"
    ordering = ("-created_at", "-id")

    def paginate_queryset(self, queryset: Any, request: Request, view: APIView | None = None) -> list[Any] | None:
        given = self.decode_cursor(request)
        if given is not None and given.position is not None:
            column = queryset.model._meta.get_field(self.ordering[0].lstrip("-"))
            try:
                position = column.to_python(given.position)
            except ValidationError:
                position = None
            if position is None or (isinstance(position, datetime) and timezone.is_naive(position)):
                raise NotFound(self.invalid_cursor_message)
        return super().paginate_queryset(queryset, request, view)
