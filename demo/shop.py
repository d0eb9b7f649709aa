"""A shop's daily life as calls of the real commands, at any moment of the past. The seed and the tests tell stories
with it.

The buyer and the channel are played by `channel`: the simulator where one answers (payments then travel the real
wire), or nobody, in which case the channel's word is put into the commands' hands directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx

from aftersales.actors import By
from aftersales.commands.apply_after_sales import apply_after_sales
from aftersales.commands.approve_after_sales import approve_after_sales
from aftersales.commands.cancel_after_sales import cancel_after_sales
from aftersales.commands.confirm_return import confirm_return
from aftersales.commands.reject_after_sales import reject_after_sales
from aftersales.commands.ship_return import ship_return
from aftersales.drafts import Item, Replacement
from aftersales.models import Actor as ClaimActor
from aftersales.models import AfterSalesOrder
from coupons.commands.issue_coupon import issue_coupon
from demo.catalogue import Goods
from kernel import numbers, stream
from kernel.clock import CHANNEL_ZONE
from kernel.idempotency import BusinessKey, business_key
from kernel.transactions import unit_of_work
from orders.commands.cancel_order import cancel_order
from orders.commands.close_order import close_order
from orders.commands.complete_order import confirm_receipt
from orders.commands.create_order import create_order
from orders.commands.create_quote import AskedLine, Quoted, create_quote
from orders.commands.pay_order import pay_order
from orders.commands.settle_charge import settle_charge
from orders.commands.ship_order import ship_order
from orders.commands.sign_shipment import sign_shipment
from orders.models import Order
from orders.tender import Answer, Heard, ask
from payments.commands.open_payment import open_payment
from payments.commands.query_refund import query_refund
from payments.commands.record_refund_fact import record_refund_fact
from payments.commands.send_refund import send_refund
from payments.gateway import Channel, PaymentFact, PaymentState, RefundFact, RefundState
from payments.models import ChannelAccount, Payment, RefundAttempt
from payments.simulator.client import SimulatorClient


@contextmanager
def in_the_past(simulator: SimulatorClient) -> Iterator[None]:
    """The simulator's clock may be moved about; afterwards clock, bills and refunds behave as they did before."""
    before = simulator.get("settings")
    kept = ("offset_seconds", "bills_always_ready", "auto_settle")
    try:
        simulator.settings(bills_always_ready=True, auto_settle=False)
        yield
    finally:
        simulator.settings(**{name: before[name] for name in kept})


def answering(base_url: str) -> SimulatorClient | None:
    """The simulator at this address, if one answers."""
    if not base_url:
        return None
    simulator = SimulatorClient(base_url)
    try:
        simulator.get("health")
    except httpx.HTTPError:
        simulator.close()
        return None
    return simulator


