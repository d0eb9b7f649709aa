"""Thirty days of sales on the dashboard."""

from collections.abc import Sequence
from datetime import date

from django.db.models import Sum
from django.db.models.functions import TruncDate
from django.urls import reverse
from django.utils.translation import gettext_lazy

from kernel.admin import Point, Scope, register_chart
from kernel.admin.charts import instants
from orders.models import Order


def sold_by_day(scope: Scope, first: date, last: date) -> Sequence[Point]:
    """What buyers paid for orders, by the day on which they paid."""
    rows = (
        scope.of(Order)
        .filter(paid_at__range=instants(scope, first, last))
        .order_by()
        .values_list(TruncDate("paid_at", tzinfo=scope.zone))
        .annotate(fen=Sum("payable_fen"))
    )
    return [Point(day, fen) for day, fen in rows]


register_chart(
    "orders.sold",
    gettext_lazy("Sold"),
    sold_by_day,
    page=Order,
    format="money",
    link=lambda day: reverse("admin:orders_order_changelist"),
    order=10,
)
