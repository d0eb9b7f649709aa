"""What the channel says, and the five rollbacks that follow a success, whatever arrives how often."""

from contextlib import suppress
from datetime import timedelta

import pytest
from django.db import transaction

from aftersales.commands._roll_back_stock import roll_back_stock
from aftersales.commands.run_rollback import run_rollback
from aftersales.models import AfterSalesOrder, Rollback
from kernel import inbox
from kernel.errors import Refusal
from kernel.models import InboxMessage, OutboxEvent
from ledgers.commands.adjust_stock import adjust_stock
from ledgers.models import StockEntry, StockItem
from orders.commands.close_order import close_order
from orders.models import Order
from tests.aftersales.build import Line, a_paid_order, deliver, nut_and_tea

pytestmark = pytest.mark.django_db


def stock(paid, sku: str, *, sellable: int = 0, reserved: int = 0) -> None:
    adjust_stock(
        merchant_id=paid.merchant.pk,
        sku=sku,
        bucket="sellable",
        delta=sellable + reserved,
        business_key=f"{sku}-0",
        reference="test",
        now=paid.now,
    )
    if reserved:
        from ledgers.commands.reserve_stock import reserve_stock

        reserve_stock(
            merchant_id=paid.merchant.pk, sku=sku, qty=reserved, business_key=f"{sku}-1", reference="test", now=paid.now
        )


def balances(sku: str) -> tuple[int, int, int]:
    item = StockItem.objects.get(sku=sku)
    return item.sellable, item.reserved, item.defect


