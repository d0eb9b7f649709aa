"""The supplement was not paid in time: ask the channel, close there, and only then refund the goods."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import SYSTEM
from aftersales.claims import get_claim
from aftersales.commands.convert_to_refund import turn_into_refund
from aftersales.commands.settle_supplement import settle_supplement
from aftersales.models import Status
from kernel.transactions import unit_of_work
from orders.tender import Answer, ask_and_close
from payments.commands.close_payment import close_payment
from payments.models import Payment


@dataclass(frozen=True)
class SupplementExpired:
    """`outcome`: refunding, paid (it had been paid after all) or unknown (asked again later)."""

    outcome: str


def expire_supplement(*, merchant_id: UUID, after_sales_no: str, now: datetime) -> SupplementExpired:
    """WAIT_BUYER_PAY → REFUNDING once nobody can pay any more. Calls the channel: never inside a transaction."""
    claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
    if claim.status != Status.WAIT_BUYER_PAY:
        return SupplementExpired("unknown")
    payment = Payment.objects.select_related("account").get(
        merchant_id=merchant_id, out_trade_no=claim.exchange.supplement_no
    )
    heard = ask_and_close(payment, now=now)
    if heard.answer is Answer.PAID_EQUAL and heard.fact is not None:
        settle_supplement(payment_id=payment.pk, fact=heard.fact, now=now)
        return SupplementExpired("paid")
    if heard.answer is not Answer.OVER:
        return SupplementExpired("unknown")
    with unit_of_work(now=now):
        turn_into_refund(claim, by=SYSTEM, reason="supplement not paid", now=now)
        close_payment(payment_id=payment.pk, now=now, prepay_answered=True)
    return SupplementExpired("refunding")
