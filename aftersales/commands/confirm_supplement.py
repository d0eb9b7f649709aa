"""The supplement is paid: the merchant may send the replacement. Too late, it goes back."""

from datetime import datetime
from uuid import UUID

from aftersales.actors import CHANNEL
from aftersales.claims import deadline
from aftersales.commands._transition import declare, move
from aftersales.commands.convert_to_refund import refund_supplement
from aftersales.models import AfterSalesOrder, Status
from kernel.transactions import unit_of_work
from payments.models import Payment

CONFIRM = declare("confirm_supplement", event="after_sales.supplement_paid", during_dispute=True)


def confirm_supplement(*, payment_id: UUID, now: datetime) -> None:
    """WAIT_BUYER_PAY → WAIT_MERCHANT_SHIP; told twice it changes nothing. A claim that no longer waits sends the money
    back by its trade number, once. Joins the caller's transaction."""
    with unit_of_work(now=now):
        payment = Payment.objects.get(pk=payment_id)
        claim = AfterSalesOrder.objects.select_related("merchant").get(
            merchant_id=payment.merchant_id, after_sales_no=payment.order_no
        )
        if claim.status == Status.WAIT_BUYER_PAY:
            move(
                CONFIRM,
                claim,
                expected_version=claim.version,
                by=CHANNEL,
                now=now,
                due_at=deadline(claim.merchant, Status.WAIT_MERCHANT_SHIP, now=now),
                evidence={"out_trade_no": payment.out_trade_no, "amount_fen": payment.amount_fen},
            )
        elif not claim.log.filter(command="confirm_supplement").exists():
            refund_supplement(payment, now=now)
