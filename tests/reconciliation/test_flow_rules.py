"""The account against our books: each fault planted by hand in the fund-flow bill is found, exactly it, and ends."""

from datetime import timedelta

import pytest

from payments.models import ChannelBill, Payment, RefundAttempt
from reconciliation.models import Finding, ReconciliationRun
from tests.reconciliation.books import DAY, Books, at, careless

NEXT = DAY + timedelta(days=1)


def the_finding(books: Books, rule: str, key: str) -> Finding:
    """Exactly it, and the same one on the next run."""
    books.run()
    assert books.found() == {(rule, key)}
    books.run()
    assert books.found() == {(rule, key)} and Finding.objects.count() == 1
    return Finding.objects.get()


def gone(books: Books) -> None:
    books.run()
    assert books.found() == set() and Finding.objects.get().state == "RESOLVED"


@pytest.fixture
def traded(books: Books) -> Books:
    """300.00 came, 200.00 went back."""
    books.refund(books.sale())
    books.bill_days()
    return books


def number() -> str:
    return RefundAttempt.objects.get().number


def test_honest_account(traded: Books) -> None:
    result = traded.run()
    assert (result.findings_seen, result.items, result.matched) == (0, 4, 4)
    rows = ReconciliationRun.objects.get().totals["flows"]
    assert [(row["kind"], row["ours_fen"], row["theirs_fen"]) for row in rows] == [
        ("opening", None, 1000000),
        ("payment", 30000, 30000),
        ("refund", 20000, 20000),
        ("closing", None, 1010000),
    ]


@pytest.mark.parametrize("kind", ["payment", "refund"])
def test_the_account_did_not_move(traded: Books, kind: str) -> None:
    income = kind == "payment"
    careless(
        "CREATE TEMPORARY TABLE kept AS SELECT * FROM bill_line WHERE kind = 'flow' AND is_income = %(income)s",
        "DELETE FROM bill_line WHERE id IN (SELECT id FROM kept)",
        income=income,
    )
    traded.balance()
    key = f"payment:{Payment.objects.get().trade_no}" if income else f"refund:{number()}"
    finding = the_finding(traded, "FLOW_MISSING", key)
    assert (finding.severity, finding.amount_fen) == ("P0", 30000 if income else 20000)
    careless("INSERT INTO bill_line SELECT * FROM kept", "DROP TABLE kept")
    traded.balance()
    gone(traded)


def test_a_refund_that_nobody_knows(traded: Books) -> None:
    line = traded.move(DAY, trade_no="5030X", reference="BY-HAND-7", fen=700, kind="退款", income=False)
    traded.balance()
    finding = the_finding(traded, "FLOW_NOT_OURS", "refund:BY-HAND-7")
    assert (finding.severity, finding.amount_fen) == ("P0", 700)
    line.delete()
    gone(traded)


def test_a_payment_that_nobody_knows(traded: Books) -> None:
    line = traded.move(DAY, trade_no="4200X", reference="", fen=700, kind="交易", income=True)
    traded.balance()
    the_finding(traded, "FLOW_NOT_OURS", "payment:4200X")
    line.delete()
    gone(traded)


def test_a_refund_that_we_call_closed(books: Books) -> None:
    """The channel said that it would not refund, no refund bill names it, and yet the money left."""
    books.shop.refund(books.claim(books.sale()), to="CLOSED", now=at(14, 30))
    books.bill_days()
    assert books.run().findings_seen == 0
    line = books.move(DAY, trade_no="5030X", reference=number(), fen=20000, kind="退款", income=False)
    books.balance()
    the_finding(books, "FLOW_NOT_OURS", f"refund:{number()}")
    line.delete()
    gone(books)


def test_nobody_is_accused_while_the_trade_bill_is_missing(traded: Books) -> None:
    traded.move(DAY, trade_no="4200X", reference="", fen=700, kind="交易", income=True)
    traded.balance()
    careless("UPDATE channel_bill SET state = 'WAITING' WHERE kind = 'trade'")
    traded.run()
    assert {rule for rule, _key in traded.found()} == {"BILL_MISSING"}


