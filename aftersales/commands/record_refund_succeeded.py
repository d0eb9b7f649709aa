"""The payments floor says that money of a claim has arrived."""

from datetime import datetime
from uuid import UUID

from aftersales.actors import CHANNEL
from aftersales.claims import get_claim
from aftersales.commands._finish_refund import finish_refund
from aftersales.funding import refund_requests_of
from kernel.transactions import unit_of_work
from payments.models import RefundRequest


def record_refund_succeeded(
    *, merchant_id: UUID, after_sales_no: str, refund_no: str, amount_fen: int, now: datetime
) -> None:
    """The money is with the buyer: REFUND_SUCCESS once every refund of the claim has arrived. Joins the caller.

    Also from REFUND_FAILED: a late success of the channel is still a success. Told twice, it changes nothing.
    """
    with unit_of_work(now=now):
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        open_requests = refund_requests_of(claim).exclude(status=RefundRequest.Status.SUCCEEDED)
        if open_requests.exists():
            return
        finish_refund(claim.pk, by=CHANNEL, now=now, refund_no=refund_no, amount_fen=amount_fen)
