"""What a team would write first: every order, and every refund of the day, looked at one by one through the ORM."""

from __future__ import annotations

import random
import time
from datetime import date

from aftersales.models import AfterSalesLog, AfterSalesOrder, Rollback
from coupons.models import CouponOperation, CouponRedemption, UserCoupon
from ledgers.models import JournalEntry
from merchants.models import Merchant
from orders.models import Order, OrderStatusLog
from payments.models import BillLine, Payment, RefundAttempt, RefundRequest


def seconds_per_order(sample: int) -> float:
    """The coupon's four ways, the payment and the history of `sample` orders, drawn at random."""
    total, merchant_id = Order.objects.count(), Merchant.objects.get().pk
    picked = [f"QX{number:012d}" for number in random.sample(range(1, total), sample)]
    began = time.perf_counter()
    for order_no in picked:
        order = Order.objects.get(merchant_id=merchant_id, order_no=order_no)
        payments = list(Payment.objects.filter(merchant_id=order.merchant_id, order_no=order.order_no))
        assert any(p.status == "PAID" and p.amount_fen == order.payable_fen for p in payments)
        for payment in payments:
            requests = list(RefundRequest.objects.filter(payment=payment))
            assert sum(r.amount_fen for r in requests) == payment.refund_committed_fen
        log = list(OrderStatusLog.objects.filter(order=order).order_by("to_version"))
        assert [row.to_version for row in log] == list(range(1, order.version + 1))
        coupon = UserCoupon.objects.get(pk=order.coupon_id)
        redemptions = list(CouponRedemption.objects.filter(coupon=coupon))
        assert [r.order_no for r in redemptions if r.ended_by_id is None] == [order.order_no]
        state, version = None, 0
        for operation in CouponOperation.objects.filter(coupon=coupon).order_by("to_version"):
            assert operation.from_version == (version or None) and operation.from_status == state
            state, version = operation.to_status, operation.to_version
        assert (coupon.status, coupon.state_version) == (state, version)
    return (time.perf_counter() - began) / sample


def seconds_per_payment_of_the_day(sample: int) -> float:
    """The channel's line and the booking of `sample` payments."""
    picked = list(BillLine.objects.filter(kind="payment").values_list("merchant_id", "out_trade_no")[:sample])
    began = time.perf_counter()
    for merchant_id, out_trade_no in picked:
        payment = Payment.objects.get(merchant_id=merchant_id, out_trade_no=out_trade_no)
        line = BillLine.objects.get(merchant_id=merchant_id, out_trade_no=out_trade_no, kind="payment")
        moved = BillLine.objects.get(merchant_id=merchant_id, reference=out_trade_no, kind="flow")
        entry = JournalEntry.objects.prefetch_related("lines").get(
            merchant_id=merchant_id, business_key=f"payment:{payment.pk}"
        )
        booked = sum(each.amount_fen for each in entry.lines.all() if each.account.startswith("channel_clearing"))
        assert line.amount_fen == moved.amount_fen == payment.amount_fen == booked
    return (time.perf_counter() - began) / len(picked)


def seconds_per_refund_of_the_day(sample: int, on: date) -> float:
    """After-sales, channel and journal of `sample` refunds."""
    attempts = list(RefundAttempt.objects.filter(number__startswith="ASX")[:sample])
    began = time.perf_counter()
    for attempt in attempts:
        request = RefundRequest.objects.get(pk=attempt.request_id)
        of = {"merchant_id": attempt.merchant_id}
        claim = AfterSalesOrder.objects.get(**of, after_sales_no=request.owner_no)
        line = BillLine.objects.select_related("bill").get(**of, refund_no=attempt.number)
        moved = BillLine.objects.get(**of, reference=attempt.number, kind="flow")
        entry = JournalEntry.objects.prefetch_related("lines").get(**of, business_key=f"refund:{request.pk}")
        booked = -sum(each.amount_fen for each in entry.lines.all() if each.account.startswith("channel_clearing"))
        assert line.amount_fen == moved.amount_fen == attempt.amount_fen == booked == claim.approved_total_fen
        assert line.bill.bill_on == on and Rollback.objects.filter(after_sales=claim, state="DONE").count() == 5
        assert AfterSalesLog.objects.filter(after_sales=claim).count() == claim.version
    return (time.perf_counter() - began) / len(attempts)