def test_another_amount(traded: Books) -> None:
    careless("UPDATE bill_line SET amount_fen = amount_fen - 5 WHERE kind = 'flow' AND NOT is_income")
    traded.balance()
    assert the_finding(traded, "FLOW_AMOUNT_DIFFERS", f"refund:{number()}").amount_fen == 5
    careless("UPDATE bill_line SET amount_fen = amount_fen + 5 WHERE kind = 'flow' AND NOT is_income")
    traded.balance()
    gone(traded)


def test_missing_in_every_bill_is_found_once(traded: Books) -> None:
    """The refund bill misses it too: that is the finding, and the account does not call it agreed."""
    careless("DELETE FROM bill_line WHERE kind = 'refund' OR kind = 'flow' AND NOT is_income")
    traded.balance()
    the_finding(traded, "REFUND_MISSING_AT_CHANNEL", number())
    rows = {row["kind"]: row for row in ReconciliationRun.objects.get().totals["flows"]}
    assert (rows["refund"]["items"], rows["refund"]["matched"]) == (1, 0)
    traded.mended()


def test_a_voucher_is_no_difference(traded: Books) -> None:
    """The channel's voucher paid a part: trade bill and fund flow agree on what reached the account."""
    careless(
        "UPDATE bill_line SET payer_fen = 29000, voucher_fen = 1000 WHERE kind = 'payment'",
        "UPDATE bill_line SET amount_fen = 29000 WHERE kind = 'flow' AND is_income",
    )
    traded.balance()
    assert traded.run().findings_seen == 0


def test_moved_twice(traded: Books) -> None:
    line = traded.move(DAY, trade_no="5030", reference=number(), fen=20000, kind="退款", income=False)
    traded.balance()
    assert the_finding(traded, "FLOW_TWICE", f"refund:{number()}").theirs["lines"] == 2
    line.delete()
    gone(traded)


def test_moved_again_on_the_next_day(traded: Books) -> None:
    traded.bill_days(NEXT)
    traded.run()
    traded.move(NEXT, trade_no="5030", reference=number(), fen=20000, kind="退款", income=False)
    traded.balance()
    traded.run(NEXT)
    assert traded.found() == {("FLOW_TWICE", f"refund:{number()}")}


def test_something_that_is_no_trade(traded: Books) -> None:
    line = traded.move(DAY, trade_no="T1", reference="T1", fen=5000, kind="企业付款", income=False)
    traded.balance()
    finding = the_finding(traded, "FLOW_OTHER_KIND", f"{traded.account_key}:{DAY}:{line.row_no}")
    assert (finding.severity, finding.theirs["movement"]) == ("P1", "企业付款")
    line.delete()
    gone(traded)


def test_a_withdrawal_is_shown_and_no_finding(traded: Books) -> None:
    traded.move(DAY, trade_no="W1", reference="W1", fen=5000, kind="提现", income=False)
    traded.balance()
    assert traded.run().findings_seen == 0
    row = next(row for row in ReconciliationRun.objects.get().totals["flows"] if row["kind"] == "transfer")
    assert (row["theirs_count"], row["theirs_fen"]) == (1, -5000)


def test_balance_broken_within_the_day(traded: Books) -> None:
    careless("UPDATE bill_line SET balance_fen = balance_fen + 1 WHERE kind = 'flow' AND is_income")
    finding = the_finding(traded, "FLOW_BALANCE_BROKEN", f"{traded.account_key}:{DAY}")
    assert finding.theirs["breaks"] == 1
    traded.balance()
    gone(traded)


def test_order_of_the_rows_is_nothing(traded: Books) -> None:
    """Some bills list the newest movement first."""
    careless("UPDATE bill_line SET row_no = 100 - row_no WHERE kind = 'flow'")
    assert traded.run().findings_seen == 0
    rows = ReconciliationRun.objects.get().totals["flows"]
    assert [row["theirs_fen"] for row in rows if row["kind"] in ("opening", "closing")] == [1000000, 1010000]


