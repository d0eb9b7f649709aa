"""Payments, item by item: each fault planted by hand is found, exactly it."""

from datetime import timedelta

from ledgers.models import JournalEntry
from payments.models import BillLine, Payment
from tests.reconciliation.books import DAY, Books, at, careless, new_id

NEXT = DAY + timedelta(days=1)


def paid(books: Books) -> Payment:
    books.sale()
    books.bill_days()
    return Payment.objects.get()


def test_payment_we_never_asked_for(books: Books) -> None:
    payment = paid(books)
    line = books.bill_payment(payment, trade_no="4200SECOND", amount_fen=30000, moves=False)
    finding = books.finds("PAYMENT_MISSING_HERE", "4200SECOND")
    assert finding.severity == "P0" and finding.amount_fen == 30000
    line.delete()
    books.mended()


def test_paid_at_the_channel_not_here(books: Books) -> None:
    order = books.sale(pay=False)
    payment = books.shop.place(order, now=at(10, 2))
    books.bill_days()
    books.bill_line(
        "trade", DAY, kind="payment", out_trade_no=payment.out_trade_no, trade_no="4200HEARD", amount_fen=30000
    )
    books.move(DAY, trade_no="4200HEARD", reference=payment.out_trade_no, fen=30000, kind="交易", income=True)
    books.balance()
    finding = books.finds("PAYMENT_NOT_RECORDED", "4200HEARD")
    assert finding.ours["status"] in ("CREATED", "AWAITING")
    BillLine.objects.all().delete()  # the channel is asked for real in test_with_the_channel
    books.mended()


def test_amount_differs(books: Books) -> None:
    payment = paid(books)
    careless("UPDATE bill_line SET amount_fen = amount_fen - 30 WHERE kind = 'payment'")
    assert books.finds("PAYMENT_AMOUNT_DIFFERS", payment.trade_no).amount_fen == 30
    books.mended()


def test_listed_twice(books: Books) -> None:
    payment = paid(books)
    line = books.bill_payment(payment, moves=False)
    books.finds("PAYMENT_TWICE_IN_BILL", payment.trade_no)
    line.delete()
    books.mended()


def test_missing_at_the_channel(books: Books) -> None:
    payment = paid(books)
    careless("DELETE FROM bill_line")
    books.finds("PAYMENT_MISSING_AT_CHANNEL", payment.trade_no)
    books.mended()


def test_booked_with_another_amount(books: Books) -> None:
    payment = paid(books)
    careless(
        "UPDATE journal_line SET amount_fen = amount_fen + sign(amount_fen)::bigint * 11", tables=("journal_line",)
    )
    assert books.finds("PAYMENT_BOOKED_WRONG", payment.trade_no).amount_fen == 11
    books.mended()


def test_booked_but_not_made(books: Books) -> None:
    paid(books)
    careless(
        "INSERT INTO journal_entry (id, merchant_id, kind, business_key, reference, order_no, posted_at, created_at)"
        " VALUES (%(id)s, %(merchant)s, 'payment', 'payment:forged', 'Q-FORGED', '', %(at)s, %(at)s)",
        "INSERT INTO journal_line (entry_id, merchant_id, account, amount_fen)"
        " VALUES (%(id)s, %(merchant)s, 'channel_clearing:wechat', 700), (%(id)s, %(merchant)s, 'sales', -700)",
        id=new_id(),
        merchant=books.shop.merchant_id,
        at=at(15),
    )
    books.finds("PAYMENT_BOOKED_NOT_MADE", "payment:forged")
    books.mended()


def test_not_booked(books: Books) -> None:
    payment = paid(books)
    careless(
        "DELETE FROM journal_line",
        "DELETE FROM journal_entry",
        "DELETE FROM inbox_message WHERE consumer = 'ledgers.post_payment'",
        tables=("journal_line", "journal_entry"),
    )
    finding = books.finds("PAYMENT_NOT_BOOKED", payment.trade_no)
    books.repaired(finding)
    assert JournalEntry.objects.count() == 1


def test_on_the_other_side_of_midnight(books: Books) -> None:
    """The channel's clock says 00:00:01, ours heard 23:59:59: both bills are looked at, nothing is wrong."""
    books.sale(now=at(23, 57))
    books.bill_days(DAY, NEXT)
    payment = Payment.objects.get()
    careless("DELETE FROM bill_line")
    books.bill_line(
        "trade",
        NEXT,
        kind="payment",
        out_trade_no=payment.out_trade_no,
        trade_no=payment.trade_no,
        amount_fen=payment.amount_fen,
    )
    books.move(
        NEXT,
        trade_no=payment.trade_no,
        reference=payment.out_trade_no,
        fen=payment.amount_fen,
        kind="交易",
        income=True,
    )
    books.balance()
    first, second = books.run(), books.run(NEXT)
    assert books.found() == set()
    assert (first.timing, second.timing) == (1, 1)
