"""Coupons four ways, orders, ledgers and messages: each fault planted by hand is found, exactly it."""

from datetime import timedelta

import pytest

from aftersales.models import ALWAYS_TURNED_BACK, Rollback
from coupons.models import CouponOperation, CouponRedemption, UserCoupon
from demo.catalogue import NUTS, user_id
from kernel import outbox
from kernel.models import InboxMessage, OutboxEvent
from ledgers.commands.adjust_points import adjust_points
from ledgers.commands.top_up_wallet import top_up_wallet
from ledgers.models import StockItem
from orders.commands.pay_order import pay_order
from orders.models import Order
from payments.commands.pick_due_refunds import pick_due_refunds
from payments.commands.pursue_refund import pursue_refund
from payments.commands.save_account import save_account
from payments.models import Payment
from payments.queries import bill_kinds
from reconciliation.commands.recheck_finding import recheck_finding
from reconciliation.models import Finding
from tests.aftersales.build import a_merchant
from tests.reconciliation.books import DAY, Books, at, careless, new_id, restore

NEXT = DAY + timedelta(days=1)
LATER = at(10, 30, day=NEXT)


def sold(books: Books) -> Order:
    order = books.sale(coupon=True)
    books.bill_days()
    return order


def coupon_of(order: Order) -> UserCoupon:
    return UserCoupon.objects.get(pk=order.coupon_id)


# -- coupons -----------------------------------------------------------------------------------------------------


def test_paid_but_the_coupon_is_free(books: Books) -> None:
    """The redemption and everything that belongs to it was taken away; the lease had been released."""
    order = sold(books)
    careless(
        "DELETE FROM coupon_redemption",
        "UPDATE coupon_lock SET ended_by_id = NULL",
        "DELETE FROM coupon_operation WHERE command = 'REDEEM'",
        "UPDATE user_coupon c SET status = 'LOCKED', state_version = o.to_version, locked_order_no = o.order_no,"
        " lock_id = o.lock_id, lock_token_hash = l.token_hash, lease_expires_at = o.lease_expires_at"
        " FROM coupon_operation o, coupon_lock l WHERE o.coupon_id = c.id AND l.id = o.lock_id"
        " AND o.to_version = (SELECT max(to_version) FROM coupon_operation x WHERE x.coupon_id = c.id)",
        "DELETE FROM idempotency_key WHERE key LIKE 'order:%%:redeem:%%'",
        tables=("coupon_redemption", "coupon_lock", "coupon_operation", "user_coupon"),
    )
    finding = books.finds("COUPON_PAID_NOT_REDEEMED", order.order_no)
    books.repaired(finding)
    assert coupon_of(order).status == "USED"
    assert CouponRedemption.objects.get().order_no == order.order_no


def test_locked_by_an_order_that_ended(books: Books) -> None:
    coupon = books.shop.give_coupon(user_id("lin"), "TEA-300-50", now=at(9))
    goods = NUTS.goods
    order = books.shop.buy(
        user_id("lin"), [goods["nut"].line(), goods["tea"].line()], coupon_id=coupon, now=at(10), pay=False
    )
    books.bill_days()
    careless(
        "UPDATE orders SET status = 50, version = 2, cancelled_at = %(at)s, next_check_at = NULL",
        "INSERT INTO order_status_log (order_id, command, from_status, to_status, from_version, to_version,"
        " actor_kind, actor, reason, evidence, at) SELECT id, 'cancel', 0, 50, 1, 2, 'user', '', '', '{}', %(at)s"
        " FROM orders",
        tables=("orders", "order_status_log"),
        at=at(11),
    )
    finding = books.finds("COUPON_HELD_BY_DEAD_ORDER", order.order_no)
    books.repaired(finding)
    assert UserCoupon.objects.get(pk=coupon).status == "AVAILABLE"


def test_used_without_a_redemption(books: Books) -> None:
    order = sold(books)
    careless("DELETE FROM coupon_redemption", tables=("coupon_redemption",))
    finding = books.finds("COUPON_GHOST_REDEMPTION", str(order.coupon_id))
    assert finding.severity == "P0"
    books.mended()


def test_used_by_an_order_that_does_not_exist(books: Books) -> None:
    order = sold(books)
    careless(
        "UPDATE coupon_redemption SET order_no = 'Q-NOWHERE'",
        "UPDATE orders SET coupon_state = 'honoured'",
        tables=("coupon_redemption", "orders"),
    )
    books.finds("COUPON_GHOST_REDEMPTION", str(order.coupon_id))
    books.mended()


