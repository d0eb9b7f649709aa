"""Thirty days at a glance: small bar charts drawn on the server as SVG, each bar a link to its day."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple

from django.core.cache import cache
from django.utils.functional import Promise
from django.utils.http import urlencode
from django.utils.translation import get_language, ngettext

from kernel import valkey
from kernel.admin.columns import money_text
from kernel.admin.desk import Scope

Text = str | Promise
Format = Literal["count", "money", "permille", "minutes"]

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


class Share(NamedTuple):
    """One line of a ranking: what it is, how many, and the list behind it."""

    label: str
    value: int
    url: str = ""


@dataclass(frozen=True)
class Ranking:
    name: str
    label: Text
    query: Callable[[Scope, date, date], Sequence[Share]]
    page: Any
    order: int


_CHARTS: dict[str, Chart] = {}
_RANKINGS: dict[str, Ranking] = {}
MOST_SHARES = 6


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


def register_ranking(
    name: str,
    label: Text,
    query: Callable[[Scope, date, date], Sequence[Share]],
    *,
    page: Any,
    order: int = 100,
) -> None:
    """The largest shares of the last thirty days, for whoever may view `page`."""
    _RANKINGS[name] = Ranking(name, label, query, page, order)


def rankings_for(scope: Scope) -> list[dict[str, Any]]:
    """The rankings of this person, longest bar first."""
    today = scope.today_start.date()
    first = today - timedelta(days=DAYS - 1)
    drawn = []
    for ranking in sorted(_RANKINGS.values(), key=lambda ranking: (ranking.order, ranking.name)):
        if not scope.policy.may(scope.user, ranking.page):
            continue
        shares = _kept(
            f"desk:ranking:{ranking.name}:{scope.merchant_id or 'all'}:{today}:{get_language()}",
            partial(_plain, ranking, scope, first, today),
        )
        shares = sorted((Share(*share) for share in shares), key=lambda share: -share.value)[:MOST_SHARES]
        top = max((share.value for share in shares), default=1)
        drawn.append(
            {
                "ranking": ranking,
                "shares": [{"share": share, "width": f"{max(2.0, share.value * 100 / top):.0f}%"} for share in shares],
            }
        )
    return drawn


def _plain(ranking: Ranking, scope: Scope, first: date, last: date) -> list[tuple[str, int, str]]:
    return [(share.label, share.value, share.url) for share in ranking.query(scope, first, last)]


def instants(scope: Scope, first: date, last: date) -> tuple[datetime, datetime]:
    """From the first moment of the first day to the last of the last, in the reader's zone."""
    begin = datetime.combine(first, time.min, scope.zone)
    return begin, datetime.combine(last + timedelta(days=1), time.min, scope.zone) - timedelta(microseconds=1)


def _kept(key: str, make: Callable[[], Any]) -> Any:
    """A value kept for a minute; made anew when there is no cache to keep it."""
    with contextlib.suppress(*valkey.Away):
        kept = cache.get(key)
        if kept is not None:
            return kept
    made = make()
    with contextlib.suppress(*valkey.Away):
        cache.set(key, made, SECONDS_KEPT)
    return made


def charts_for(scope: Scope) -> list[dict[str, Any]]:
    """The charts of this person, drawn."""
    mine = [chart for chart in _CHARTS.values() if scope.policy.may(scope.user, chart.page)]
    mine.sort(key=lambda chart: (chart.order, chart.name))
    return [draw(chart, points_of(chart, scope)) for chart in mine]


def points_of(chart: Chart, scope: Scope) -> list[Point]:
    """The last thirty days, today included; kept for a minute per merchant, since everybody opens the dashboard."""
    today = scope.today_start.date()
    first = today - timedelta(days=DAYS - 1)
    key = f"desk:chart:{chart.name}:{scope.merchant_id or 'all'}:{today}"

    def make() -> list[tuple[date, int | None]]:
        found = {point.day: point.value for point in chart.query(scope, first, today)}
        return [(first + timedelta(days=n), found.get(first + timedelta(days=n))) for n in range(DAYS)]

    return [Point(day, value) for day, value in _kept(key, make)]


def draw(chart: Chart, points: Sequence[Point]) -> dict[str, Any]:
    """Everything the template needs; heights are scaled to the highest bar (a rate to 1000)."""
    values = [point.value or 0 for point in points]
    is_mean = chart.format in ("permille", "minutes")
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
        "today": shown(last if is_mean else last or 0, chart.format),
        "sum": None if is_mean else shown(sum(values), chart.format),
        "mean": shown(_mean(points), chart.format) if is_mean else None,
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
    if format == "minutes":
        return ngettext("%(hours)s hour", "%(hours)s hours", 2) % {"hours": f"{value / 60:.1f}"}
    return f"{value:,}"


def day_link(path: str, **params: Callable[[date], str]) -> Callable[[date], str]:
    """A `link` that adds query parameters made of the day."""
    return lambda day: f"{path}?{urlencode({name: make(day) for name, make in params.items()})}"
