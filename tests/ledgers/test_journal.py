import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from kernel import inbox, outbox
from kernel.models import InboxMessage
from ledgers.checks import journal_that_differs
from ledgers.commands.post_journal import JournalKeyReused, JournalUnbalanced, post_journal
from ledgers.models import JournalEntry, JournalLine
from tests.ledgers.test_stock import race


def post(merchant, now, *, key="payment:1", lines=None):
    return post_journal(
        merchant_id=merchant.pk,
        kind="payment",
        business_key=key,
        reference="Q1P1",
        order_no="Q1",
        lines=lines or {"channel_clearing:wechat": 26000, "sales": -26000},
        posted_at=now,
        now=now,
    )


def written():
    return JournalEntry.objects.count(), sorted(JournalLine.objects.values_list("account", "amount_fen"))


def test_posts_both_sides(merchant, now):
    post(merchant, now)
    assert written() == (1, [("channel_clearing:wechat", 26000), ("sales", -26000)])
    assert journal_that_differs() == []


def test_the_same_key_is_a_replay_and_other_lines_are_refused(merchant, now):
    first = post(merchant, now)
    again = post(merchant, now)
    assert (again.replayed, again.entry_id) == (True, first.entry_id)
    with pytest.raises(JournalKeyReused):
        post(merchant, now, lines={"channel_clearing:wechat": 1, "sales": -1})
    assert written()[0] == 1


@pytest.mark.parametrize("lines", [{"a": 1, "b": -2}, {"a": 0, "b": 0}, {"a": 5}, {"a": 5, "b": -5, "c": 0}])
def test_what_does_not_balance_is_refused(merchant, now, lines):
    with pytest.raises(JournalUnbalanced):
        post(merchant, now, lines=lines)
    assert written() == (0, [])


def test_the_same_posting_from_four_sides_at_once(merchant, now):
    results = race(*[lambda: post(merchant, now)] * 4)
    assert sorted(each.replayed for each in results) == [False, True, True, True], results
    assert written()[0] == 1


def test_the_database_refuses_an_entry_that_does_not_balance(merchant, now):
    entry = {"merchant": merchant, "kind": "payment", "reference": "x", "posted_at": now, "created_at": now}

    def by_hand(key, *amounts):
        with transaction.atomic():
            made = JournalEntry.objects.create(business_key=key, **entry)
            for number, amount in enumerate(amounts):
                JournalLine.objects.create(entry=made, merchant=merchant, account=f"a{number}", amount_fen=amount)

    for number, amounts in enumerate([(), (5,), (5, -4), (5, 5)]):
        with pytest.raises(IntegrityError, match="journal entry"):
            by_hand(f"bad:{number}", *amounts)
    by_hand("good", 5, -5)
    with pytest.raises(IntegrityError, match="journal entry"), transaction.atomic():
        JournalLine.objects.create(
            entry=JournalEntry.objects.get(business_key="good"), merchant=merchant, account="late", amount_fen=1
        )
    assert written()[0] == 1


@pytest.mark.parametrize("table", ["journal_entry", "journal_line", "stock_entry"])
@pytest.mark.parametrize("sql", ["UPDATE {0} SET merchant_id = merchant_id", "DELETE FROM {0}", "TRUNCATE {0} CASCADE"])
def test_the_books_only_grow(merchant, now, table, sql):
    from ledgers.commands.adjust_stock import adjust_stock

    post(merchant, now)
    adjust_stock(merchant_id=merchant.pk, sku="TEA", delta=1, business_key="c", reference="c", now=now)
    with pytest.raises(DatabaseError, match="pgtrigger: Cannot"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql.format(table))


def payment_succeeded(merchant, now, **other):
    said = {
        "payment_id": "018f0000-0000-7000-8000-000000000001",
        "order_no": "Q1",
        "out_trade_no": "Q1P1",
        "kind": "order",
        "channel": "wechat",
        "amount_fen": 26000,
        "paid_at": now.isoformat(),
    }
    event = outbox.append(
        name="payment.succeeded", merchant_id=merchant.pk, subject="Q1", payload={**said, **other}, now=now
    )
    for _ in range(3):
        inbox.deliver(event.id, now=now)
    return event


def refund_succeeded(merchant, now, **other):
    said = {
        "refund_request_id": "018f0000-0000-7000-8000-000000000002",
        "order_no": "Q1",
        "refund_no": "AS1-0",
        "payment_kind": "order",
        "channel": "wechat",
        "amount_fen": 17167,
        "succeeded_at": now.isoformat(),
    }
    event = outbox.append(
        name="refund.succeeded", merchant_id=merchant.pk, subject="AS1", payload={**said, **other}, now=now
    )
    for _ in range(3):
        inbox.deliver(event.id, now=now)
    return event


def ledger_messages():
    return list(InboxMessage.objects.filter(consumer__startswith="ledgers.").values_list("state", flat=True))


def test_payment_and_refund_are_posted_once_each(merchant, now):
    payment_succeeded(merchant, now)
    refund_succeeded(merchant, now)
    assert written() == (
        2,
        [
            ("channel_clearing:wechat", -17167),
            ("channel_clearing:wechat", 26000),
            ("refunds", 17167),
            ("sales", -26000),
        ],
    )
    assert set(ledger_messages()) == {"DONE"}


def test_a_second_charge_is_never_sales(merchant, now):
    payment_succeeded(merchant, now, kind="extra")
    refund_succeeded(merchant, now, payment_kind="extra", amount_fen=26000)
    assert written()[1] == [
        ("channel_clearing:wechat", -26000),
        ("channel_clearing:wechat", 26000),
        ("unclaimed", -26000),
        ("unclaimed", 26000),
    ]


def test_nothing_to_pay_posts_nothing(merchant, now):
    payment_succeeded(merchant, now, amount_fen=0, kind="none", channel="none")
    assert written() == (0, [])
    assert set(ledger_messages()) == {"DONE"}


def test_a_page_of_payments_is_posted_at_once_and_a_known_one_stops_none(merchant, now):
    """One of them was posted before (by a repair, say): the page falls back to one by one."""
    for known in (False, True):
        packed = b""
        for number in range(3):
            payment_id = f"018f0000-0000-7000-8000-00000000{known:d}{number:03d}"
            if known and number == 1:
                post(merchant, now, key=f"payment:{payment_id}", lines={
                    "channel_clearing:wechat": 26000, "sales": -26000})  # fmt: skip
            said = {
                "payment_id": payment_id,
                "order_no": f"Q{number}",
                "out_trade_no": f"Q{number}P1",
                "kind": "order",
                "channel": "wechat",
                "amount_fen": 26000,
                "paid_at": now.isoformat(),
            }
            event = outbox.append(
                name="payment.succeeded", merchant_id=merchant.pk, subject=said["order_no"], payload=said, now=now
            )
            packed += event.id.bytes
        inbox.deliver_page("payment.succeeded", packed, now=now)
        inbox.deliver_page("payment.succeeded", packed, now=now)
    assert written()[0] == 6
    assert (set(ledger_messages()), len(ledger_messages())) == ({"DONE"}, 6)
