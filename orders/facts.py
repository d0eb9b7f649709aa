"""What orders tell coupons (coupons.facts.OrderFacts): local tables only."""

import json
from collections.abc import Collection, Mapping
from datetime import datetime
from uuid import UUID

from django.db import connection

from coupons.facts import LeaseVerdict, OrderMoment
from orders.models import Order, OrderStatusLog
from payments.models import Payment, RefundRequest

# The numbers come as one JSON parameter: five hundred parameters, or an array, cost more than the two look-ups.
ORDERS_AND_THEIR_MONEY = """
SELECT o.order_no, o.status, EXISTS (
    SELECT 1 FROM payment p WHERE p.merchant_id = o.merchant_id AND p.order_no = o.order_no AND p.status = 'PAID')
FROM json_array_elements_text(%(asked)s::json) AS asked(order_no)
JOIN orders o ON o.order_no = asked.order_no AND o.merchant_id = %(merchant)s::uuid
"""


class LocalOrderFacts:
    """Answers from orders, payments and refund requests."""

    def lease_verdicts(
        self, *, merchant_id: UUID, order_nos: Collection[str], now: datetime
    ) -> Mapping[str, LeaseVerdict]:
        """PENDING: its own timer ends it. Paid: the coordinator's. Ended unpaid: release."""
        with connection.cursor() as cursor:
            cursor.execute(ORDERS_AND_THEIR_MONEY, {"merchant": merchant_id, "asked": json.dumps(list(order_nos))})
            return {order_no: self._verdict(status, paid) for order_no, status, paid in cursor.fetchall()}

    @staticmethod
    def _verdict(status: int, paid: bool) -> LeaseVerdict:
        if status == Order.Status.PENDING:
            return LeaseVerdict.WAIT
        if status in Order.PAID_OR_LATER:
            return LeaseVerdict.COORDINATE
        return LeaseVerdict.COORDINATE if paid else LeaseVerdict.RELEASE

    def moments(self, *, merchant_id: UUID, order_nos: Collection[str]) -> list[OrderMoment]:
        """Status log, payments and refunds of these orders, in order of time."""
        numbers = list(order_nos)
        found: list[OrderMoment] = []
        logs = OrderStatusLog.objects.filter(
            order__merchant_id=merchant_id, order__order_no__in=numbers
        ).select_related("order")
        found += [
            OrderMoment(
                at=row.at,
                kind=f"order.{row.command}",
                order_no=row.order.order_no,
                title=row.get_command_display(),
                reference=f"v{row.to_version}",
                amount_fen=row.order.payable_fen if row.to_version == 1 else None,
            )
            for row in logs
        ]
        payments = Payment.objects.filter(merchant_id=merchant_id, order_no__in=numbers, status=Payment.Status.PAID)
        found += [
            OrderMoment(
                at=row.paid_at,
                kind="payment.paid",
                order_no=row.order_no,
                title=row.get_kind_display(),
                reference=row.trade_no or row.out_trade_no,
                amount_fen=row.amount_fen,
            )
            for row in payments
            if row.paid_at is not None
        ]
        refunds = RefundRequest.objects.filter(merchant_id=merchant_id, order_no__in=numbers)
        found += [
            OrderMoment(
                at=row.succeeded_at or row.created_at,
                kind=f"refund.{row.status.lower()}",
                order_no=row.order_no,
                title=row.get_status_display(),
                reference=row.refund_no or row.owner_no,
                amount_fen=row.amount_fen,
            )
            for row in refunds
        ]
        return sorted(found, key=lambda moment: moment.at)