def test_balance_broken_over_night(traded: Books) -> None:
    """The next bill begins with less than this one ended: a movement stands in neither. An empty day is no gap."""
    last = NEXT + timedelta(days=1)
    traded.sale(now=at(10, day=last))
    traded.bill_days(last)
    traded.bills["fundflow", NEXT] = empty = traded._bill("fundflow", NEXT)
    ChannelBill.objects.filter(pk=empty.pk).update(state="EMPTY")
    assert {rule for rule, _key in found_on(traded, last)} == set()
    careless("UPDATE bill_line SET balance_fen = balance_fen - 300 WHERE bill_id = %(bill)s", bill=last_bill(last))
    assert found_on(traded, last) == {("FLOW_BALANCE_BROKEN", f"{traded.account_key}:{last}")}
    assert Finding.objects.get().amount_fen == 300
    ChannelBill.objects.filter(pk=empty.pk).update(state="WAITING")
    assert found_on(traded, last) == set()


def last_bill(day) -> object:
    return ChannelBill.objects.get(kind="fundflow", bill_on=day).pk


def found_on(books: Books, day) -> set[tuple[str, str]]:
    books.run(day)
    return books.found()


def test_fees(traded: Books) -> None:
    """0.6 % of 300.00 taken, of 200.00 given back: 0.60 stay. Rounding is no finding, a cent more is."""
    careless(
        "UPDATE bill_line SET fee_yuan = 1.80450 WHERE kind = 'payment'",
        "UPDATE bill_line SET fee_yuan = -1.20000 WHERE kind = 'refund'",
    )
    assert traded.run().findings_seen == 0
    taken = traded.move(DAY, trade_no="F1", reference="F1", fen=180, kind="扣除交易手续费", income=False)
    traded.move(DAY, trade_no="F2", reference="F2", fen=120, kind="交易手续费退还", income=True)
    traded.balance()
    assert traded.run().findings_seen == 0
    row = next(row for row in ReconciliationRun.objects.get().totals["flows"] if row["kind"] == "fee")
    assert (row["ours_fen"], row["theirs_fen"], row["theirs_count"]) == (60, 60, 2)
    careless("UPDATE bill_line SET amount_fen = 190 WHERE id = %(id)s", id=taken.pk)
    traded.balance()
    finding = the_finding(traded, "FLOW_FEES_DIFFER", f"{traded.account_key}:{DAY}")
    assert (finding.severity, finding.amount_fen) == ("P2", 10)
    careless("UPDATE bill_line SET amount_fen = 180 WHERE id = %(id)s", id=taken.pk)
    traded.balance()
    gone(traded)


def test_without_its_bill_the_account_is_not_judged(books: Books) -> None:
    books.refund(books.sale())
    books.bill_days()
    careless("DELETE FROM bill_line WHERE kind = 'flow'", "DELETE FROM channel_bill WHERE kind = 'fundflow'")
    result = books.run()
    assert books.found() == {("BILL_MISSING", f"{books.account_key}:fundflow:{DAY}")}
    assert (result.items, result.matched) == (2, 2)


def test_over_midnight(books: Books) -> None:
    """The money leaves when the refund is accepted, at 23:58; that it is done on the next day moves nothing."""
    claim = books.claim(books.sale(), now=at(23, 40))
    books.shop.refund(claim, now=at(23, 58), done_at=at(0, 3, day=NEXT))
    books.bill_days(DAY, NEXT)
    for day, moved in ((DAY, 10000), (NEXT, 0)):
        assert books.run(day).findings_seen == 0
        rows = ReconciliationRun.objects.get(on_date=day).totals["flows"]
        assert sum(row["theirs_fen"] * (1, -1)[row["kind"] == "refund"] for row in rows if row["items"]) == moved