def test_one_coupon_on_two_paid_orders(books: Books) -> None:
    """The incident: two paid orders count the same coupon as theirs. The gate sees it within the minute."""
    first = sold(books)
    second = books.sale(now=at(12), buyer="chen")
    books.bill_payment(Payment.objects.get(order_no=second.order_no))
    careless(
        "UPDATE orders SET coupon_id = %(coupon)s, coupon_state = 'redeemed' WHERE id = %(second)s",
        tables=("orders",),
        coupon=first.coupon_id,
        second=second.pk,
    )
    assert books.gate(now=at(12, 5)) == 1
    assert books.found() == {("COUPON_USED_TWICE", str(first.coupon_id))}
    assert books.gate(now=at(12, 6)) == 0
    books.finds("COUPON_USED_TWICE", str(first.coupon_id))
    books.mended()


@pytest.mark.parametrize("fast", [0, 240, 3600])
def test_the_gate_trusts_no_single_clock(books: Books, fast: int) -> None:
    """A look by a worker whose clock is fast hides nothing from the looks that follow; a slow one's rows are seen."""
    books.gate(now=at(12) + timedelta(seconds=fast))
    first = sold(books)
    second = books.sale(now=at(12) - timedelta(minutes=4), buyer="chen")
    careless(
        "UPDATE orders SET coupon_id = %(coupon)s, coupon_state = 'redeemed' WHERE id = %(second)s",
        tables=("orders",),
        coupon=first.coupon_id,
        second=second.pk,
    )
    assert books.gate(now=at(12, 1)) == 1
    assert books.found() == {("COUPON_USED_TWICE", str(first.coupon_id))}


def test_return_decided_and_not_done(books: Books) -> None:
    order = books.sale(coupon=True)
    books.refund(order), books.refund(order, line_no=1, now=at(16))
    books.bill_days()
    assert coupon_of(order).status == "AVAILABLE"
    careless(
        "UPDATE coupon_redemption SET ended_by_id = NULL",
        "DELETE FROM coupon_operation WHERE command = 'RETURN'",
        "UPDATE user_coupon SET status = 'USED', state_version = state_version - 1",
        "DELETE FROM outbox_event WHERE name = 'coupon.returned'",
        "DELETE FROM idempotency_key WHERE result::text LIKE '%%redemption_id%%'",
        tables=("coupon_redemption", "coupon_operation", "user_coupon", "outbox_event"),
    )
    decision = order_decision()
    finding = books.finds("COUPON_RETURN_NOT_DONE", decision)
    books.repaired(finding)
    assert coupon_of(order).status == "AVAILABLE"


def order_decision() -> str:
    from coupons.models import RefundCoupon

    return str(RefundCoupon.objects.get(decision="RETURN").pk)


def test_history_with_a_gap(books: Books) -> None:
    order = sold(books)
    careless("DELETE FROM coupon_operation WHERE command = 'RENEW'", tables=("coupon_operation",))
    assert books.gate(now=at(10, 10)) == 1
    finding = books.finds("COUPON_HISTORY_BROKEN", str(order.coupon_id))
    assert finding.severity == "P0" and finding.ours["operations"] == 3
    books.mended()


def test_row_differs_from_its_history(books: Books) -> None:
    coupon = books.shop.give_coupon(user_id("lin"), "TEA-300-50", now=at(9))
    books.bill_days()
    careless("UPDATE user_coupon SET status = 'VOID'", tables=("user_coupon",))
    finding = books.finds("COUPON_REPLAY_DIFFERS", str(coupon))
    assert (finding.ours["status"], finding.theirs["status"]) == ("VOID", "AVAILABLE")
    assert CouponOperation.objects.count() == 1
    books.mended()


def test_orphan_lease(books: Books) -> None:
    """A lease whose order nobody knows, past its time. A live quote's lease is no orphan."""
    coupon = books.shop.give_coupon(user_id("lin"), "TEA-300-50", now=at(9))
    goods = NUTS.goods
    quote = books.shop.quote(user_id("lin"), [goods["nut"].line(), goods["tea"].line()], coupon_id=coupon, now=at(10))
    books.bill_days()
    books.run(now=at(10, 4))
    assert books.found() == set()
    careless("DELETE FROM quote", tables=("quote",))
    assert books.gate(now=at(10, 20)) == 1
    finding = books.finds("COUPON_ORPHAN_LEASE", str(coupon))
    assert finding.ours["locked_by"] == quote.order_no
    books.repaired(finding)
    assert UserCoupon.objects.get(pk=coupon).status == "AVAILABLE"


