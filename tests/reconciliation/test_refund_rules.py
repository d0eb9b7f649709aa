"""Refunds three ways: each fault planted by hand is found, exactly it, and is gone when it is mended."""

from datetime import timedelta

import pytest

from demo.catalogue import NUTS, user_id
from kernel import inbox
from ledgers.models import JournalEntry
from payments.models import BillLine, RefundAttempt
from reconciliation.models import Finding, ReconciliationRun, TimingItem
from tests.reconciliation.books import DAY, Books, at, careless, new_id

NEXT = DAY + timedelta(days=1)


def test_honest_books(books: Books) -> None:
    order = books.sale(coupon=True)
    tea, nut = books.refund(order), books.refund(order, line_no=1, now=at(16))
    books.bill_days()
    result = books.run()
    assert (result.items, result.matched, result.findings_seen, result.state) == (6, 6, 0, "DONE")
    run = ReconciliationRun.objects.get(pk=result.run_id)
    assert run.totals["refunds"] == [
        {
            "merchant": "yunwu",
            "channel": "wechat",
            "items": 2,
            "matched": 2,
            "ours_count": 2,
            "ours_fen": 26000,
            "claims_count": 2,
            "claims_fen": 26000,
            "orders_count": 0,
            "orders_fen": 0,
            "theirs_count": 2,
            "theirs_fen": 26000,
            "booked_count": 2,
            "booked_fen": 26000,
            "timing": 0,
        }
    ]
    assert tea.approved_total_fen + nut.approved_total_fen == 26000


