"""Ask for the rollbacks of a refunded claim that nobody asked for, and take the effect of all that still wait."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from aftersales.claims import get_claim
from aftersales.commands._ask_rollbacks import ask_rollbacks
from aftersales.commands.run_rollback import run_rollback
from aftersales.models import AfterSalesOrder, Rollback, Status
from kernel.errors import Refusal
from kernel.transactions import unit_of_work


class ClaimNotRefunded(Refusal):
    code = "CLAIM_NOT_REFUNDED"
    message = _("Nothing is turned back before the refund has succeeded.")


@dataclass(frozen=True)
class RollbacksCompleted:
    """`asked`: systems whose row was missing; `done`: systems turned back now."""

    after_sales_no: str
    asked: list[str]
    done: list[str]


def complete_rollbacks(*, merchant_id: UUID, after_sales_no: str, now: datetime) -> RollbacksCompleted:
    """Every system's effect is idempotent by the claim's number, so one whose row was lost after its effect turns
    nothing back a second time. Each effect is a transaction of its own: one that fails leaves the others done.

    Raises NotFound, ClaimNotRefunded, and whatever a system's own command raises.
    """
    with unit_of_work(now=now):
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        AfterSalesOrder.objects.select_for_update().get(pk=claim.pk)  # two who ask at once ask once
        if claim.status != Status.REFUND_SUCCESS:
            raise ClaimNotRefunded(after_sales_no=after_sales_no, status=claim.status)
        asked = ask_rollbacks(claim, now=now)
    waiting = Rollback.objects.filter(after_sales=claim, state=Rollback.State.PENDING).order_by("requested_at", "id")
    done = []
    for system in list(waiting.values_list("system", flat=True)):
        run_rollback(merchant_id=merchant_id, after_sales_no=after_sales_no, system=system, now=now)
        done.append(system)
    return RollbacksCompleted(after_sales_no=after_sales_no, asked=asked, done=done)