# -- orders and after-sales ----------------------------------------------------------------------------------------


def test_paid_order_without_its_payment(books: Books) -> None:
    order = sold(books)
    careless("UPDATE orders SET payable_fen = payable_fen - 1, freight_fen = freight_fen - 1", tables=("orders",))
    finding = books.finds("ORDER_PAID_WITHOUT_PAYMENT", order.order_no)
    assert (finding.severity, finding.amount_fen) == ("P0", 25999)
    books.mended()


def test_money_held_for_an_order_that_ended(books: Books) -> None:
    """A second charge that was recorded and never sent back: the repair asks for its refund, once."""
    order = books.sale()
    second = new_id()
    careless(
        "INSERT INTO payment SELECT (jsonb_populate_record(p, jsonb_build_object('id', %(id)s::uuid,"
        " 'kind', 'extra', 'trade_no', '4200EXTRA0000001'))).* FROM payment p",
        "INSERT INTO journal_entry (id, merchant_id, kind, business_key, reference, order_no, posted_at, created_at)"
        " SELECT gen_random_uuid(), merchant_id, 'payment', 'payment:' || id, out_trade_no, order_no, paid_at, paid_at"
        " FROM payment WHERE id = %(id)s",
        "INSERT INTO journal_line (entry_id, merchant_id, account, amount_fen) SELECT e.id, e.merchant_id, a.*"
        " FROM journal_entry e, (VALUES ('channel_clearing:wechat', 30000), ('unclaimed', -30000)) AS a"
        " WHERE e.business_key = 'payment:' || %(id)s::uuid",
        id=second,
    )
    books.bill_days()
    finding = books.finds("PAYMENT_WITHOUT_ORDER", f"{Payment.objects.get(pk=second).out_trade_no}:4200EXTRA0000001")
    books.repaired(finding)
    assert Payment.objects.get(pk=second).refund_committed_fen == 30000
    assert Order.objects.get(pk=order.pk).status == 10


def test_undelivered(books: Books) -> None:
    order = sold(books)
    books.run(now=at(12, day=DAY + timedelta(days=8)))
    assert books.found() == {("ORDER_UNDELIVERED", order.order_no)}
    books.shop.ship(order, now=at(13, day=DAY + timedelta(days=8)))
    books.run(now=at(14, day=DAY + timedelta(days=8)))
    assert books.found() == set()


def test_refunding_for_long(books: Books) -> None:
    claim = books.claim(sold(books))
    books.run(now=at(15, day=NEXT))
    assert books.found() == {("CLAIM_REFUNDING_LONG", claim.after_sales_no)}


def test_rollback_missing(books: Books) -> None:
    """Its row is gone, whatever became of its effect: it is asked for and done again, and nothing happens twice."""
    claim = books.refund(books.sale())
    books.bill_days()
    stock = list(StockItem.objects.order_by("sku").values("sku", "sellable", "reserved"))
    careless("DELETE FROM after_sales_rollback WHERE system IN ('points', 'stock')", tables=("after_sales_rollback",))
    finding = books.finds("ROLLBACK_MISSING", claim.after_sales_no)
    assert finding.theirs["missing"] == ["points", "stock"]
    books.repaired(finding)
    assert set(Rollback.objects.values_list("system", "state")) == {(str(each), "DONE") for each in ALWAYS_TURNED_BACK}
    assert list(StockItem.objects.order_by("sku").values("sku", "sellable", "reserved")) == stock


