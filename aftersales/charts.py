"""Thirty days of after-sales on the dashboard: how many, how much, how fast, and why."""

from collections.abc import Sequence
from datetime import date

from django.db.models import Avg, Count, F, Sum
from django.db.models.functions import TruncDate
from django.urls import reverse
from django.utils.translation import gettext_lazy

from aftersales.models import AfterSalesOrder, Status
from aftersales.reasons import reason_label
from kernel.admin import Point, Scope, register_chart
from kernel.admin.charts import Share, instants, register_ranking
from orders.charts import sold_by_day

QUEUE = "admin:aftersales_aftersalesorder_changelist"


def refunded_by_day(scope: Scope, first: date, last: date) -> Sequence[Point]:
    """What went back to buyers, by the day on which the channel was done."""
    rows = (
        scope.of(AfterSalesOrder)
        .filter(status=Status.REFUND_SUCCESS, finished_at__range=instants(scope, first, last))
        .order_by()
        .values_list(TruncDate("finished_at", tzinfo=scope.zone))
        .annotate(fen=Sum(F("approved_goods_fen") + F("approved_freight_fen")))
    )
    return [Point(day, fen) for day, fen in rows]


def refund_rate_by_day(scope: Scope, first: date, last: date) -> Sequence[Point]:
    """Refunded money in thousandths of what was sold on the same day."""
    sold = dict(sold_by_day(scope, first, last))
    refunded = dict(refunded_by_day(scope, first, last))
    return [Point(day, min(1000, round((refunded.get(day) or 0) * 1000 / fen))) for day, fen in sold.items() if fen]


def claims_by_day(scope: Scope, first: date, last: date) -> Sequence[Point]:
    """How many claims buyers made."""
    rows = (
        scope.of(AfterSalesOrder)
        .filter(created_at__range=instants(scope, first, last))
        .order_by()
        .values_list(TruncDate("created_at", tzinfo=scope.zone))
        .annotate(number=Count("id"))
    )
    return [Point(day, number) for day, number in rows]


def audit_minutes_by_day(scope: Scope, first: date, last: date) -> Sequence[Point]:
    """How long buyers waited for the merchant's word, on average, by the day of the decision."""
    rows = (
        scope.of(AfterSalesOrder)
        .filter(decided_at__range=instants(scope, first, last))
        .order_by()
        .values_list(TruncDate("decided_at", tzinfo=scope.zone))
        .annotate(wait=Avg(F("decided_at") - F("created_at")))
    )
    return [Point(day, round(wait.total_seconds() / 60)) for day, wait in rows]


def reasons(scope: Scope, first: date, last: date) -> Sequence[Share]:
    """Why buyers applied."""
    rows = (
        scope.of(AfterSalesOrder)
        .filter(created_at__range=instants(scope, first, last))
        .order_by()
        .values_list("reason_code")
        .annotate(number=Count("id"))
    )
    return [Share(reason_label(code), number, f"{reverse(QUEUE)}?tab=all") for code, number in rows]


for name, label, query, format, order in (
    ("aftersales.refunded", gettext_lazy("Refunded"), refunded_by_day, "money", 20),
    ("aftersales.rate", gettext_lazy("Refund rate"), refund_rate_by_day, "permille", 30),
    ("aftersales.claims", gettext_lazy("Claims"), claims_by_day, "count", 40),
    ("aftersales.audit_time", gettext_lazy("Time to audit"), audit_minutes_by_day, "minutes", 50),
):
    register_chart(
        name,
        label,
        query,
        page=AfterSalesOrder,
        format=format,  # type: ignore[arg-type]
        link=lambda day: f"{reverse(QUEUE)}?tab=all",
        order=order,
    )
register_ranking("aftersales.reasons", gettext_lazy("Reasons"), reasons, page=AfterSalesOrder, order=60)
