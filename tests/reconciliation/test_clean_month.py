"""No false alarm: a month of mixed traffic through the real commands, refunds over midnight included, finds nothing."""

import random
from collections import Counter
from datetime import timedelta

import pytest

from aftersales.models import AfterSalesOrder
from demo.catalogue import NUTS, user_id
from demo.shop import Shop
from kernel.clock import channel_day
from orders.models import Order
from payments.models import Payment, RefundAttempt
from reconciliation.commands.look_at_changes import look_at_changes
from reconciliation.models import Finding, ReconciliationRun
from tests.reconciliation.books import DAY, Books, at

DAYS = 30
SEED = 20261127


def live(books: Books, day_no: int, dice: random.Random, told: Counter) -> None:
    """A day of the shop: some sales, and something that becomes of each."""
    shop, day = books.shop, DAY + timedelta(days=day_no)
    for number in range(dice.randint(1, 2)):
        buyer = f"{day_no}-{number}"
        fate = dice.choice(FATES)
        told[fate.__name__] += 1
        fate(shop, buyer, day, dice)


def sold(shop: Shop, buyer: str, day, dice: random.Random, **more) -> Order:
    goods = list(NUTS.goods.values())
    lines = [each.line(dice.randint(1, 3)) for each in dice.sample(goods, dice.randint(1, 3))]
    return shop.buy(user_id(buyer), lines, now=at(dice.randint(9, 21), dice.randint(0, 50), day=day), **more)


def kept(shop: Shop, buyer: str, day, dice: random.Random) -> None:
    order = sold(shop, buyer, day, dice, freight_fen=dice.choice([0, 600, 1001]))
    shop.ship(order, now=at(22, day=day))
    shop.sign(order, now=at(9, day=day + timedelta(days=2)))


def abandoned(shop: Shop, buyer: str, day, dice: random.Random) -> None:
    shop.time_out(sold(shop, buyer, day, dice, pay=False), now=at(22, 30, day=day))


def cancelled(shop: Shop, buyer: str, day, dice: random.Random) -> None:
    shop.cancel(sold(shop, buyer, day, dice, pay=False), now=at(22, 40, day=day))


def with_coupon(shop: Shop, buyer: str, day, dice: random.Random) -> Order:
    coupon = shop.give_coupon(user_id(buyer), "TEA-300-50", now=at(8, day=day))
    lines = [NUTS.goods["nut"].line(), NUTS.goods["tea"].line()]
    return shop.buy(user_id(buyer), lines, coupon_id=coupon, freight_fen=1000, now=at(10, day=day))


def wholly_refunded(shop: Shop, buyer: str, day, dice: random.Random) -> None:
    order = with_coupon(shop, buyer, day, dice)
    for line_no in (2, 1):
        claim = shop.claim(order, line_no=line_no, type=1, reason="changed_mind", now=at(12 + line_no, day=day))
        shop.refund(shop.approve(claim, now=at(13 + line_no, day=day)), now=at(13 + line_no, 5, day=day))


def returned_later(shop: Shop, buyer: str, day, dice: random.Random) -> None:
    order = with_coupon(shop, buyer, day, dice)
    shop.ship(order, now=at(17, day=day))
    shop.sign(order, now=at(10, day=day + timedelta(days=1)))
    claim = shop.claim(order, line_no=2, now=at(12, day=day + timedelta(days=1)))
    claim = shop.send_back(shop.approve(claim, now=at(13, day=day + timedelta(days=1))), now=at(14, day=day))
    back = day + timedelta(days=2)
    claim = shop.receive(claim, defect=dice.randint(0, 1), now=at(15, day=back))
    shop.refund(claim, now=at(15, 30, day=back))


def over_midnight(shop: Shop, buyer: str, day, dice: random.Random) -> None:
    order = sold(shop, buyer, day, dice)
    claim = shop.claim(order, line_no=1, type=1, reason="changed_mind", now=at(23, 30, day=day))
    claim = shop.approve(claim, now=at(23, 50, day=day))
    shop.refund(claim, now=at(23, 58, day=day), done_at=at(0, 4, day=day + timedelta(days=1)))
    ship_the_rest(shop, order, day)


def ship_the_rest(shop: Shop, order: Order, day) -> None:
    """Units that are refunded or claimed do not leave the house; an order of nothing else is void."""
    if any(line.qty > len(line.held_ordinals) + len(line.refunded_ordinals) for line in order.lines.all()):
        shop.ship(order, now=at(10, day=day + timedelta(days=1)))
        shop.sign(order, now=at(10, day=day + timedelta(days=3)))


def refused_by_the_channel(shop: Shop, buyer: str, day, dice: random.Random) -> None:
    order = sold(shop, buyer, day, dice)
    claim = shop.claim(order, line_no=1, type=1, reason="changed_mind", now=at(22, 10, day=day))
    shop.refund(shop.approve(claim, now=at(22, 20, day=day)), to="CLOSED", now=at(22, 30, day=day))
    ship_the_rest(shop, order, day)


FATES = [kept, kept, abandoned, cancelled, wholly_refunded, returned_later, over_midnight, refused_by_the_channel]


@pytest.mark.slow
def test_a_clean_month(books: Books) -> None:
    dice, told = random.Random(SEED), Counter()
    for day_no in range(DAYS):
        live(books, day_no, dice, told)
        assert look_at_changes(now=at(23, 59, day=DAY + timedelta(days=day_no))).seen == 0
    assert len(told) == len(set(FATES)), told

    days = [DAY + timedelta(days=number) for number in range(DAYS + 3)]
    books.bill_days(*days)
    closed_ones(books)
    for day in days:
        assert books.run(day).findings_seen == 0, list(Finding.objects.values("rule", "key", "ours", "theirs"))
    assert not Finding.objects.exists()
    runs = ReconciliationRun.objects.filter(kind="daily")
    assert sum(run.items for run in runs) == sum(run.matched for run in runs) >= 30
    assert sum(run.timing for run in runs) >= 2 * told["over_midnight"] > 0
    totals = [row for run in runs for row in run.totals["refunds"]]
    refunded = sum(row["ours_fen"] for row in totals)
    assert refunded == sum(row["theirs_fen"] for row in totals) == sum(row["booked_fen"] for row in totals) > 0
    assert refunded == sum(
        claim.approved_total_fen for claim in AfterSalesOrder.objects.filter(status="REFUND_SUCCESS")
    )
    assert Payment.objects.filter(status="PAID").count() == sum(
        row["ours_count"] for run in runs for row in run.totals["payments"]
    )


def closed_ones(books: Books) -> None:
    """Refunds that the channel closed stand in its bill too, as failed."""
    for attempt in RefundAttempt.objects.filter(status="CLOSED"):
        books.bill_refund(attempt, on=channel_day(attempt.created_at), state="FAIL")
