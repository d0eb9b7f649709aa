"""No replacement after all: the goods are here, so the money goes back."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.claims import get_claim
from aftersales.commands._start_refund import AMOUNTS, start_refund
from aftersales.commands._transition import declare, why_not
from aftersales.models import AfterSalesOrder, Status, Type
from aftersales.settlement import Ask, settle
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from ledgers.commands.release_stock import release_stock
from ledgers.models import StockEntry
from payments.commands.close_payment import close_payment
from payments.commands.request_refund import request_refund
from payments.models import Payment, RefundRequest

CONVERT = declare("convert_to_refund", event="after_sales.turned_into_refund", changes=AMOUNTS)
GIVE_UP = declare("give_up_supplement", event="after_sales.turned_into_refund", changes=AMOUNTS)


@dataclass(frozen=True)
class Converted:
    after_sales_no: str
    status: str
    version: int
    goods_fen: int | None
    freight_fen: int | None
    replayed: bool = False


def convert_to_refund(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    reason: str,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> Converted:
    """Type 3, stock gone (WAIT_MERCHANT_SHIP) or supplement not paid (WAIT_BUYER_PAY) → REFUNDING.

    A supplement that was paid goes back by itself as well. Raises NotFound, VersionConflict, IllegalTransition,
    InArbitration, RefundExceedsPaid.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, Converted, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        if claim.version != expected_version:
            raise why_not(claim.pk, expected_version=expected_version)
        turn_into_refund(claim, by=by, reason=reason, now=now)
        now_is = AfterSalesOrder.objects.get(pk=claim.pk)
        result = Converted(
            after_sales_no=after_sales_no,
            status=str(now_is.status),
            version=now_is.version,
            goods_fen=now_is.approved_goods_fen,
            freight_fen=now_is.approved_freight_fen,
        )
        idempotency.finish(key, result)
        return result


def turn_into_refund(claim: AfterSalesOrder, *, by: By, reason: str, now: datetime) -> None:
    """Refund what the accepted units are worth, free the replacement, send a paid supplement back. Joins the caller."""
    claim = get_claim(merchant_id=claim.merchant_id, after_sales_no=claim.after_sales_no)
    edge = GIVE_UP if claim.status == Status.WAIT_BUYER_PAY else CONVERT
    start_refund(
        edge, claim, settle(claim, Ask()), expected_version=claim.version, by=by, now=now, reason=reason,
        liability_reason=claim.liability_reason,
    )  # fmt: skip
    send_supplement_back(claim, now=now)
    free_replacement(claim, now=now)


def send_supplement_back(claim: AfterSalesOrder, *, now: datetime) -> None:
    """Refund a supplement that was paid, close one that nobody began to pay."""
    payment = Payment.objects.filter(
        merchant_id=claim.merchant_id, order_no=claim.after_sales_no, kind=Payment.Kind.SUPPLEMENT
    ).first()
    if payment is None:
        return
    if payment.status == Payment.Status.PAID:
        refund_supplement(payment, now=now)
    elif payment.status == Payment.Status.CREATED:
        close_payment(payment_id=payment.pk, now=now)


def refund_supplement(payment: Payment, *, now: datetime) -> None:
    """A supplement nobody needs any more is a charge that has to go back, by its own trade number."""
    request_refund(
        merchant_id=payment.merchant_id,
        payment_id=payment.pk,
        owner_kind=RefundRequest.OwnerKind.ORDER_PAYMENT,
        owner_no=payment.trade_no,
        amount_fen=payment.amount_fen,
        reason="exchange_supplement",
        now=now,
    )


def free_replacement(claim: AfterSalesOrder, *, now: datetime) -> None:
    """The pieces set aside for an exchange or a reship may be sold again."""
    reserved = f"{claim.after_sales_no}:replacement"
    moved = StockEntry.objects.filter(
        merchant_id=claim.merchant_id, business_key__in=[reserved, f"{reserved}:out"]
    ).values_list("business_key", flat=True)
    if set(moved) == {reserved}:
        release_stock(
            merchant_id=claim.merchant_id,
            sku=claim.exchange.sku if claim.type == Type.EXCHANGE else claim.line.sku,
            qty=claim.accepted_qty or claim.qty,
            business_key=f"{reserved}:freed",
            reference=claim.after_sales_no,
            now=now,
        )
