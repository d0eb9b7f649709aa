"""Post many balanced entries to the journal at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors, numbers
from kernel.transactions import unit_of_work
from ledgers.commands.post_journal import JournalKeyReused, JournalUnbalanced
from ledgers.models import JournalEntry, JournalLine

errors.refuse_on_constraint("journal_posts_once", JournalKeyReused)


@dataclass(frozen=True, kw_only=True)
class Posting:
    """What `post_journal` takes, of one entry."""

    merchant_id: UUID
    kind: str
    business_key: str
    reference: str
    lines: Mapping[str, int]
    order_no: str
    posted_at: datetime


@dataclass(frozen=True)
class JournalsPosted:
    entries: int


def post_journals(*, postings: Sequence[Posting], now: datetime) -> JournalsPosted:
    """All entries in two statements, or none: a business key that was used before breaks the whole (`post_journal`, one
    by one, tells a replay from another entry). Joins the caller's transaction; the database checks the sums at commit.
    Raises JournalUnbalanced."""
    for posting in postings:
        if len(posting.lines) < 2 or sum(posting.lines.values()) != 0 or 0 in posting.lines.values():
            raise JournalUnbalanced(lines=dict(posting.lines))
    entries = [
        JournalEntry(
            id=numbers.uuid7(),
            merchant_id=posting.merchant_id,
            kind=posting.kind,
            business_key=posting.business_key,
            reference=posting.reference,
            order_no=posting.order_no,
            posted_at=posting.posted_at,
            created_at=now,
        )
        for posting in postings
    ]
    with unit_of_work(now=now):
        JournalEntry.objects.bulk_create(entries)
        JournalLine.objects.bulk_create(
            JournalLine(entry=entry, merchant_id=entry.merchant_id, account=account, amount_fen=amount)
            for entry, posting in zip(entries, postings, strict=True)
            for account, amount in posting.lines.items()
        )
        return JournalsPosted(len(entries))
