"""The five rollback messages, each delivered three times, in every order: effects once."""

import itertools
import threading
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from django.db import close_old_connections, connection, transaction

from aftersales.models import AfterSalesOrder, Rollback
from coupons.models import CouponOperation, RefundCoupon, UserCoupon
from kernel import inbox
from kernel.models import InboxMessage, OutboxEvent
from ledgers.commands.accrue_commission import accrue_commission
from ledgers.commands.adjust_points import adjust_points
from ledgers.commands.adjust_stock import adjust_stock
from ledgers.commands.count_sale import count_sale
from ledgers.commands.earn_points import earn_points
from ledgers.commands.spend_points import spend_points
from ledgers.models import (
    CommissionAccount,
    CommissionEntry,
    PointsAccount,
    PointsEntry,
    SalesDay,
    SalesEntry,
    StockEntry,
    StockItem,
)
from merchants.models import Merchant
from payments.commands.record_refund_fact import record_refund_fact
from payments.gateway import Channel, RefundFact, RefundState
from payments.models import RefundAttempt
from tests.aftersales.build import BUYER, Line, Paid, a_paid_order
from tests.aftersales.test_coupon_rollback import redeemed_for
from tests.coupons.factories import make_shop

SYSTEMS = ("stock", "coupon", "points", "commission", "sales")


@dataclass
class Refunded:
    """A refunded order with something to turn back in each of the five systems, and the messages that ask for it."""

    paid: Paid
    claims: list[str]

    @property
    def messages(self) -> dict[tuple[str, str], UUID]:
        rows = Rollback.objects.select_related("after_sales")
        return {(row.after_sales.after_sales_no, row.system): row.event_id for row in rows}


def a_refunded_order(now, *counts: dict[str, int]) -> Refunded:
    """One line of units worth 100.00 with a coupon, points used and earned, commission at two levels, a sale counted.

    It is shipped, sent back and inspected in so many claims (`counts`), and the channel has paid each.
    """
    shop = make_shop(now)
    merchant = Merchant.objects.get(pk=shop.merchant_id)
    qty = sum(sum(each.values()) for each in counts)
    known = {"merchant_id": merchant.pk, "now": now}
    paid = a_paid_order(
        now, Line(10000, qty=qty, sku="cup"), coupon=5000, points=100, points_fen=1000, freight=700, merchant=merchant
    )
    redeemed_for(shop, paid)
    line = paid.line(1)
    adjust_stock(**known, sku="cup", bucket="sellable", delta=5, business_key="open", reference="test")
    adjust_points(**known, user_id=BUYER, delta=100, business_key="open", reference="test")
    spend_points(**known, user_id=BUYER, order_no=paid.order.order_no, lines={1: (line.points_used, qty)})
    earned = {"order_no": paid.order.order_no, "line_no": 1, "base_fen": line.net_fen}
    earn_points(**known, **earned, user_id=BUYER, points=111)
    for level, rate in ((1, 10), (2, 3)):
        accrue_commission(
            **known,
            **earned,
            beneficiary=f"agent-{level}",
            level=level,
            amount_fen=line.net_fen * rate // 100,
            hold_until=now + timedelta(days=7),
        )
    count_sale(
        **known, sku="cup", qty=qty, amount_fen=line.net_fen, business_key="sale", reference=paid.order.order_no, at=now
    )
    paid.ship(1)
    claims = [paid.returned(1, qty=sum(each.values())) for each in counts]
    for number, each in zip(claims, counts, strict=True):
        paid.confirm(number, **{"sellable": 0, **each})
    for number in claims:
        the_channel_pays(paid, number)
    return Refunded(paid, claims)


def the_channel_pays(paid: Paid, number: str) -> None:
    """The success is taken in, the rollbacks are asked for, and none of them is delivered yet."""
    attempt = RefundAttempt.objects.get(number=f"{number}-0")
    record_refund_fact(
        merchant_id=paid.merchant.pk,
        said=RefundFact(
            channel=Channel.WECHAT,
            state=RefundState.SUCCESS,
            refund_no=attempt.number,
            amount_fen=attempt.amount_fen,
            succeeded_at=paid.now,
        ),
        source="notify",
        now=paid.now,
    )
    event = OutboxEvent.objects.get(name="refund.succeeded", subject=number)
    inbox.deliver(event.id, now=paid.now)


