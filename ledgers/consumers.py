"""What the ledgers do about events: every fen that moved at a channel is posted once."""

from __future__ import annotations

from datetime import datetime

from kernel import inbox
from ledgers.commands.post_journal import post_journal
from ledgers.commands.post_journals import Posting, post_journals
from ledgers.models import JournalEntry

SALES = "sales"
REFUNDS = "refunds"
UNCLAIMED = "unclaimed"
"""Money that came twice: owed back, never sales."""


def clearing(channel: str) -> str:
    """What a channel owes us: debited by payments, credited by refunds."""
    return f"channel_clearing:{channel}"


@inbox.page_consumer("payment.succeeded", name="ledgers.post_payment")
def post_payments(page: inbox.Page) -> None:
    """Debit the channel, credit sales (or `unclaimed` for a second charge). A payment of 0 fen posts nothing."""
    _post([_of_payment(event) for event in page.events() if int(event.payload["amount_fen"])], page)


@inbox.page_consumer("refund.succeeded", name="ledgers.post_refund")
def post_refunds(page: inbox.Page) -> None:
    """Debit refunds (or `unclaimed`), credit the channel that paid."""
    _post([_of_refund(event) for event in page.events()], page)


def _post(postings: list[Posting], page: inbox.Page) -> None:
    if len(postings) > 1:
        post_journals(postings=postings, now=page.now)
    for posting in postings if len(postings) == 1 else ():
        post_journal(**vars(posting), now=page.now)


def _of_payment(event: inbox.Event) -> Posting:
    said = event.payload
    amount_fen = int(said["amount_fen"])
    return Posting(
        merchant_id=event.merchant_id,
        kind=JournalEntry.Kind.PAYMENT,
        business_key=f"payment:{said['payment_id']}",
        reference=said["out_trade_no"],
        order_no=said["order_no"],
        lines={
            clearing(said["channel"]): amount_fen,
            (UNCLAIMED if said["kind"] == "extra" else SALES): -amount_fen,
        },
        posted_at=datetime.fromisoformat(said["paid_at"]),
    )


def _of_refund(event: inbox.Event) -> Posting:
    said = event.payload
    amount_fen = int(said["amount_fen"])
    return Posting(
        merchant_id=event.merchant_id,
        kind=JournalEntry.Kind.REFUND,
        business_key=f"refund:{said['refund_request_id']}",
        reference=said["refund_no"],
        order_no=said["order_no"],
        lines={
            (UNCLAIMED if said["payment_kind"] == "extra" else REFUNDS): amount_fen,
            clearing(said["channel"]): -amount_fen,
        },
        posted_at=datetime.fromisoformat(said["succeeded_at"]),
    )
