"""A shop and its orders, made by the real commands, paid at the real simulator."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.db import connection

from coupons.commands.create_policy import create_policy, publish_policy
from coupons.commands.create_template import create_template
from coupons.commands.issue_coupon import issue_coupon
from coupons.models import CouponLock, CouponOperation, CouponRedemption, UserCoupon
from kernel import clock, stream
from kernel.errors import Refusal
from kernel.idempotency import BusinessKey, business_key
from kernel.models import IdempotencyKey, OutboxEvent
from ledgers.commands.adjust_stock import adjust_stock
from ledgers.models import StockEntry, StockItem
from merchants.models import Merchant
from orders.commands.cancel_order import Cancelled, cancel_order
from orders.commands.confirm_paid import confirm_paid
from orders.commands.create_order import Ordered, create_order
from orders.commands.create_quote import AskedLine, Quoted, create_quote
from orders.commands.pay_order import PaymentPlaced, pay_order
from orders.commands.ship_order import ShipLine, Shipped, ship_order
from orders.models import (
    Anomaly,
    CouponDecision,
    Entitlement,
    Order,
    OrderBill,
    OrderCoupon,
    OrderLine,
    OrderStatusLog,
    Quote,
    Shipment,
)
from payments.commands.save_account import save_account
from payments.gateway import Channel, PaymentFact, PaymentState
from payments.models import Payment, RefundRequest
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import alipay_account, wechat_account

_numbers = count(1)

NUT = AskedLine(sku="NUT", title="坚果礼盒", unit_price_fen=10000, qty=1, freight_share_fen=500)
TEA = AskedLine(sku="TEA", title="茶叶礼盒", unit_price_fen=20000, qty=1, freight_share_fen=500)
CARD = AskedLine(sku="CARD", title="会员月卡", kind="virtual", unit_price_fen=3000, qty=1)
ADDRESS = {"name": "张三", "phone": "13800001111", "region": "浙江杭州", "street": "龙井路 1 号"}
PAYER = "oUpF8uMuAJO_M2pxb1Q9zNjWeS6o"


@dataclass
class Shop:
    """One merchant at the simulator, with the commands in short. `now` is the instant at which it acts."""

    merchant: Merchant
    account_id: UUID
    now: datetime
    simulator: SimulatorClient
    user_id: str = "user-1"
    stock: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> UUID:
        return self.merchant.pk

    def key(self, key: str | None = None, **parts: Any) -> BusinessKey:
        return business_key(merchant_id=self.id, key=key or f"key-{next(_numbers)}", **parts)

    def later(self, **delta: float) -> Shop:
        """The same shop at a later time."""
        return Shop(
            self.merchant, self.account_id, self.now + timedelta(**delta), self.simulator, self.user_id, self.stock
        )

    def coupon(self, user_id: str | None = None) -> UUID:
        issued = issue_coupon(
            merchant_id=self.id,
            user_id=user_id or self.user_id,
            template_code="off50",
            key=self.key(),
            now=self.now,
        )
        return issued.coupon_id

    def quote(self, *lines: AskedLine, key: BusinessKey | None = None, **values: Any) -> Quoted:
        values = {"user_id": self.user_id, "address": ADDRESS, "now": self.now, **values}
        if not lines:
            lines = (NUT, TEA)
            values.setdefault("freight_fen", 1000)
        return create_quote(merchant_id=self.id, lines=list(lines), key=key or self.key(), **values)

    def order(self, *lines: AskedLine, quote: Quoted | None = None, **values: Any) -> Ordered:
        names = ("pay_method", "key", "now")
        asked = {name: values.pop(name) for name in names if name in values}
        quote = quote or self.quote(*lines, **values)
        asked = {"pay_method": "wechat", "key": self.key(), "now": self.now, **asked}
        return create_order(merchant_id=self.id, quote_id=quote.quote_id, **asked)

    def pay(self, ordered: Ordered, **values: Any) -> PaymentPlaced:
        values = {"user_id": ordered.user_id, "payer_ref": PAYER, "key": self.key(), "now": self.now, **values}
        return pay_order(merchant_id=self.id, order_no=ordered.order_no, **values)

    def paid(self, *lines: AskedLine, **values: Any) -> Ordered:
        """An order whose payment the channel has confirmed, by the channel's word and without a callback."""
        ordered, _placed = self.placed(*lines, **values)
        payment = payment_of(ordered)
        confirm_paid(order_id=ordered.order_id, payment_id=payment.id, fact=paid_fact(payment), now=self.now)
        return ordered

    def cancel(self, ordered: Ordered, **values: Any) -> Cancelled:
        values = {"user_id": ordered.user_id, "key": self.key(), "now": self.now, **values}
        return cancel_order(merchant_id=self.id, order_no=ordered.order_no, **values)

    def ship(self, ordered: Ordered, *lines: tuple[int, int], **values: Any) -> Shipped:
        values = {
            "carrier": "SF",
            "tracking_no": f"SF{next(_numbers):08d}",
            "lines": [ShipLine(*line) for line in lines] or None,
            "key": self.key(),
            "now": self.now,
            **values,
        }
        return ship_order(merchant_id=self.id, order_no=ordered.order_no, **values)

    def placed(self, *lines: AskedLine, **values: Any) -> tuple[Ordered, PaymentPlaced]:
        """An order whose payment waits at the channel."""
        ordered = self.order(*lines, **values)
        return ordered, self.pay(ordered)


