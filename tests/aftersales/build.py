"""Paid orders to apply on, written as rows: what orders and payments leave behind when an order was paid."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from aftersales.actors import By
from aftersales.commands.apply_after_sales import Applied, AppliedItem, apply_after_sales
from aftersales.commands.approve_after_sales import Approved, approve_after_sales
from aftersales.commands.confirm_return import confirm_return
from aftersales.commands.ship_return import ship_return
from aftersales.drafts import Item
from aftersales.models import Actor, AfterSalesOrder
from aftersales.settlement import Ask
from kernel import inbox, numbers
from kernel.idempotency import BusinessKey, business_key
from kernel.models import OutboxEvent
from merchants.models import Merchant
from orders.allocation import Discounts, PricedLine, allocate
from orders.models import Order, OrderLine, OrderStatusLog, Quote
from payments.commands.record_refund_fact import record_refund_fact
from payments.gateway import Channel, RefundFact, RefundState
from payments.models import ChannelAccount, Payment, RefundAttempt

_count = itertools.count(1)
MERCHANT = By(Actor.MERCHANT, "lin")
BUYER = "u-1"


def a_key(merchant_id: UUID, name: str = "") -> BusinessKey:
    return business_key(merchant_id=merchant_id, key=name or f"claim-key-{next(_count)}")


def a_merchant(now: datetime, **settings) -> Merchant:
    number = next(_count)
    return Merchant.objects.create(
        code=f"shop-{number}-{numbers.uuid7().hex[-6:]}", name=f"Shop {number}", created_at=now, **settings
    )


@dataclass(frozen=True)
class Line:
    price: int
    qty: int = 1
    line_discount: int = 0
    freight: int | None = None
    kind: str = "physical"
    sku: str = ""


@dataclass
class Paid:
    """A paid order under test."""

    merchant: Merchant
    order: Order
    payment: Payment
    now: datetime
    keys: list[str] = field(default_factory=list)

    def line(self, number: int) -> OrderLine:
        return OrderLine.objects.get(order=self.order, line_no=number)

    def ship(self, number: int, qty: int | None = None, *, signed: bool = True) -> None:
        line = self.line(number)
        free = [o for o in range(1, line.qty + 1) if o not in line.held_ordinals + line.shipped_ordinals]
        line.shipped_ordinals = sorted(line.shipped_ordinals + free[:qty])
        line.shipped_qty = len(line.shipped_ordinals)
        line.signed_at = self.now if signed else None
        line.save(update_fields=["shipped_ordinals", "shipped_qty", "signed_at"])

    def apply(self, line_no: int = 1, qty: int = 1, type: int = 1, reason: str = "quality", **wish) -> AppliedItem:
        return self.apply_all([Item(line_no=line_no, qty=qty, type=type, reason_code=reason, **wish)]).after_sales[0]

    def apply_all(
        self, items: Sequence[Item], *, key: BusinessKey | None = None, now: datetime | None = None
    ) -> Applied:
        return apply_after_sales(
            merchant_id=self.merchant.pk,
            order_no=self.order.order_no,
            user_id=BUYER,
            items=items,
            key=key or a_key(self.merchant.pk),
            now=now or self.now,
        )

    def claim(self, after_sales_no: str) -> AfterSalesOrder:
        return AfterSalesOrder.objects.get(after_sales_no=after_sales_no)

    def approve(self, after_sales_no: str, *, version: int = 1, key: BusinessKey | None = None, **ask) -> Approved:
        return approve_after_sales(
            merchant_id=self.merchant.pk,
            after_sales_no=after_sales_no,
            expected_version=version,
            ask=Ask(**ask),
            by=MERCHANT,
            key=key or a_key(self.merchant.pk),
            now=self.now,
        )

    def returned(self, line_no: int, qty: int = 1, **wish) -> str:
        """A return that was applied for, approved and sent back: it waits for inspection (version 3)."""
        number = self.apply(line_no, qty=qty, type=2, **wish).after_sales_no
        self.approve(number)
        self.send_back(number)
        return number

    def send_back(self, number: str, **more):
        return ship_return(
            merchant_id=self.merchant.pk,
            after_sales_no=number,
            user_id=BUYER,
            carrier="SF",
            tracking_no=f"SF{number}",
            by=By(Actor.BUYER, BUYER),
            key=a_key(self.merchant.pk),
            now=self.now,
            **more,
        )

    def confirm(self, number: str, *, version: int = 3, note: str = "", sellable: int = 1, **counts_and_ask):
        counts = {"sellable": sellable} | {
            n: counts_and_ask.pop(n) for n in ("defect", "missing") if n in counts_and_ask
        }
        return confirm_return(
            merchant_id=self.merchant.pk,
            after_sales_no=number,
            expected_version=version,
            dispositions=counts,
            note=note,
            ask=Ask(**counts_and_ask),
            by=MERCHANT,
            key=a_key(self.merchant.pk),
            now=self.now,
        )

    def channel_says(self, refund_no: str, state: str = "SUCCESS", **more):
        """A fact of the channel about one refund number, taken in as a callback would be; then everything follows."""
        attempt = RefundAttempt.objects.get(number=refund_no)
        record_refund_fact(
            merchant_id=self.merchant.pk,
            said=RefundFact(
                channel=Channel.WECHAT,
                state=RefundState(state),
                refund_no=refund_no,
                amount_fen=more.get("amount_fen", attempt.amount_fen),
                succeeded_at=self.now if state == "SUCCESS" else None,
            ),
            source="notify",
            now=self.now,
        )
        deliver(self.now)


FOLLOWED = ("payment.succeeded", "refund.succeeded", "refund.failed", "rollback.requested")


def deliver(now: datetime) -> None:
    """Hand over what the payments floor said, and the rollbacks that follow from it, until nothing is left."""
    while True:
        waiting = list(OutboxEvent.objects.filter(name__in=FOLLOWED, state="PENDING").order_by("id"))
        if not waiting:
            return
        for event in waiting:
            inbox.deliver(event.id, now=now)
        OutboxEvent.objects.filter(id__in=[event.id for event in waiting]).update(state="PUBLISHED", published_at=now)


@transaction.atomic
def a_paid_order(
    now: datetime,
    *lines: Line,
    merchant: Merchant | None = None,
    coupon: int = 0,
    points: int = 0,
    points_fen: int = 0,
    freight: int = 0,
    freight_policy: str = "by_amount",
    user: str = BUYER,
) -> Paid:
    """An order of BUYER's, paid by WeChat (or free), nothing shipped."""
    merchant = merchant or a_merchant(now)
    allocation = allocate(
        lines=[
            PricedLine(
                line_no=number,
                unit_price_fen=line.price,
                qty=line.qty,
                line_discount_fen=line.line_discount,
                freight_share_fen=line.freight,
            )
            for number, line in enumerate(lines, 1)
        ],
        discounts=Discounts(coupon_fen=coupon, points_fen=points_fen, points_used=points),
        freight_fen=freight,
        freight_policy=freight_policy,
    )
    order = _order(merchant, allocation, now, user)
    OrderLine.objects.bulk_create(
        OrderLine(
            merchant=merchant,
            order=order,
            line_no=each.line_no,
            sku=lines[each.line_no - 1].sku or f"sku-{each.line_no}",
            title=f"Goods {each.line_no}",
            kind=lines[each.line_no - 1].kind,
            unit_price_fen=each.unit_price_fen,
            qty=each.qty,
            line_discount_fen=each.line_discount_fen,
            base_fen=each.base_fen,
            coupon_share_fen=each.coupon_share_fen,
            points_share_fen=each.points_share_fen,
            points_used=each.points_used,
            net_fen=each.net_fen,
            freight_share_fen=each.freight_share_fen,
            algorithm_version=allocation.algorithm_version,
        )
        for each in allocation.lines
    )
    return Paid(merchant, order, _payment(merchant, order, now), now)


