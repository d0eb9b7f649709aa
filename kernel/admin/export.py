"""A list as CSV: the filters of the page, the masks of the reader, nothing that a spreadsheet would execute."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, tzinfo
from typing import Any

from django.db.models import Model, QuerySet
from django.http import StreamingHttpResponse
from django.utils import timezone, translation
from django.utils.functional import Promise

from kernel import money
from kernel.admin.columns import dig, mask
from kernel.admin.reveal import personal_fields

LIMIT = 100_000
"""Rows of one export. More than that is a report's business, not a page's."""

FORMULA = (
    "=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
)
"""What begins a formula; East Asian spreadsheets read the full-width signs like the others."""
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")

Column = tuple[str | Promise, str | Callable[[Any], Any]]


class _Echo:
    """A file that hands back what is written, so that rows leave as they are made."""

    def write(self, text: str) -> str:
        return text


def harmless(text: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in FORMULA and text and not NUMBER.fullmatch(text) else text


def cell(row: Model, source: str | Callable[[Any], Any], how: str) -> str:
    """A value as text: fen as yuan, instants in the reader's zone, choices by their label, personal data masked."""
    if callable(source):
        return harmless(_text(source(row)))
    if source in personal_fields(type(row)):
        value = str(personal_fields(type(row))[source](row) or "")
        return harmless({"plain": value, "masked": mask(value)}.get(how, ""))
    head, _, last = source.rpartition("__")
    owner = dig(row, head) if head else row
    if owner is None:
        return ""
    shown = getattr(owner, f"get_{last}_display", None)
    value = shown() if shown else getattr(owner, last)
    if last.endswith("_fen") and isinstance(value, int):
        return money.fen_to_yuan(value)
    return harmless(_text(value))


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return timezone.localtime(value).strftime("%Y-%m-%d %H:%M:%S")
    return str(value)


def lines(rows: QuerySet[Any], columns: Iterable[Column], how: str) -> Iterator[str]:
    """The lines of the file, read in batches. It begins with the mark by which spreadsheets know UTF-8."""
    writer = csv.writer(_Echo())
    columns = list(columns)
    yield "\ufeff" + writer.writerow([str(label) for label, _source in columns])
    for row in rows[:LIMIT].iterator(chunk_size=2000):
        yield writer.writerow([cell(row, source, how) for _label, source in columns])


def response(
    rows: QuerySet[Any], columns: Iterable[Column], *, how: str, name: str, zone: tzinfo
) -> StreamingHttpResponse:
    """The download, in the zone and language of the reader although the view has ended when it streams."""
    language = translation.get_language()

    def stream() -> Iterator[str]:
        with timezone.override(zone), translation.override(language):
            yield from lines(rows, columns, how)

    answer = StreamingHttpResponse(stream(), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return answer