def effects() -> dict[str, object]:
    """Every balance of the five systems, and how many entries each ledger has."""
    return {
        "stock": list(StockItem.objects.values_list("sellable", "reserved", "defect")),
        "coupon": list(UserCoupon.objects.values_list("status", "state_version")),
        "coupon decisions": sorted(RefundCoupon.objects.values_list("decision", flat=True)),
        "coupon returns": CouponOperation.objects.filter(command="RETURN").count(),
        "points": list(PointsAccount.objects.values_list("balance", flat=True)),
        "commission": sorted(CommissionAccount.objects.values_list("beneficiary", "pending_fen", "withdrawable_fen")),
        "sales": list(SalesDay.objects.values_list("sold_qty", "sold_fen", "returned_qty", "returned_fen")),
        "entries": [kind.objects.count() for kind in (StockEntry, PointsEntry, CommissionEntry, SalesEntry)],
        "rollbacks": sorted(Rollback.objects.values_list("system", "state")),
        "failed": InboxMessage.objects.exclude(state="DONE").count(),
    }


def tripled(order: tuple, chance: Random) -> list:
    """Three of each; the first of each comes in this order, the other two anywhere after it."""
    sequence = list(order)
    for each in order:
        for _again in range(2):
            sequence.insert(chance.randint(sequence.index(each) + 1, len(sequence)), each)
    return sequence


ALL_BACK = {
    "stock": [(6, 0, 1)],
    "coupon": [("AVAILABLE", 4)],
    "coupon decisions": ["RETURN"],
    "coupon returns": 1,
    "points": [100],
    "commission": [("agent-1", 0, 0), ("agent-2", 0, 0)],
    "sales": [(2, 14000, 2, 14000)],
    "rollbacks": sorted((system, "DONE") for system in SYSTEMS),
    "failed": 0,
}
"""Two units of 100.00, 50.00 by coupon, 10.00 by 100 points: 140.00 of goods, one sellable and one defect."""


@pytest.mark.slow
@pytest.mark.django_db
def test_all_orders_of_the_five_each_three_times(now):
    refunded = a_refunded_order(now, {"sellable": 1, "defect": 1})
    (number,) = refunded.claims
    messages = {system: event for (_number, system), event in refunded.messages.items()}
    assert sorted(messages) == sorted(SYSTEMS)
    assert AfterSalesOrder.objects.get().status == "REFUND_SUCCESS"
    before = effects()
    chance, deliveries = Random(5), 0
    for order in itertools.permutations(SYSTEMS):
        with transaction.atomic():
            for system in tripled(order, chance):
                assert inbox.deliver(messages[system], now=now)
                deliveries += 1
            after = effects()
            assert {name: after[name] for name in ALL_BACK} == ALL_BACK, order
            assert [b - a for a, b in zip(before["entries"], after["entries"], strict=True)] == [2, 2, 2, 1], order
            assert Rollback.objects.filter(after_sales__after_sales_no=number, state="DONE").count() == 5
            transaction.set_rollback(True)
    assert effects() == before
    print(f"120 orders, {deliveries} deliveries")
    assert deliveries == 120 * 15


@pytest.mark.django_db
def test_two_claims_of_one_order_with_their_ten_messages_shuffled(now):
    """Which claim's message takes the points or the commission depends on the order; the balances do not."""
    refunded = a_refunded_order(now, {"sellable": 1}, {"defect": 1})
    messages = list(refunded.messages.values())
    assert len(messages) == 10
    before, chance = effects(), Random(7)
    for turn in range(24):
        with transaction.atomic():
            sequence = messages * 3
            chance.shuffle(sequence)
            for event in sequence:
                assert inbox.deliver(event, now=now)
            after = effects()
            wanted = {**ALL_BACK, "rollbacks": sorted((system, "DONE") for system in SYSTEMS * 2)}
            assert {name: after[name] for name in wanted} == wanted, turn
            transaction.set_rollback(True)
    assert effects() == before


@pytest.mark.django_db(transaction=True)
def test_fifteen_deliveries_at_once(now):
    """Each of the five by three workers in the same moment, on connections of their own."""
    refunded = a_refunded_order(now, {"sellable": 1, "defect": 1})
    barrier = threading.Barrier(15)

    def work(event: UUID) -> None:
        close_old_connections()
        try:
            barrier.wait()
            inbox.deliver(event, now=now)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(event,)) for event in list(refunded.messages.values()) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = effects()
    assert {name: after[name] for name in ALL_BACK} == ALL_BACK