def _order(merchant: Merchant, allocation, now: datetime, user: str) -> Order:
    order_no = numbers.next_number("order")
    quote = Quote.objects.create(
        merchant=merchant,
        order_no=order_no,
        user_id=user,
        state=Quote.State.ORDERED,
        content={},
        content_hash="c",
        fingerprint=order_no,
        breakdown={},
        payable_fen=allocation.payable_fen,
        expires_at=now,
        created_at=now,
    )
    free = allocation.payable_fen == 0
    order = Order.objects.create(
        merchant=merchant,
        order_no=order_no,
        user_id=user,
        quote=quote,
        status=Order.Status.PAID,
        version=2,
        goods_fen=allocation.goods_fen,
        discount_fen=allocation.coupon_fen,
        points_fen=allocation.points_fen,
        points_used=allocation.points_used,
        freight_fen=allocation.freight_fen,
        payable_fen=allocation.payable_fen,
        pay_method="none" if free else "wechat",
        pay_expires_at=now + timedelta(minutes=30),
        fingerprint=order_no,
        content_hash="c",
        order_token_hash=numbers.sha256(numbers.new_token()),
        fulfilment=Order.Fulfilment.WAITING,
        trade_no="" if free else f"T{order_no}",
        paid_at=now,
        created_at=now,
    )
    steps = [("create", None, 0, None, 1), ("confirm_paid", 0, 10, 1, 2)]
    for command, from_status, to_status, from_version, to_version in steps:
        OrderStatusLog.objects.create(
            order=order,
            command=command,
            from_status=from_status,
            to_status=to_status,
            from_version=from_version,
            to_version=to_version,
            actor_kind="system",
            at=now,
        )
    return order


def _payment(merchant: Merchant, order: Order, now: datetime) -> Payment:
    free = order.payable_fen == 0
    account = None
    if not free:
        account, _made = ChannelAccount.objects.get_or_create(
            merchant=merchant,
            channel="wechat",
            defaults={"mchid": "1900000001", "app_id": "wx1", "created_at": now, "changed_at": now},
        )
    return Payment.objects.create(
        merchant=merchant,
        account=account,
        order_no=order.order_no,
        out_trade_no=f"{order.order_no}P1",
        kind="none" if free else "order",
        channel="none" if free else "wechat",
        amount_fen=order.payable_fen,
        status=Payment.Status.PAID,
        trade_no="" if free else f"T{order.order_no}",
        paid_at=now,
        created_at=now,
    )


def nut_and_tea(now: datetime, **more) -> Paid:
    """The order of the after-sales source: nut 100 (line 1), tea 200 (line 2), 50 off, freight 10 split 5/5."""
    return a_paid_order(
        now, Line(10000, sku="nut"), Line(20000, sku="tea"), coupon=5000, freight=1000, freight_policy="equal", **more
    )