@dataclass
class Shop:
    """One merchant's shop. Every method takes the moment at which it happens."""

    merchant_id: UUID
    code: str
    simulator: SimulatorClient | None = None
    staff: str = "demo"
    _count: int = field(default=0, repr=False)

    def key(self, what: str) -> BusinessKey:
        self._count += 1
        return business_key(merchant_id=self.merchant_id, key=f"{self.code}:{numbers.uuid7().hex}:{what}")

    # -- buying ------------------------------------------------------------------------------------------------

    def give_coupon(self, user_id: str, template: str, *, now: datetime) -> UUID:
        issued = issue_coupon(
            merchant_id=self.merchant_id, template_code=template, user_id=user_id, key=self.key("issue"), now=now
        )
        self.work_off(now=now)
        return issued.coupon_id

    def quote(
        self,
        user_id: str,
        lines: list[AskedLine],
        *,
        now: datetime,
        coupon_id: UUID | None = None,
        freight_fen: int = 0,
        points: int = 0,
        address: dict[str, Any] | None = None,
    ) -> Quoted:
        quoted = create_quote(
            merchant_id=self.merchant_id,
            user_id=user_id,
            lines=lines,
            coupon_id=coupon_id,
            freight_fen=freight_fen,
            points_fen=points,
            points_used=points,
            address=address,
            key=self.key("quote"),
            now=now,
        )
        self.work_off(now=now)
        return quoted

    def order(self, quote: Quoted, *, now: datetime, pay_method: str = "wechat") -> Order:
        made = create_order(
            merchant_id=self.merchant_id,
            quote_id=quote.quote_id,
            pay_method=pay_method,
            key=self.key("order"),
            now=now,
        )
        self.work_off(now=now)
        return Order.objects.get(pk=made.order_id)

    def buy(
        self,
        user_id: str,
        lines: list[AskedLine],
        *,
        now: datetime,
        pay: bool = True,
        pay_method: str = "wechat",
        **more: Any,
    ) -> Order:
        """Quote, order, pay: within two minutes."""
        quote = self.quote(user_id, lines, now=now, **more)
        order = self.order(quote, now=now + timedelta(seconds=40), pay_method=pay_method)
        return self.pay(order, now=now + timedelta(seconds=100)) if pay else order

    def pay(self, order: Order, *, now: datetime) -> Order:
        """The buyer pays and the order hears of it: by a query, as when a callback was lost."""
        payment = self.place(order, now=now)
        if self.simulator is not None:
            self.simulator.clock(to=now.isoformat())
            self.simulator.pay(payment.out_trade_no, channel=payment.channel, notify=False)
            heard = ask(payment, now=now)
        else:
            heard = Heard(answer=Answer.PAID_EQUAL, fact=self.paid_fact(payment, now=now))
        settle_charge(payment_id=payment.pk, heard=heard, now=now)
        self.work_off(now=now + timedelta(seconds=1))
        return Order.objects.get(pk=order.pk)

    def paid_fact(self, payment: Payment, *, now: datetime) -> PaymentFact:
        """What the channel would say of a payment that was just made."""
        return PaymentFact(
            channel=Channel(payment.channel),
            state=PaymentState.SUCCESS,
            out_trade_no=payment.out_trade_no,
            trade_no=f"4200{payment.pk.int % 10**24:024d}",
            amount_fen=payment.amount_fen,
            payer_paid_fen=payment.amount_fen,
            paid_at=now,
        )

    def place(self, order: Order, *, now: datetime) -> Payment:
        """The payment is placed at the channel and waits for the buyer."""
        if self.simulator is not None:
            self.simulator.clock(to=now.isoformat())
            pay_order(
                merchant_id=self.merchant_id,
                order_no=order.order_no,
                user_id=order.user_id,
                payer_ref=f"openid-{order.user_id}",
                key=self.key("pay"),
                now=now,
            )
        else:
            with unit_of_work(now=now):
                Order.objects.select_for_update().get(pk=order.pk)
                open_payment(
                    merchant_id=self.merchant_id,
                    order_no=order.order_no,
                    channel=order.pay_method,
                    amount_fen=order.payable_fen,
                    expires_at=order.pay_expires_at,
                    now=now,
                )
        return Payment.objects.select_related("account").get(
            merchant_id=self.merchant_id, order_no=order.order_no, kind="order"
        )

    def cancel(self, order: Order, *, now: datetime, reason: str = "") -> Order:
        cancel_order(
            merchant_id=self.merchant_id,
            order_no=order.order_no,
            user_id=order.user_id,
            reason=reason,
            key=self.key("cancel"),
            now=now,
        )
        self.work_off(now=now)
        return Order.objects.get(pk=order.pk)

    def time_out(self, order: Order, *, now: datetime) -> Order:
        close_order(order_id=order.pk, reason="timeout", now=now)
        self.work_off(now=now)
        return Order.objects.get(pk=order.pk)

    # -- returns -----------------------------------------------------------------------------------------------

    def claim(
        self,
        order: Order,
        *,
        line_no: int,
        now: datetime,
        type: int = 2,
        qty: int = 1,
        reason: str = "quality",
        text: str = "",
        instead: Goods | None = None,
    ) -> AfterSalesOrder:
        """`instead`: what an exchange (type 3) shall give."""
        replacement = (
            Replacement(sku=instead.sku, title=instead.title, unit_price_fen=instead.price_fen) if instead else None
        )
        applied = apply_after_sales(
            merchant_id=self.merchant_id,
            order_no=order.order_no,
            user_id=order.user_id,
            items=[
                Item(
                    line_no=line_no,
                    type=type,
                    qty=qty,
                    reason_code=reason,
                    description=text,
                    replacement=replacement,
                )
            ],
            key=self.key("apply"),
            now=now,
        )
        self.work_off(now=now)
        return self.read_claim(applied.after_sales[0].after_sales_no)

    def read_claim(self, after_sales_no: str) -> AfterSalesOrder:
        return AfterSalesOrder.objects.get(merchant_id=self.merchant_id, after_sales_no=after_sales_no)

    def approve(self, claim: AfterSalesOrder, *, now: datetime) -> AfterSalesOrder:
        approve_after_sales(
            merchant_id=self.merchant_id,
            after_sales_no=claim.after_sales_no,
            expected_version=claim.version,
            by=By(ClaimActor.MERCHANT, self.staff),
            key=self.key("approve"),
            now=now,
        )
        self.work_off(now=now)
        return self.read_claim(claim.after_sales_no)

    def reject(self, claim: AfterSalesOrder, *, reason: str, now: datetime) -> AfterSalesOrder:
        reject_after_sales(
            merchant_id=self.merchant_id,
            after_sales_no=claim.after_sales_no,
            expected_version=claim.version,
            reason=reason,
            by=By(ClaimActor.MERCHANT, self.staff),
            key=self.key("reject"),
            now=now,
        )
        return self.read_claim(claim.after_sales_no)

    def take_back(self, claim: AfterSalesOrder, *, now: datetime) -> AfterSalesOrder:
        cancel_after_sales(
            merchant_id=self.merchant_id,
            after_sales_no=claim.after_sales_no,
            user_id=claim.user_id,
            by=By(ClaimActor.BUYER, claim.user_id),
            key=self.key("take back"),
            now=now,
        )
        return self.read_claim(claim.after_sales_no)

    def send_back(self, claim: AfterSalesOrder, *, now: datetime) -> AfterSalesOrder:
        ship_return(
            merchant_id=self.merchant_id,
            after_sales_no=claim.after_sales_no,
            user_id=claim.user_id,
            carrier="SF",
            tracking_no=f"SF{claim.after_sales_no}R",
            by=By(ClaimActor.BUYER, claim.user_id),
            key=self.key("send back"),
            now=now,
        )
        return self.read_claim(claim.after_sales_no)

    def receive(
        self, claim: AfterSalesOrder, *, now: datetime, sellable: int | None = None, defect: int = 0
    ) -> AfterSalesOrder:
        """The goods are inspected; from then on the refund is under way."""
        good = claim.qty - defect if sellable is None else sellable
        confirm_return(
            merchant_id=self.merchant_id,
            after_sales_no=claim.after_sales_no,
            expected_version=claim.version,
            dispositions={name: count for name, count in (("sellable", good), ("defect", defect)) if count},
            by=By(ClaimActor.MERCHANT, self.staff),
            key=self.key("receive"),
            now=now,
        )
        self.work_off(now=now)
        return self.read_claim(claim.after_sales_no)

    def refund(
        self, claim: AfterSalesOrder, *, now: datetime, to: str = "SUCCESS", done_at: datetime | None = None
    ) -> AfterSalesOrder:
        """The channel is asked for the money, and decides: SUCCESS, CLOSED, ABNORMAL, or PROCESSING (not yet).

        `done_at`: when it decides, if that is not at once (over midnight, say).
        """
        attempt = (
            RefundAttempt.objects.select_related("payment", "request")
            .filter(request__owner_kind="after_sales", request__owner_no=claim.after_sales_no)
            .order_by("-seq")
            .first()
        )
        if attempt is not None:
            self.execute(attempt, to=to, now=now, done_at=done_at or now)
        return self.read_claim(claim.after_sales_no)

    def execute(self, attempt: RefundAttempt, *, to: str, now: datetime, done_at: datetime) -> None:
        """One refund number through the channel to an end."""
        if self.simulator is None:
            record_refund_fact(
                merchant_id=self.merchant_id, said=refund_fact(attempt, to=to, now=done_at), source="query", now=done_at
            )
        else:
            self.simulator.clock(to=now.isoformat())
            sent = send_refund(attempt_id=attempt.pk, now=now)
            if sent.status not in (RefundAttempt.Status.PROCESSING, RefundAttempt.Status.SUCCESS):
                raise RuntimeError(f"the channel did not take {attempt.number}: {sent}")
            if to != "PROCESSING" and sent.status == RefundAttempt.Status.PROCESSING:
                self.simulator.clock(to=done_at.isoformat())
                self.simulator.settle(attempt.number, to=to, channel=attempt.payment.channel)
                query_refund(attempt_id=attempt.pk, forced=True, now=done_at)
        self.work_off(now=done_at + timedelta(seconds=1))

    def refund_charges(self, order: Order, *, now: datetime) -> None:
        """Charges that are not the order's go back to the buyer."""
        attempts = RefundAttempt.objects.select_related("payment", "request").filter(
            request__owner_kind="order_payment", request__order_no=order.order_no, status__in=RefundAttempt.IN_WORK
        )
        for attempt in attempts:
            self.execute(attempt, to="SUCCESS", now=now, done_at=now)

    # -- delivery ----------------------------------------------------------------------------------------------

    def ship(self, order: Order, *, now: datetime) -> None:
        """Everything that is left, in one parcel."""
        ship_order(
            merchant_id=self.merchant_id,
            order_no=order.order_no,
            carrier="SF",
            tracking_no=f"SF{order.order_no[-12:]}",
            key=self.key("ship"),
            now=now,
        )
        self.work_off(now=now)

    def sign(self, order: Order, *, now: datetime) -> None:
        sign_shipment(merchant_id=self.merchant_id, order_no=order.order_no, by="SF", key=self.key("sign"), now=now)
        self.work_off(now=now)

    def confirm(self, order: Order, *, now: datetime) -> None:
        confirm_receipt(
            merchant_id=self.merchant_id,
            order_no=order.order_no,
            user_id=order.user_id,
            key=self.key("confirm"),
            now=now,
        )
        self.work_off(now=now)

    # -- news --------------------------------------------------------------------------------------------------

    def work_off(self, *, now: datetime) -> int:
        """Publish and deliver every event, and what they cause, as if it were `now`."""
        return stream.drain(now=now)


def refund_fact(attempt: RefundAttempt, *, to: str, now: datetime) -> RefundFact:
    """What the channel would say of a refund that it decided just now."""
    return RefundFact(
        channel=Channel(attempt.payment.channel),
        state=RefundState(to),
        refund_no=attempt.number,
        refund_id=f"5030{attempt.pk.int % 10**24:024d}",
        out_trade_no=attempt.payment.out_trade_no,
        trade_no=attempt.payment.trade_no,
        amount_fen=attempt.amount_fen,
        payer_refund_fen=attempt.amount_fen,
        total_fen=attempt.payment.amount_fen,
        succeeded_at=now if to == "SUCCESS" else None,
    )


def account_of(shop: Shop) -> ChannelAccount:
    return ChannelAccount.objects.get(merchant_id=shop.merchant_id, channel="wechat", is_active=True)


def day_at(day: date, hour: int, minute: int = 0) -> datetime:
    """A moment of a channel day, Asia/Shanghai."""
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=CHANNEL_ZONE)
