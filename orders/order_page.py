"""What the pages of an order and of a quote show besides the row itself: read in a constant number of queries."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _

from coupons.models import CouponRedemption
from orders.matrix import Action
from orders.models import Anomaly, CouponState, Order, OrderStatusLog, Quote
from payments.models import ChannelNotify, Payment, RefundRequest
from payments.pages import PAYMENT_TONES, REQUEST_TONES, notify_rows

TONES: dict[Any, str] = {
    Order.Status.PENDING: "warning",
    Order.Status.PAID: "primary",
    Order.Status.DELIVERED: "info",
    Order.Status.COMPLETED: "success",
    Order.Status.CLOSED: "neutral",
    Order.Status.CANCELLED: "neutral",
}
COUPON_TONES = {
    CouponState.LEASED: "info",
    CouponState.REDEEMED: "success",
    CouponState.RELEASED: "neutral",
    CouponState.HONOURED: "warning",
    CouponState.CONFLICT: "danger",
}
FULFILMENT_TONES = {"waiting": "warning", "partial": "info", "done": "success", "void": "neutral"}
ANOMALY_TONES = {"OPEN": "danger", "ASSIGNED": "warning", "RESOLVED": "success"}
LOG_TONES: dict[str, str] = {
    OrderStatusLog.Command.CLOSE: "neutral",
    OrderStatusLog.Command.CANCEL: "neutral",
    OrderStatusLog.Command.REOPEN_PAID: "warning",
    OrderStatusLog.Command.DECIDE_REFUND: "warning",
    OrderStatusLog.Command.NOTE_PAID: "warning",
    OrderStatusLog.Command.COMPLETE: "success",
}
OUTCOMES: dict[str, Any] = {
    Action.CONFIRM: _("Confirmed all the same"),
    Action.LATER: _("Asked again later"),
    Action.ANOMALY: _("Nothing moved"),
    Action.CLOSE: _("Closed"),
    Action.CLOSE_AND_REFUND: _("Closed and refunded"),
    Action.REFUND: _("Refunded"),
    Action.REFUND_SECOND_CHARGE: _("Second charge refunded"),
    Action.REFUND_AFTER_CANCEL: _("Stays cancelled, refunded"),
    "stays_pending": _("Stays pending, asked again"),
    "stays_paid": _("Stays paid, tried again"),
    "refund_order": _("Refund of the order"),
    "needs a person": _("Needs a person"),
    "nothing was moved": _("Nothing moved"),
    "asked again later": _("Asked again later"),
}
"""What the system did, in words for people."""

USUAL_WAY = (Order.Status.PENDING, Order.Status.PAID, Order.Status.DELIVERED, Order.Status.COMPLETED)
MOST = 100


@dataclass(frozen=True)
class Step:
    """One step of the drawn status line: done, here, or ahead."""

    label: str
    state: str
    at: datetime | None


def steps_of(order: Order, log: list[OrderStatusLog]) -> list[Step]:
    """The usual way with where the order is; an end beside the way stands last."""
    reached = {row.to_status: row.at for row in log}
    way = list(USUAL_WAY)
    if order.status not in way:
        way = [status for status in way if status in reached] + [Order.Status(order.status)]
    here = way.index(Order.Status(order.status))
    ended = order.status in Order.TERMINAL
    return [
        Step(
            str(status.label),
            "done" if index < here or (index == here and ended) else "here" if index == here else "ahead",
            reached.get(status),
        )
        for index, status in enumerate(way)
    ]


def order_context(order: Order) -> dict[str, Any]:
    """Everything the order page shows."""
    log, lines = list(order.status_logs.order_by("to_version")), list(order.lines.order_by("line_no"))
    payments = list(
        Payment.objects.filter(merchant_id=order.merchant_id, order_no=order.order_no).order_by("created_at", "id")[
            :MOST
        ]
    )
    refunds = RefundRequest.objects.filter(merchant_id=order.merchant_id, order_no=order.order_no)
    notifies = ChannelNotify.objects.filter(
        merchant_id=order.merchant_id, out_trade_no__in=[payment.out_trade_no for payment in payments]
    )
    return {
        "order": order,
        "tone": TONES[order.status],
        "fulfilment_tone": FULFILMENT_TONES.get(order.fulfilment, "neutral"),
        "steps": steps_of(order, log),
        "log": [{"row": row, "tone": LOG_TONES.get(row.command, "info")} for row in log],
        "lines": lines,
        "line_discount_fen": sum(line.line_discount_fen for line in lines),
        "net_fen": sum(line.net_fen for line in lines),
        "refunds_fen": sum(line.goods_committed_fen + line.freight_committed_fen for line in lines),
        "payments": [
            {
                "row": row,
                "tone": PAYMENT_TONES.get(row.status, "neutral"),
                "url": reverse("admin:payments_payment_change", args=[row.pk]),
            }
            for row in payments
        ],
        "refunds": [
            {
                "row": row,
                "tone": REQUEST_TONES.get(row.status, "neutral"),
                "url": reverse("admin:payments_refundrequest_change", args=[row.pk]),
            }
            for row in refunds.order_by("created_at")[:MOST]
        ],
        "notifies": notify_rows(notifies.order_by("-received_at")[:MOST]),
        "shipments": list(order.shipments.prefetch_related("lines__line")[:MOST]),
        "entitlements": list(order.entitlements.select_related("line")[:MOST]),
        "bill": getattr(order, "bill", None),
        **coupon_context(order),
        "anomalies": anomaly_rows(order.anomalies.order_by("-created_at")[:MOST]),
        "after_sales_url": after_sales_url(order),
    }


def coupon_context(order: Order) -> dict[str, Any]:
    """The coupon's evidence and every decision about it."""
    evidence = getattr(order, "coupon", None) if order.coupon_id else None
    redemption = CouponRedemption.objects.filter(coupon_id=order.coupon_id, order_no=order.order_no).first()
    return {
        "evidence": evidence,
        "redemption": redemption if evidence else None,
        "coupon_tone": COUPON_TONES.get(CouponState(order.coupon_state), "neutral"),
        "coupon_url": reverse("admin:coupons_usercoupon_change", args=[order.coupon_id]) if order.coupon_id else "",
        "decisions": list(order.coupon_decisions.order_by("at")[:MOST]) if order.coupon_id else [],
    }


def anomaly_rows(anomalies: Any) -> list[dict[str, Any]]:
    """Anomalies as table rows."""
    return [
        {
            "row": row,
            "tone": ANOMALY_TONES[row.state],
            "outcome": outcome_of(row),
            "url": reverse("admin:orders_anomaly_change", args=[row.pk]),
        }
        for row in anomalies
    ]


def after_sales_url(order: Order) -> str:
    """The after-sales list, searched for this order; "" in a house without that floor."""
    try:
        return f"{reverse('admin:aftersales_aftersalesorder_changelist')}?q={order.order_no}"
    except NoReverseMatch:
        return ""


def outcome_of(anomaly: Anomaly) -> Any:
    """What the system did about it."""
    return OUTCOMES.get(anomaly.outcome, anomaly.outcome) or "–"


def quote_context(quote: Quote) -> dict[str, Any]:
    """A quote with every share, and the order that was made from it."""
    order = Order.objects.filter(quote=quote).first()
    return {
        "quote": quote,
        "price": quote.breakdown,
        "order_url": reverse("admin:orders_order_change", args=[order.pk]) if order else "",
    }