def test_success_ends_the_claim_and_asks_for_five_rollbacks(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    claim = paid.claim(number)
    assert (claim.status, claim.finished_at) == ("REFUND_SUCCESS", now)
    assert claim.log.order_by("-to_version")[0].actor_kind == "channel"
    assert paid.line(2).refunded_ordinals == [1]
    assert paid.line(2).held_ordinals == []
    assert {(r.system, r.state) for r in claim.rollbacks.all()} == {
        (s, "DONE") for s in ("stock", "coupon", "points", "commission", "sales")
    }


def test_facts_told_again_change_nothing(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    for _ in range(3):
        paid.channel_says(f"{number}-0")
    for event in OutboxEvent.objects.all():
        if event.name in ("refund.succeeded", "rollback.requested"):
            inbox.deliver(event.id, now=now)
    claim = paid.claim(number)
    assert (claim.version, claim.log.count(), claim.rollbacks.count()) == (3, 3, 5)
    assert paid.line(2).refunded_ordinals == [1]


def test_r11_nothing_moves_before_the_success(now):
    paid = nut_and_tea(now)
    stock(paid, "tea", reserved=1)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0", "PROCESSING")
    paid.channel_says(f"{number}-0", "ABNORMAL")
    assert paid.claim(number).status == "REFUND_FAILED"
    assert balances("tea") == (0, 1, 0)
    assert not Rollback.objects.exists()


def test_a_late_success_ends_a_failed_refund(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0", "ABNORMAL")
    paid.channel_says(f"{number}-0")
    assert paid.claim(number).status == "REFUND_SUCCESS"


def test_r12_a_stale_failure_after_success_changes_nothing(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    paid.channel_says(f"{number}-0", "CLOSED")
    assert paid.claim(number).status == "REFUND_SUCCESS"


def test_r14_another_amount_moves_nothing(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0", amount_fen=17166)
    assert paid.claim(number).status == "REFUNDING"
    event = OutboxEvent.objects.get(name="refund.anomaly")
    assert (event.payload["ours"]["amount_fen"], event.payload["theirs"]["amount_fen"]) == (17167, 17166)


def test_r6_an_unshipped_refund_puts_the_reserved_units_back_on_sale_once(now):
    paid = a_paid_order(now, Line(1000, qty=2, sku="cup"))
    stock(paid, "cup", sellable=8, reserved=2)
    number = paid.apply(1, qty=2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    assert balances("cup") == (10, 0, 0)
    for _ in range(3):
        again = run_rollback(merchant_id=paid.merchant.pk, after_sales_no=number, system="stock", now=now)
        assert again.replayed
    assert balances("cup") == (10, 0, 0)
    assert StockEntry.objects.filter(reference=number).count() == 2


@pytest.mark.django_db(transaction=True)
def test_r6_closing_the_refunded_order_afterwards_moves_nothing(now):
    """Stock 10, 2 bought, refunded, then somebody closes the order: 10, not 12."""
    paid = a_paid_order(now, Line(1000, qty=2, sku="cup"))
    stock(paid, "cup", sellable=8, reserved=2)
    number = paid.apply(1, qty=2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    assert balances("cup") == (10, 0, 0)
    with suppress(Refusal):
        close_order(order_id=paid.order.pk, reason="manual", now=now)
    assert Order.objects.get().status == Order.Status.PAID
    assert balances("cup") == (10, 0, 0)


def test_r7_shipped_and_refunded_without_return_moves_no_goods(now):
    paid = a_paid_order(now, Line(1000, sku="cup"))
    paid.ship(1)
    stock(paid, "cup", sellable=8)
    number = paid.apply(1).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    assert balances("cup") == (8, 0, 0)


def test_returned_goods_go_where_the_inspection_said(now):
    paid = a_paid_order(now, Line(1000, qty=3, sku="cup"))
    paid.ship(1)
    stock(paid, "cup", sellable=5)
    number = paid.returned(1, qty=3)
    paid.confirm(number, sellable=1, defect=1, missing=1)
    paid.channel_says(f"{number}-0")
    assert balances("cup") == (6, 0, 1)


def test_the_ledger_itself_takes_returned_goods_once(now):
    """Below the message's own mark: a second try, later and in a transaction of its own, moves nothing."""
    paid = a_paid_order(now, Line(1000, qty=2, sku="cup"))
    paid.ship(1)
    stock(paid, "cup", sellable=5)
    number = paid.returned(1, qty=2)
    paid.confirm(number, sellable=1, defect=1)
    paid.channel_says(f"{number}-0")
    claim = AfterSalesOrder.objects.get(after_sales_no=number)
    for minutes in (1, 2):
        with transaction.atomic():
            roll_back_stock(claim, now + timedelta(minutes=minutes))
    assert balances("cup") == (6, 0, 1)


def test_a27_price_protection_comes_off_a_later_return(now):
    paid = a_paid_order(now, Line(16667))
    paid.ship(1)
    first = paid.apply(1, type=5, reason="price_drop", goods_fen=2000).after_sales_no
    paid.approve(first)
    paid.channel_says(f"{first}-0")
    second = paid.apply(1, type=2)
    assert second.goods_fen == 14667


def test_a31_the_nut_is_never_refused(now):
    paid = nut_and_tea(now)
    first = paid.apply(2, type=5, reason="price_drop", goods_fen=2000).after_sales_no
    paid.approve(first)
    paid.channel_says(f"{first}-0")
    tea, nut = paid.apply(2), paid.apply(1)
    assert (tea.goods_fen + tea.freight_fen, nut.goods_fen + nut.freight_fen) == (15167, 8833)
    for item in (tea, nut):
        paid.approve(item.after_sales_no)
        paid.channel_says(f"{item.after_sales_no}-0")
    paid.payment.refresh_from_db()
    assert paid.payment.refunded_fen == 26000


def test_a33_compensation_is_subtracted_and_returns_no_coupon(now):
    paid = nut_and_tea(now)
    paid.ship(1)
    first = paid.apply(1, goods_fen=500, reason="damaged").after_sales_no
    paid.approve(first)
    paid.channel_says(f"{first}-0")
    assert paid.line(1).refunded_ordinals == []
    assert paid.apply(1, type=2, reason="changed_mind").goods_fen == 7833


def test_a_consumer_that_fails_leaves_everything_as_it_was_and_tries_again(now, monkeypatch):
    paid = nut_and_tea(now)
    stock(paid, "tea", reserved=1)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    StockItem.objects.filter(sku="tea").update(reserved=0, version=99)
    paid.channel_says(f"{number}-0")
    mine = Rollback.objects.get(after_sales__after_sales_no=number, system="stock")
    assert mine.state == "PENDING"
    message = InboxMessage.objects.get(event_id=mine.event_id)
    assert (message.state, message.attempts) == ("FAILED", 1)
    StockItem.objects.filter(sku="tea").update(reserved=1, version=100)
    inbox.deliver(mine.event_id, now=now)
    mine.refresh_from_db()
    assert mine.state == "DONE"
    assert balances("tea") == (1, 0, 0)
    deliver(now)
