"""The payments floor says that a refund of a claim needs a person."""

from datetime import datetime
from uuid import UUID

from aftersales.actors import CHANNEL
from aftersales.claims import get_claim
from aftersales.commands._transition import declare, move
from aftersales.models import Status
from kernel.transactions import unit_of_work

FAIL = declare("fail", event="after_sales.refund_failed", during_dispute=True)


def record_refund_failed(
    *, merchant_id: UUID, after_sales_no: str, refund_no: str, code: str, dead: bool, now: datetime
) -> None:
    """The refund needs a person. After a success, or told twice, it changes nothing. Joins the caller."""
    with unit_of_work(now=now):
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        if claim.status != Status.REFUNDING:
            return
        move(
            FAIL,
            claim,
            expected_version=claim.version,
            by=CHANNEL,
            now=now,
            reason=code,
            evidence={"refund_no": refund_no, "code": code, "dead": dead},
        )
