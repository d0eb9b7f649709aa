"""Give a rollback that ran out of tries its tries back, or ask for one that never was: a person decided so."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from aftersales.claims import get_claim
from aftersales.commands._ask_rollbacks import ask_rollbacks
from aftersales.models import AfterSalesOrder, Rollback, Status
from kernel import inbox
from kernel.errors import Refusal
from kernel.models import InboxMessage
from kernel.transactions import unit_of_work


class RollbackNotDead(Refusal):
    code = "ROLLBACK_NOT_DEAD"
    message = _("Nothing of this claim waits for a person: it is done or still being tried.")


@dataclass(frozen=True)
class RollbacksRetried:
    after_sales_no: str
    systems: list[str]


def retry_rollback(*, merchant_id: UUID, after_sales_no: str, now: datetime) -> RollbacksRetried:
    """Wake every dead rollback of a refunded claim, and ask for those whose row is missing (a table that was edited or
    restored). Raises NotFound, RollbackNotDead (nothing waits for a person)."""
    with unit_of_work(now=now):
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        AfterSalesOrder.objects.select_for_update().get(pk=claim.pk)
        waiting = {row.event_id: row.system for row in claim.rollbacks.filter(state=Rollback.State.PENDING)}
        dead = InboxMessage.objects.filter(event_id__in=waiting, state=InboxMessage.State.DEAD)
        revived = [waiting[message.event_id] for message in list(dead) if inbox.revive(message.pk, now=now)]
        if claim.status == Status.REFUND_SUCCESS:
            revived += ask_rollbacks(claim, now=now)
        if not revived:
            raise RollbackNotDead(after_sales_no=after_sales_no)
        return RollbacksRetried(after_sales_no=after_sales_no, systems=sorted(revived))
