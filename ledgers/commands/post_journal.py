"""Post one balanced entry to the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors, numbers
from kernel.transactions import unit_of_work
from ledgers.models import JournalEntry, JournalLine


class JournalUnbalanced(errors.Refusal):
    code = "JOURNAL_UNBALANCED"
    status = 422
    message = _("The lines of a journal entry have to sum to zero.")


class JournalKeyReused(errors.Refusal):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    message = _("This business key was used for another journal entry.")


@dataclass(frozen=True)
class Posted:
    entry_id: UUID
    business_key: str
    replayed: bool = False


def post_journal(
    *,
    merchant_id: UUID,
    kind: str,
    business_key: str,
    reference: str,
    lines: Mapping[str, int],
    order_no: str = "",
    posted_at: datetime,
    now: datetime,
) -> Posted:
    """`lines`: account → fen (debit positive, credit negative, none zero, Σ = 0). Joins the caller's transaction.

    The key row comes first, so the same key from two sides at once waits and then replays; the same key with other
    lines → JournalKeyReused. The database checks the sum again at commit. Raises JournalUnbalanced, JournalKeyReused.
    """
    if len(lines) < 2 or sum(lines.values()) != 0 or 0 in lines.values():
        raise JournalUnbalanced(lines=dict(lines))
    with unit_of_work(now=now):
        entry = JournalEntry(
            id=numbers.uuid7(),
            merchant_id=merchant_id,
            kind=kind,
            business_key=business_key,
            reference=reference,
            order_no=order_no,
            posted_at=posted_at,
            created_at=now,
        )
        JournalEntry.objects.bulk_create([entry], ignore_conflicts=True)
        stored = JournalEntry.objects.get(merchant_id=merchant_id, business_key=business_key)
        if stored.id != entry.id:
            known = dict(JournalLine.objects.filter(entry=stored).values_list("account", "amount_fen"))
            if known != dict(lines):
                raise JournalKeyReused(business_key=business_key)
            return Posted(stored.id, business_key, replayed=True)
        JournalLine.objects.bulk_create(
            JournalLine(entry=entry, merchant_id=merchant_id, account=account, amount_fen=amount)
            for account, amount in lines.items()
        )
        return Posted(entry.id, business_key)
