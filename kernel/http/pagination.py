"""Keyset pages: constant cost at any depth, no counts."""

from rest_framework.pagination import CursorPagination


class KeysetPagination(CursorPagination):
    """`?cursor=…&limit=…` over (-created_at, -id); limit 1 to 100, 20 by default."""

    page_size = 20
    max_page_size = 100
    page_size_query_param = "limit"
    ordering = ("-created_at", "-id")
