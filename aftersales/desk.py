"""What of after-sales waits on the dashboard, its figures, its charts, and the search box."""

from typing import Any

from django.db.models import F, Q, Sum
from django.urls import reverse
from django.utils.translation import gettext_lazy

from aftersales.claim_page import TABS
from aftersales.models import AfterSalesOrder, Status
from kernel import admin, money
from kernel.admin import Hit, Scope

PAID = F("approved_goods_fen") + F("approved_freight_fen")


def _waiting(which: Q) -> Any:
    def count(scope: Scope) -> int:
        return admin.capped(scope.of(AfterSalesOrder).filter(which))

    return count


admin.register_navigation(
    "aftersales.queue",
    group=gettext_lazy("After-sales"),
    label=gettext_lazy("After-sales queue"),
    url="admin:aftersales_aftersalesorder_changelist",
    params={"tab": "audit"},
    page=AfterSalesOrder,
    icon="assignment_return",
    order=100,
)
admin.register_waiting(
    "aftersales.audit",
    gettext_lazy("Claims to audit"),
    _waiting(TABS["audit"][1]),
    "admin:aftersales_aftersalesorder_changelist",
    page=AfterSalesOrder,
    action="approve",
    params={"tab": "audit"},
    icon="gavel",
    hint=gettext_lazy("Silence after the deadline approves or escalates."),
    order=10,
)
admin.register_waiting(
    "aftersales.receive",
    gettext_lazy("Parcels to inspect"),
    _waiting(TABS["receive"][1]),
    "admin:aftersales_aftersalesorder_changelist",
    page=AfterSalesOrder,
    action="confirm_return",
    params={"tab": "receive"},
    icon="inventory",
    hint=gettext_lazy("Buyers wait for their money."),
    order=20,
)
admin.register_waiting(
    "aftersales.failed",
    gettext_lazy("Failed refunds"),
    _waiting(TABS["failed"][1]),
    "admin:aftersales_aftersalesorder_changelist",
    page=AfterSalesOrder,
    action="retry_refund",
    params={"tab": "failed"},
    icon="money_off",
    hint=gettext_lazy("The channel said no; a person decides."),
    order=30,
)


def _refunded_today(scope: Scope) -> int:
    rows = scope.of(AfterSalesOrder).filter(status=Status.REFUND_SUCCESS, finished_at__gte=scope.today_start)
    return int(rows.aggregate(fen=Sum(PAID))["fen"] or 0)


admin.register_figure(
    "aftersales.refunded_today",
    gettext_lazy("Refunded today"),
    _refunded_today,
    page=AfterSalesOrder,
    url="admin:aftersales_aftersalesorder_changelist",
    params={"tab": "done"},
    format="money",
    order=20,
)


def _find(scope: Scope, term: str) -> list[Hit]:
    rows = scope.of(AfterSalesOrder).filter(Q(after_sales_no=term) | Q(order_no=term))[:5]
    return [
        Hit(
            row.after_sales_no,
            f"{row.get_type_display()} · {row.get_status_display()} · {money.display(row.applied_total_fen)}",
            reverse("admin:aftersales_aftersalesorder_change", args=[row.pk]),
        )
        for row in rows
    ]


admin.register_search("after_sales", _find, page=AfterSalesOrder)