def test_refunded_twice(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    first = books.attempt(claim)
    careless(
        "INSERT INTO refund_attempt SELECT (jsonb_populate_record(a, jsonb_build_object("
        " 'id', %(id)s::uuid, 'seq', 1, 'number', %(number)s::text))).* FROM refund_attempt a WHERE a.id = %(first)s",
        id=new_id(),
        number=f"{claim.after_sales_no}-1",
        first=first.pk,
    )
    second = books.bill_refund(RefundAttempt.objects.get(number=f"{claim.after_sales_no}-1"))
    finding = books.finds("REFUND_TWICE", claim.after_sales_no)
    assert finding.severity == "P0" and finding.ours["successes"] == 2
    assert RefundAttempt.objects.filter(request=first.request).count() == 2
    second.delete()
    BillLine.objects.filter(reference=second.refund_no).delete()
    books.mended()


def test_listed_twice_by_the_channel(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    again = books.bill_refund(books.attempt(claim), moves=False)
    books.finds("REFUND_TWICE", claim.after_sales_no)
    again.delete()
    books.run()
    assert books.found() == set()


def test_refund_we_never_asked_for(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    line = books.bill_refund(books.attempt(claim), refund_no="BY-HAND-1", amount_fen=500, moves=False)
    finding = books.finds("REFUND_MISSING_HERE", "BY-HAND-1")
    assert (finding.severity, finding.amount_fen, finding.theirs["amount_fen"]) == ("P0", 500, 500)
    line.delete()
    books.run()
    assert Finding.objects.get().state == "RESOLVED"


def test_amount_differs(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    careless("UPDATE bill_line SET amount_fen = amount_fen + 1 WHERE kind = 'refund'")
    number = f"{claim.after_sales_no}-0"
    finding = books.finds("REFUND_AMOUNT_DIFFERS", number)
    assert finding.amount_fen == 1 and finding.ours["amount_fen"] + 1 == finding.theirs["amount_fen"]
    careless("UPDATE bill_line SET amount_fen = amount_fen - 1 WHERE kind = 'refund'")
    books.run()
    assert books.found() == set()


def test_missing_at_the_channel(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    careless("DELETE FROM bill_line WHERE kind = 'refund'")
    books.finds("REFUND_MISSING_AT_CHANNEL", f"{claim.after_sales_no}-0")
    books.mended()


def test_absence_is_not_judged_without_the_bill(books: Books) -> None:
    """No bill of the day: nothing is said about the refund, and the missing bill is its own finding."""
    books.refund(books.sale())
    books.run()
    assert {rule for rule, _key in books.found()} == {"BILL_MISSING"}


def test_closed_at_the_channel_but_success_here(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    careless("UPDATE bill_line SET refund_state = 'FAIL' WHERE kind = 'refund'")
    books.finds("REFUND_STATUS_DIFFERS", f"{claim.after_sales_no}-0")
    books.mended()


def test_booked_but_not_made(books: Books) -> None:
    books.refund(books.sale())
    books.bill_days()
    entry = new_id()
    careless(
        "INSERT INTO journal_entry (id, merchant_id, kind, business_key, reference, order_no, posted_at, created_at)"
        " VALUES (%(id)s, %(merchant)s, 'refund', 'refund:forged', 'AS-FORGED-0', '', %(at)s, %(at)s)",
        "INSERT INTO journal_line (entry_id, merchant_id, account, amount_fen)"
        " VALUES (%(id)s, %(merchant)s, 'refunds', 700), (%(id)s, %(merchant)s, 'channel_clearing:wechat', -700)",
        id=entry,
        merchant=books.shop.merchant_id,
        at=at(15),
    )
    finding = books.finds("REFUND_BOOKED_NOT_MADE", "AS-FORGED-0")
    assert finding.amount_fen == 700
    books.mended()


def test_booked_with_another_amount(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    careless(
        "UPDATE journal_line SET amount_fen = amount_fen + sign(amount_fen)::bigint * 9"
        " WHERE entry_id IN (SELECT id FROM journal_entry WHERE kind = 'refund')",
        tables=("journal_line",),
    )
    finding = books.finds("REFUND_BOOKED_WRONG", f"{claim.after_sales_no}-0")
    assert finding.amount_fen == 9
    books.mended()


def test_not_booked(books: Books) -> None:
    """The booking's event was lost: the repair hands it over again, and the rule sees nothing any more."""
    claim = books.refund(books.sale())
    books.bill_days()
    careless(
        "DELETE FROM journal_line WHERE entry_id IN (SELECT id FROM journal_entry WHERE kind = 'refund')",
        "DELETE FROM journal_entry WHERE kind = 'refund'",
        "DELETE FROM inbox_message WHERE consumer = 'ledgers.post_refund'",
        tables=("journal_line", "journal_entry"),
    )
    finding = books.finds("REFUND_NOT_BOOKED", f"{claim.after_sales_no}-0")
    books.repaired(finding)
    assert JournalEntry.objects.filter(kind="refund").count() == 1


def test_another_amount_than_approved(books: Books) -> None:
    claim = books.refund(books.sale())
    books.bill_days()
    careless(
        "UPDATE after_sales_order SET approved_goods_fen = approved_goods_fen - 100",
        tables=("after_sales_order",),
    )
    finding = books.finds("REFUND_NOT_AS_APPROVED", f"{claim.after_sales_no}-0")
    assert finding.amount_fen == 100
    books.mended()


def test_claim_that_did_not_hear(books: Books) -> None:
    """The refund succeeded and was booked, its event reached the journal but not after-sales."""
    claim = books.claim(books.sale())
    real = inbox.consumers_of

    def deaf(name: str) -> list[inbox.Consumer]:
        return [each for each in real(name) if each.name != "aftersales.record_refund_succeeded"]

    inbox.consumers_of = deaf
    try:
        books.shop.refund(claim, now=at(14, 30))
    finally:
        inbox.consumers_of = real
    books.bill_days()
    finding = books.finds("CLAIM_BEHIND_REFUND", f"{claim.after_sales_no}-0")
    books.repaired(finding)
    assert books.shop.read_claim(claim.after_sales_no).status == "REFUND_SUCCESS"


def test_claim_without_a_refund(books: Books) -> None:
    """Somebody wrote "refunded" on a claim whose money never moved, carefully, with its history."""
    claim = books.claim(books.sale())
    books.bill_days()
    careless(
        "INSERT INTO after_sales_log (after_sales_id, type, command, from_version, from_status, to_version, to_status,"
        " actor_kind, actor_id, reason, evidence, created_at) SELECT id, type, 'succeed', version, status,"
        " version + 1, 'REFUND_SUCCESS', 'system', '', '', '{}', %(at)s FROM after_sales_order",
        "UPDATE after_sales_order SET status = 'REFUND_SUCCESS', version = version + 1, finished_at = %(at)s,"
        " due_at = NULL",
        "INSERT INTO after_sales_rollback (id, merchant_id, after_sales_id, system, state, event_id, result,"
        " requested_at, done_at) SELECT gen_random_uuid(), merchant_id, id, system, 'DONE', gen_random_uuid(), '{}',"
        " %(at)s, %(at)s FROM after_sales_order, unnest(ARRAY['stock', 'coupon', 'points', 'commission', 'sales'])"
        " AS s(system)",
        tables=("after_sales_order", "after_sales_log"),
        at=at(15),
    )
    books.finds("CLAIM_WITHOUT_REFUND", claim.after_sales_no)
    books.mended()


def test_over_midnight_is_a_timing_item(books: Books) -> None:
    """R15. Accepted 23:58, done 00:03: on both days all agree, and each day's totals count its own side."""
    claim = books.claim(books.sale(), now=at(23, 40))
    books.shop.refund(claim, now=at(23, 58), done_at=at(0, 3, day=NEXT))
    books.bill_days(DAY, NEXT)
    first, second = books.run(), books.run(NEXT)
    assert (first.timing, second.timing, first.findings_seen, second.findings_seen) == (1, 1, 0, 0)
    assert first.matched == first.items and second.matched == second.items
    totals = [ReconciliationRun.objects.get(on_date=day).totals["refunds"][0] for day in (DAY, NEXT)]
    assert [(row["ours_count"], row["theirs_count"]) for row in totals] == [(0, 1), (1, 0)]
    item = TimingItem.objects.get(run__on_date=DAY)
    assert item.theirs["state"] == "PROCESSING" and item.settled_at == at(0, 3, day=NEXT)


def test_a_refund_of_nothing_has_no_channel_side(books: Books) -> None:
    goods = NUTS.goods
    free = goods["vinegar"].line(line_discount_fen=goods["vinegar"].price_fen)
    order = books.shop.buy(user_id("wang"), [free, goods["tea"].line()], now=at(10))
    assert books.claim(order, line_no=1).status == "REFUND_SUCCESS"
    books.bill_days()
    result = books.run()
    assert books.found() == set() and result.matched == result.items
    rows = ReconciliationRun.objects.get().totals["refunds"]
    assert [(row["channel"], row["ours_count"], row["ours_fen"]) for row in rows] == [("zero", 1, 0)]


@pytest.mark.parametrize("times", [2, 3])
def test_killed_and_run_again(books: Books, times: int) -> None:
    """A run that stops anywhere is simply run again: the same rows, no second finding."""
    from reconciliation.commands import run_reconciliation as module

    claim = books.refund(books.sale())
    books.bill_days()
    careless("DELETE FROM bill_line WHERE kind = 'refund'")
    real, calls = module.record_findings, []

    def dies(**arguments):
        calls.append(arguments["rule"].code)
        if len(calls) == 5 * times:
            raise KeyboardInterrupt
        return real(**arguments)

    module.record_findings = dies
    try:
        with pytest.raises(KeyboardInterrupt):
            books.run()
    finally:
        module.record_findings = real
    assert ReconciliationRun.objects.get().state == "RUNNING"
    assert books.run().state == "DONE"
    assert books.found() == {("REFUND_MISSING_AT_CHANNEL", f"{claim.after_sales_no}-0")}
    assert Finding.objects.get().times_opened == 1
    assert ReconciliationRun.objects.get().tries == 2
