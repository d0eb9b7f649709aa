"""Thirty days of books that agree, on the dashboard."""

from collections.abc import Sequence
from datetime import date

from django.urls import reverse
from django.utils.translation import gettext_lazy

from kernel.admin import Point, Scope, register_chart
from reconciliation.models import ReconciliationRun


def match_rate_by_day(scope: Scope, first: date, last: date) -> Sequence[Point]:
    """The share of compared pairs that agreed, in thousandths, of the daily run over all merchants."""
    rows = scope.of(ReconciliationRun).filter(
        kind=ReconciliationRun.Kind.DAILY, merchant=None, on_date__range=(first, last), items__gt=0
    )
    return [
        Point(day, matched * 1000 // items) for day, matched, items in rows.values_list("on_date", "matched", "items")
    ]


register_chart(
    "reconciliation.match_rate",
    gettext_lazy("Match rate"),
    match_rate_by_day,
    page=ReconciliationRun,
    format="permille",
    link=lambda day: reverse("admin:reconciliation_reconciliationrun_changelist"),
    order=70,
)
