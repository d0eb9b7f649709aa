"""Thirty days at a glance: small bar charts drawn on the server as SVG, each bar a link to its day."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal, NamedTuple

from django.core.cache import cache
from django.utils.functional import Promise
from django.utils.http import urlencode

from kernel import valkey
from kernel.admin.columns import money_text
from kernel.admin.desk import Scope

Text = str | Promise
Format = Literal["count", "money", "permille"]

DAYS = 30
SECONDS_KEPT = 60
WIDTH, HEIGHT = 600, 120


class Point(NamedTuple):
    """One day and its value: a count, fen, or thousandths; None where there is nothing to say."""

    day: date
    value: int | None


@dataclass(frozen=True)
class Chart:
    name: str
    label: Text
    query: Callable[[Scope, date, date], Sequence[Point]]
    page: Any
    format: Format
    link: Callable[[date], str] | None
    hint: Text
    order: int


_CHARTS: dict[str, Chart] = {}


def register_chart(
    name: str,
    label: Text,
    query: Callable[[Scope, date, date], Sequence[Point]],
    *,
    page: Any,
    format: Format = "count",
    link: Callable[[date], str] | None = None,
    hint: Text = "",
    order: int = 100,
) -> None:
    """A chart for whoever may view `page`: `query(scope, first day, last day)` gives a point per day (days left out
    count as nothing), `link(day)` the list behind a bar."""
    _CHARTS[name] = Chart(name, label, query, page, format, link, hint, order)


def charts_for(scope: Scope) -> list[dict[str, Any]]:
    """The charts of this person, drawn."""
    mine = [chart for chart in _CHARTS.values() if scope.policy.may(scope.user, chart.page)]
    mine.sort(key=lambda chart: (chart.order, chart.name))
    return [draw(chart, points_of(chart, scope)) for chart in mine]


def points_of(chart: Chart, scope: Scope) -> list[Point]:
    """The last thirty days, today included; kept for a minute per merchant, since everybody opens the dashboard."""
    today = scope.today_start.date()
    key = f"desk:chart:{chart.name}:{scope.merchant_id or 'all'}:{today.isoformat()}"
    try:
        kept = cache.get(key)
    except valkey.Away:
        kept = None
    if kept is None:
        first = today - timedelta(days=DAYS - 1)
        found = {point.day: point.value for point in chart.query(scope, first, today)}
        kept = [(first + timedelta(days=n), found.get(first + timedelta(days=n))) for n in range(DAYS)]
        with contextlib.suppress(*valkey.Away):
            cache.set(key, kept, SECONDS_KEPT)
    return [Point(day, value) for day, value in kept]


def draw(chart: Chart, points: Sequence[Point]) -> dict[str, Any]:
    """Everything the template needs; heights are scaled to the highest bar (a rate to 1000)."""
    values = [point.value or 0 for point in points]
    top = 1000 if chart.format == "permille" else max([*values, 1])
    step = WIDTH / max(len(points), 1)
    bars = []
    for index, point in enumerate(points):
        height = round((point.value or 0) / top * (HEIGHT - 4), 1)
        bars.append(
            {
                "x": f"{index * step + step * 0.14:.1f}",
                "width": f"{step * 0.72:.1f}",
                "height": f"{max(height, 1.5):.1f}",
                "y": f"{HEIGHT - max(height, 1.5):.1f}",
                "is_empty": not point.value,
                "title": f"{point.day.isoformat()} · {shown(point.value, chart.format)}",
                "url": chart.link(point.day) if chart.link and point.value else "",
            }
        )
    last = points[-1].value if points else None
    return {
        "chart": chart,
        "bars": bars,
        "today": shown(last, chart.format),
        "sum": None if chart.format == "permille" else shown(sum(values), chart.format),
        "mean": shown(_mean(points), chart.format) if chart.format == "permille" else None,
        "first": points[0].day if points else None,
        "last": points[-1].day if points else None,
        "is_empty": not any(values),
        "box": f"0 0 {WIDTH} {HEIGHT}",
    }


def _mean(points: Sequence[Point]) -> int | None:
    known = [point.value for point in points if point.value is not None]
    return round(sum(known) / len(known)) if known else None


def shown(value: int | None, format: Format) -> str:
    """A value of a chart or figure as people read it."""
    if value is None:
        return "–"
    if format == "money":
        return money_text(value)
    if format == "permille":
        return f"{value / 10:.1f} %"
    return f"{value:,}"


def day_link(path: str, **params: Callable[[date], str]) -> Callable[[date], str]:
    """A `link` that adds query parameters made of the day."""
    return lambda day: f"{path}?{urlencode({name: make(day) for name, make in params.items()})}"
