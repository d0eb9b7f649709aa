"""How values look: money with its sign, times in the reader's zone, statuses as coloured labels."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString

from kernel import clock
from kernel import money as amounts

Text = str | Promise
Column = Callable[[Any], Any]
TONES = ("info", "success", "warning", "danger", "neutral", "primary")


def dig(row: Model, path: str) -> Any:
    """Follow a double-underscore path from a row to a value."""
    value: Any = row
    for step in path.split("__"):
        if value is None:
            return None
        value = getattr(value, step)
    return value


def money_text(fen: int | None) -> str:
    """¥1,234.56, or a dash."""
    return "–" if fen is None else amounts.display(fen)


def money(field: str, label: Text, *, ordering: str | None = None) -> Column:
    """A list column of an amount kept in fen."""

    @admin.display(description=label, ordering=ordering)  # type: ignore[arg-type]
    def column(row: Model) -> SafeString:
        return format_html('<span class="q-money">{}</span>', money_text(dig(row, field)))

    column.__name__ = f"money_{field}"
    return column


def badge(text: Text, tone: str = "neutral") -> SafeString:
    """A coloured label."""
    return format_html('<span class="q-badge q-badge-{}">{}</span>', tone if tone in TONES else "neutral", text)


def status(field: str, label: Text, tones: Mapping[Any, str], *, ordering: str | None = None) -> Column:
    """A list column of a choice field as a coloured label; `tones` maps values to
    info, success, warning, danger, primary or neutral."""

    @admin.display(description=label, ordering=ordering)  # type: ignore[arg-type]
    def column(row: Model) -> SafeString:
        *head, last = field.split("__")
        owner = dig(row, "__".join(head)) if head else row
        shown = getattr(owner, f"get_{last}_display", None)
        value = getattr(owner, last)
        return badge(shown() if shown else value, tones.get(value, "neutral"))

    column.__name__ = f"status_{field}"
    return column


def when(field: str, label: Text, *, ordering: str | None = None) -> Column:
    """A list column of an instant in the zone of the reader: day and time this year, the day before; all of it on
    hovering."""

    @admin.display(description=label, ordering=ordering)  # type: ignore[arg-type]
    def column(row: Model) -> Any:
        value = dig(row, field)
        if value is None:
            return "–"
        local = timezone.localtime(value)
        is_this_year = local.year == timezone.localtime(clock.now()).year
        return format_html(
            '<time datetime="{}" title="{}" class="q-when">{}</time>',
            local.isoformat(timespec="seconds"),
            local.strftime("%Y-%m-%d %H:%M:%S"),
            local.strftime("%m-%d %H:%M" if is_this_year else "%Y-%m-%d"),
        )

    column.__name__ = f"when_{field}"
    return column


def yes_no(field: str, label: Text) -> Column:
    """A list column of a boolean."""

    @admin.display(description=label, boolean=True)  # type: ignore[arg-type]
    def column(row: Model) -> bool:
        return bool(dig(row, field))

    column.__name__ = f"yes_{field}"
    return column


ID = re.compile(r"[0-9A-Za-z_@.:-]{11,}", re.ASCII)


def mask(text: str) -> str:
    """Leave enough to recognise, not enough to use: 138****5678, 张****, oUpF****tYkk.

    Only a number or an id of eleven signs or more keeps both ends. A name, or an address that begins with one, keeps
    its first sign.
    """
    if ID.fullmatch(text):
        return f"{text[:3]}****{text[-4:]}"
    return f"{text[:1]}****" if text else ""
