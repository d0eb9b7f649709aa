"""Each guarantee of the database, attacked by hand-written SQL as the owner of the tables."""

import pytest
from django.db import DatabaseError, connection, transaction

from orders.models import Order, OrderStatusLog
from tests.orders.factories import Shop, order_of

LOG = "INSERT INTO order_status_log (order_id, command, from_status, to_status, from_version, to_version,"
LOG += " actor_kind, actor, reason, evidence, at) SELECT id, {}, 'system', '', '', '{{}}', now() FROM orders"

ATTACKS = {
    "status without a version": "UPDATE orders SET status = 50, cancelled_at = now()",
    "version without a log row": "UPDATE orders SET version = version + 1",
    "a jump of versions": "UPDATE orders SET version = version + 2",
    "back to an older version": "UPDATE orders SET version = 0",
    "no such edge": "UPDATE orders SET status = 30, version = version + 1, completed_at = now()",
    "closed without a reason": "UPDATE orders SET status = 40, version = version + 1, closed_at = now()",
    "paid without a trade": "UPDATE orders SET status = 10, version = 2, paid_at = now(), fulfilment = 'waiting'",
    "another amount": "UPDATE orders SET payable_fen = 1",
    "another amount that adds up": "UPDATE orders SET payable_fen = payable_fen - 1, goods_fen = goods_fen - 1",
    "another owner": "UPDATE orders SET user_id = 'thief'",
    "refund decided on a pending order": "UPDATE orders SET refund_decided_at = now(), version = version + 1",
    "an unknown status": "UPDATE orders SET status = 15, version = version + 1",
    "an order deleted": "DELETE FROM order_line; DELETE FROM orders",
    "a log row changed": "UPDATE order_status_log SET reason = 'never happened'",
    "a log row deleted": "DELETE FROM order_status_log",
    "the log emptied": "TRUNCATE order_status_log CASCADE",
    "a second first row": LOG.format("'create', NULL, 0, NULL, 1"),
    "a row that follows nothing": LOG.format("'deliver', 10, 20, 7, 8"),
    "a row with half a source": LOG.format("'close', 0, 40, NULL, 2"),
    "a command that is not its edge": LOG.format("'cancel', 0, 10, 1, 2"),
    "a frozen share": "UPDATE order_line SET net_fen = net_fen + 1, coupon_share_fen = coupon_share_fen - 1",
    "refunds above the net": "UPDATE order_line SET goods_committed_fen = net_fen + 1",
    "freight refunds above the share": "UPDATE order_line SET freight_committed_fen = freight_share_fen + 1",
    "a unit it has not": "UPDATE order_line SET held_ordinals = '{2}'",
    "shipped without a unit": "UPDATE order_line SET shipped_qty = 1",
    "a unit shipped twice": "UPDATE order_line SET shipped_qty = 1, shipped_ordinals = '{1,1}'",
    "a line deleted": "DELETE FROM order_line",
    "a quote's price": "UPDATE quote SET payable_fen = 1",
    "a lease without a lock": "UPDATE quote SET lease_held = true, lock_id = NULL",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_database_says_no(shop: Shop, attack: str) -> None:
    ordered = shop.order()
    before = list(Order.objects.values()), list(OrderStatusLog.objects.values())
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(ATTACKS[attack])
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert (list(Order.objects.values()), list(OrderStatusLog.objects.values())) == before
    assert order_of(ordered).status == 0


def test_a_second_pending_order_for_the_cart_is_refused(shop: Shop) -> None:
    """The partial unique index is about the pending orders of one cart, and about nothing else."""
    ordered = shop.order()
    shop.order(address={"street": "elsewhere"})
    fingerprint = order_of(ordered).fingerprint
    with (
        pytest.raises(DatabaseError, match="order_pending_is_one_per_cart"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("ALTER TABLE orders DISABLE TRIGGER USER")
        cursor.execute("UPDATE orders SET fingerprint = %s", [fingerprint])
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = 'order_pending_is_one_per_cart'")
        assert cursor.fetchone()[0].endswith("WHERE (status = 0)")


def test_what_was_refunded_stays_closed(shop: Shop) -> None:
    """C35 in the database itself: no statement brings a refunded order back."""
    from orders.commands.close_order import close_order
    from orders.commands.settle_charge import settle_charge
    from orders.tender import Answer, Heard
    from tests.orders.factories import paid_fact, payment_of

    ordered, _placed = shop.placed()
    close_order(order_id=ordered.order_id, reason="manual", now=shop.now)
    payment = payment_of(ordered)
    settle_charge(payment_id=payment.id, heard=Heard(answer=Answer.PAID_EQUAL, fact=paid_fact(payment)), now=shop.now)
    assert order_of(ordered).refund_decided_at is not None
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE orders SET status = 10, version = version + 1, closed_reason = '', closed_at = NULL,"
            " paid_at = now(), trade_no = 'x', fulfilment = 'waiting', refund_decided_at = NULL"
        )