def open_shop(
    *,
    now: datetime,
    keys: dict[str, Any],
    simulator: SimulatorClient,
    code: str = "tea-house",
    number: int = 0,
    channel: str = "wechat",
) -> Shop:
    merchant = Merchant.objects.create(code=code, name="清和茶铺", created_at=now)
    make_account = {"wechat": wechat_account, "alipay": alipay_account}[channel]
    row = make_account(keys, number, simulator.base_url)
    saved = save_account(
        merchant_id=merchant.pk,
        channel=channel,
        mchid=row["mchid"],
        app_id=row["app_id"],
        settings=row["settings"],
        secret_values=row["secrets"],
        now=now,
    )
    policy = create_policy(merchant_id=merchant.pk, code="standard", rules={}, now=now)
    publish_policy(merchant_id=merchant.pk, policy_id=policy.policy_id, now=now)
    create_template(
        merchant_id=merchant.pk,
        code="off50",
        name="50 off from 300",
        policy_code="standard",
        kind="THRESHOLD",
        threshold_fen=30000,
        off_fen=5000,
        valid_days=30,
        now=now,
    )
    shop = Shop(merchant, saved.account_id, now, simulator)
    for sku, pieces in {"NUT": 10, "TEA": 10}.items():
        adjust_stock(
            merchant_id=shop.id,
            sku=sku,
            delta=pieces,
            business_key=f"opening:{code}:{sku}",
            reference="opening",
            now=now,
        )
    return shop


def drain() -> None:
    """Let everything that waits in outbox and inbox happen, as the workers would."""
    stream.drain(now=clock.now())


def order_of(ordered: Ordered) -> Order:
    return Order.objects.get(id=ordered.order_id)


def payment_of(ordered: Ordered) -> Payment:
    return Payment.objects.get(order_no=ordered.order_no, kind="order")


def paid_fact(payment: Payment, *, trade_no: str = "", amount_fen: int | None = None, **values: Any) -> PaymentFact:
    """What the channel says about a payment that was paid; the right amount unless another is given."""
    return PaymentFact(
        channel=Channel(payment.channel),
        state=values.pop("state", PaymentState.SUCCESS),
        out_trade_no=payment.out_trade_no,
        trade_no=trade_no or f"4200{payment.out_trade_no}",
        amount_fen=payment.amount_fen if amount_fen is None else amount_fen,
        payer_paid_fen=payment.amount_fen if amount_fen is None else amount_fen,
        paid_at=values.pop("paid_at", payment.created_at),
        **values,
    )


def channel_state(shop: Shop, out_trade_no: str) -> str:
    """The trade's state as the channel has it."""
    return shop.simulator.order(out_trade_no)["orders"][0]["state"]


def stock_of(shop: Shop, sku: str) -> tuple[int, int]:
    """(sellable, reserved)."""
    item = StockItem.objects.get(merchant_id=shop.id, sku=sku)
    return item.sellable, item.reserved


def coupon_state(coupon_id: UUID) -> str:
    return UserCoupon.objects.get(pk=coupon_id).status


def commands_of(ordered: Ordered) -> list[str]:
    """The order's status log, in short."""
    return list(
        OrderStatusLog.objects.filter(order_id=ordered.order_id)
        .order_by("to_version")
        .values_list("command", flat=True)
    )


def events(name: str) -> list[dict[str, Any]]:
    return [event.payload for event in OutboxEvent.objects.filter(name=name).order_by("id")]


KINDS = (
    Quote,
    Order,
    OrderLine,
    OrderStatusLog,
    OrderCoupon,
    CouponDecision,
    OrderBill,
    Shipment,
    Entitlement,
    Anomaly,
    Payment,
    RefundRequest,
    StockEntry,
    UserCoupon,
    CouponLock,
    CouponOperation,
    CouponRedemption,
    IdempotencyKey,
    OutboxEvent,
)


def snapshot() -> dict[str, list[Any]]:
    """Everything an order command may write, refusals' evidence apart: equal before and after means that nothing was
    written."""
    moving = (Order, OrderLine, Quote, Payment, StockItem, UserCoupon)
    counts = {kind.__name__: kind.objects.count() for kind in KINDS}
    return {kind.__name__: list(kind.objects.order_by("pk").values()) for kind in moving} | {"counts": [counts]}


def race(*jobs: Callable[[], Any]) -> list[Any]:
    """Run jobs at the same moment, each on a connection of its own. Results, or the refusals they raised."""
    results: list[Any] = [None] * len(jobs)
    barrier = threading.Barrier(len(jobs))

    def run(index: int) -> None:
        try:
            barrier.wait(10)
            results[index] = jobs[index]()
        except Refusal as refusal:
            results[index] = refusal
        except BaseException as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results