def test_rollback_that_waits(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    careless(
        "UPDATE after_sales_rollback SET state = 'PENDING', done_at = NULL WHERE system = 'sales'",
        tables=("after_sales_rollback",),
    )
    finding = books.finds("ROLLBACK_MISSING", claim.after_sales_no)
    assert finding.theirs["pending"] == ["sales"]
    books.repaired(finding)


def test_rollback_twice(books: Books) -> None:
    """The database refuses it; somebody took that away as well."""
    claim = books.refund(books.sale())
    books.bill_days()
    constraint = "rollback_happens_once_per_system"
    careless(
        f"ALTER TABLE after_sales_rollback DROP CONSTRAINT {constraint}",
        "INSERT INTO after_sales_rollback SELECT (jsonb_populate_record(b, jsonb_build_object('id', %(id)s::uuid))).*"
        " FROM after_sales_rollback b WHERE system = 'stock'",
        tables=("after_sales_rollback",),
        id=new_id(),
    )
    try:
        assert books.finds("ROLLBACK_MISSING", claim.after_sales_no).theirs["twice"] == ["stock"]
        books.mended()
    finally:
        restore()
        careless(f"ALTER TABLE after_sales_rollback ADD CONSTRAINT {constraint} UNIQUE (after_sales_id, system)")


def test_order_differs_from_its_history(books: Books) -> None:
    order = sold(books)
    careless("UPDATE orders SET version = 5", tables=("orders",))
    assert books.finds("ORDER_HISTORY_BROKEN", order.order_no).severity == "P0"
    books.mended()


def test_claim_differs_from_its_history(books: Books) -> None:
    claim = books.claim(sold(books))
    careless("UPDATE after_sales_order SET version = version + 3", tables=("after_sales_order",))
    assert books.finds("CLAIM_HISTORY_BROKEN", claim.after_sales_no).severity == "P0"
    books.mended()


def test_payment_counts_its_refunds_wrongly(books: Books) -> None:
    books.refund(books.sale())
    books.bill_days()
    payment = Payment.objects.get()
    careless("UPDATE payment SET refund_committed_fen = refund_committed_fen + 50")
    finding = books.finds("PAYMENT_COMMITTED_WRONG", f"{payment.out_trade_no}:{payment.trade_no}")
    assert finding.amount_fen == 50
    books.mended()


# -- ledgers and messages ------------------------------------------------------------------------------------------


def test_stock_differs_from_its_entries(books: Books) -> None:
    sold(books)
    careless("UPDATE stock_item SET sellable = sellable + 1 WHERE sku = 'TEA-250G'", tables=("stock_item",))
    assert books.finds("STOCK_DIFFERS", "TEA-250G").severity == "P0"
    books.mended()


def test_the_same_sku_in_two_shops_is_two_findings(books: Books) -> None:
    """Each shop sees its own, and looking at one again leaves the other."""
    sold(books)
    other = a_merchant(at(9)).pk
    careless(
        "UPDATE stock_item SET sellable = sellable + 1 WHERE sku = 'TEA-250G'",
        "INSERT INTO stock_item (id, merchant_id, sku, title, sellable, reserved, defect, version, created_at)"
        " VALUES (%(other)s, %(other)s, 'TEA-250G', '', 5, 0, 0, 0, %(at)s)",
        tables=("stock_item",),
        other=other,
        at=at(9),
    )
    books.run()
    found = {finding.merchant_id: finding for finding in Finding.objects.filter(rule="STOCK_DIFFERS", key="TEA-250G")}
    assert set(found) == {other, books.shop.merchant_id}
    careless("UPDATE stock_item SET sellable = 0 WHERE merchant_id = %(other)s", tables=("stock_item",), other=other)
    states = {shop: recheck_finding(finding_id=finding.pk, now=LATER).state for shop, finding in found.items()}
    assert states == {other: "RESOLVED", books.shop.merchant_id: "OPEN"}


@pytest.fixture
def rich(books: Books) -> str:
    """A buyer with a wallet of 1000.00, at a shop that takes balance."""
    save_account(merchant_id=books.shop.merchant_id, channel="balance", mchid="", app_id="", now=at(8))
    buyer = user_id("rich")
    top_up_wallet(merchant_id=books.shop.merchant_id, user_id=buyer, amount_fen=100000, reference="bank-1", now=at(8))
    return buyer


def paid_by_balance(books: Books, buyer: str) -> Order:
    """The wallet answers by itself: no side of a channel has to be played."""
    shop = books.shop
    order = shop.order(shop.quote(buyer, [NUTS.goods["tea"].line()], now=at(9)), now=at(9, 1), pay_method="balance")
    pay_order(
        merchant_id=shop.merchant_id,
        order_no=order.order_no,
        user_id=buyer,
        payer_ref="",
        key=shop.key("pay"),
        now=at(9, 2),
    )
    shop.work_off(now=at(9, 3))
    books.bill_days()
    return Order.objects.get(pk=order.pk, status__in=Order.PAID_OR_LATER)


def test_wallet_differs_from_its_entries(books: Books, rich: str) -> None:
    paid_by_balance(books, rich)
    careless(
        "UPDATE wallet_account SET balance_fen = balance_fen + 7 WHERE user_id = %(buyer)s",
        tables=("wallet_account",),
        buyer=rich,
    )
    finding = books.finds("WALLET_DIFFERS", rich)
    assert (finding.severity, finding.amount_fen) == ("P0", 7)
    books.mended()


def test_payment_by_balance_differs_from_the_wallet(books: Books, rich: str) -> None:
    """The entry and the balance were lowered together: the wallet adds up, and the payment says another amount."""
    order = paid_by_balance(books, rich)
    careless(
        "UPDATE wallet_entry SET delta_fen = delta_fen - 5, balance_after_fen = balance_after_fen - 5"
        " WHERE kind = 'charge'",
        "UPDATE wallet_account SET balance_fen = balance_fen - 5 WHERE user_id = %(buyer)s",
        tables=("wallet_entry", "wallet_account"),
        buyer=rich,
    )
    finding = books.finds("WALLET_PAYMENT_DIFFERS", Payment.objects.get(order_no=order.order_no).out_trade_no)
    assert (finding.severity, finding.amount_fen) == ("P0", 5)
    books.mended()


def test_refund_to_a_balance_differs_from_the_wallet(books: Books, rich: str) -> None:
    claim = books.claim(paid_by_balance(books, rich), line_no=1)
    for attempt_id in pick_due_refunds():
        pursue_refund(attempt_id=attempt_id, now=at(15, 30))
    books.shop.work_off(now=at(15, 31))
    careless(
        "UPDATE wallet_entry SET delta_fen = delta_fen + 5, balance_after_fen = balance_after_fen + 5"
        " WHERE kind = 'credit'",
        "UPDATE wallet_account SET balance_fen = balance_fen + 5 WHERE user_id = %(buyer)s",
        tables=("wallet_entry", "wallet_account"),
        buyer=rich,
    )
    finding = books.finds("WALLET_REFUND_DIFFERS", f"{claim.after_sales_no}-0")
    assert (finding.severity, finding.amount_fen) == ("P0", 5)
    books.mended()


def test_entry_that_does_not_balance(books: Books) -> None:
    entry = new_id()
    books.bill_days()
    careless(
        "INSERT INTO journal_entry (id, merchant_id, kind, business_key, reference, order_no, posted_at, created_at)"
        " VALUES (%(id)s, %(merchant)s, 'correction', 'by hand', 'by hand', '', %(at)s, %(at)s)",
        "INSERT INTO journal_line (entry_id, merchant_id, account, amount_fen)"
        " VALUES (%(id)s, %(merchant)s, 'sales', 700), (%(id)s, %(merchant)s, 'refunds', -600)",
        tables=("journal_entry", "journal_line"),
        id=entry,
        merchant=books.shop.merchant_id,
        at=at(15),
    )
    assert books.finds("JOURNAL_UNBALANCED", "by hand").amount_fen == 100
    books.mended()


def test_event_not_published(books: Books) -> None:
    event = outbox.append(name="order.noted", merchant_id=books.shop.merchant_id, subject="Q1", payload={}, now=at(10))
    books.bill_days()
    books.run(now=at(10, 5), relay=False)
    assert books.found() == set()
    books.run(relay=False)
    assert books.found() == {("OUTBOX_LATE", str(event.pk))}
    books.shop.work_off(now=LATER)
    books.run()
    assert books.found() == set()


@pytest.mark.parametrize("state", ["DEAD", "FAILED"])
def test_message_that_its_consumer_does_not_take(books: Books, state: str) -> None:
    sold(books)
    event = OutboxEvent.objects.get(name="payment.succeeded")
    careless(
        "UPDATE inbox_message SET state = %(state)s, done_at = NULL, last_error = 'boom', available_at = %(at)s"
        " WHERE event_id = %(event)s AND consumer = 'ledgers.post_payment'",
        state=state,
        event=event.pk,
        at=at(11),
    )
    rule = {"DEAD": "INBOX_DEAD", "FAILED": "INBOX_FAILING"}[state]
    finding = books.finds(rule, f"ledgers.post_payment:{event.pk}")
    if state == "FAILED":
        books.mended()
    else:
        books.repaired(finding)
        assert InboxMessage.objects.get(event_id=event.pk, consumer="ledgers.post_payment").state == "DONE"


def test_bill_that_does_not_come(books: Books) -> None:
    books.run(now=at(9, 59, day=NEXT))
    assert books.found() == set()
    books.run(now=at(10, 1, day=NEXT))
    account = books.account_key
    assert books.found() == {("BILL_MISSING", f"{account}:{kind}:{DAY}") for kind in ("trade", "refund", "fundflow")}
    books.bill_days()
    books.run()
    assert books.found() == set()


def test_a_bill_that_the_account_has_no_right_to(books: Books) -> None:
    careless('UPDATE channel_account SET settings = settings || \'{"bills": ["trade", "refund"]}\'')
    books.run(now=at(10, 1, day=NEXT))
    assert {key.split(":")[2] for _rule, key in books.found()} == {"trade", "refund"}
    assert bill_kinds(books.account) == ["trade", "refund"]


def test_bill_that_does_not_add_up(books: Books) -> None:
    books.bill_days()
    careless("UPDATE channel_bill SET state = 'CORRUPT', last_error = 'rows ≠ summary' WHERE kind = 'refund'")
    books.finds("BILL_CORRUPT", f"{books.account_key}:refund:{DAY}")
    books.mended()


def test_points_differ_from_their_entries(books: Books) -> None:
    adjust_points(
        merchant_id=books.shop.merchant_id,
        user_id="u-lin",
        delta=100,
        business_key="welcome:u-lin",
        reference="welcome",
        now=at(9),
    )
    books.bill_days()
    careless("UPDATE points_account SET balance = 160", tables=("points_account",))
    finding = books.finds("POINTS_DIFFER", "u-lin")
    assert (finding.ours["balance"], finding.theirs["entries_balance"]) == (160, 100)
    books.mended()


def commission(books: Books) -> None:
    """A matured commission of 30.00, with its entries, as the commands would leave it."""
    careless(
        "INSERT INTO commission_account (id, merchant_id, beneficiary, pending_fen, withdrawable_fen, frozen_fen,"
        " withdrawn_fen, version, created_at)"
        " VALUES (%(account)s, %(merchant)s, 'kol-7', 0, 3000, 0, 0, 1, %(at)s)",
        "INSERT INTO commission (id, merchant_id, account_id, order_no, line_no, level, base_fen, amount_fen,"
        " refunded_fen, reversed_fen, hold_until, matured_at, created_at)"
        " VALUES (%(id)s, %(merchant)s, %(account)s, 'Q1', 1, 1, 30000, 3000, 0, 0, %(at)s, %(at)s, %(at)s)",
        "INSERT INTO commission_entry (merchant_id, account_id, commission_id, kind, bucket, delta_fen,"
        " balance_after_fen, business_key, reference, created_at)"
        " VALUES (%(merchant)s, %(account)s, %(id)s, 'accrue', 'withdrawable', 3000, 3000, 'c:1', 'Q1', %(at)s)",
        tables=("commission", "commission_account", "commission_entry"),
        account=new_id(),
        id=new_id(),
        merchant=books.shop.merchant_id,
        at=at(9),
    )
    books.bill_days()
    books.run()
    assert books.found() == set()


def test_commission_differs_from_its_entries(books: Books) -> None:
    commission(books)
    careless("UPDATE commission_account SET withdrawable_fen = 3500", tables=("commission_account",))
    books.finds("COMMISSION_DIFFERS", "kol-7")
    books.mended()


def test_commission_matured_while_a_claim_was_open(books: Books) -> None:
    commission(books)
    careless(
        "INSERT INTO commission_hold (id, merchant_id, commission_id, after_sales_no, frozen_fen, outcome, created_at)"
        " SELECT %(id)s, merchant_id, id, 'AS1', 0, 'open', matured_at - interval '1 day' FROM commission",
        tables=("commission_hold",),
        id=new_id(),
    )
    books.finds("COMMISSION_MATURED_WHILE_HELD", "Q1:1:AS1")
    books.mended()


def test_sales_of_a_day_differ_from_their_entries(books: Books) -> None:
    books.bill_days()
    careless(
        "INSERT INTO sales_day (id, merchant_id, on_date, sku, sold_qty, sold_fen, returned_qty, returned_fen)"
        " VALUES (%(id)s, %(merchant)s, %(day)s, 'TEA-250G', 1, 20000, 0, 0)",
        tables=("sales_day",),
        id=new_id(),
        merchant=books.shop.merchant_id,
        day=DAY,
    )
    books.finds("SALES_DIFFER", f"{DAY}:TEA-250G")
    books.mended()
