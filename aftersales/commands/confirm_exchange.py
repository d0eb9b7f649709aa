"""The merchant opened an exchange's parcel: credit, supplement or difference, and the replacement set aside."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction

from aftersales.actors import By
from aftersales.claims import deadline, get_claim
from aftersales.commands._inspection import assign_dispositions, record_inspection
from aftersales.commands._roll_back_stock import restock_inspected
from aftersales.commands._start_refund import free_given_up_units, write_units
from aftersales.commands._transition import blaming_the_state, declare, move
from aftersales.commands.convert_to_refund import turn_into_refund
from aftersales.models import AfterSalesOrder, Disposition, Exchange, Status
from aftersales.settlement import Ask, Settled, settle
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.statemachine import Edge, P
from kernel.transactions import unit_of_work
from ledgers.commands.move_stock import OutOfStock
from ledgers.commands.reserve_stock import reserve_stock
from payments.commands.open_payment import open_payment
from payments.models import ChannelAccount, Payment

RECEIVED = {
    "accepted_qty": P("accepted_qty"),
    "entitled_goods_fen": P("entitled_goods_fen"),
    "entitled_freight_fen": P("entitled_freight_fen"),
    "liability": P("liability"),
    "liability_reason": P("liability_reason"),
    "decided_at": P("now"),
}
ASK_SUPPLEMENT = declare("ask_supplement", event="after_sales.supplement_asked", changes=RECEIVED)
ACCEPT_EXCHANGE = declare("accept_exchange", event="after_sales.exchange_accepted", changes=RECEIVED)


@dataclass(frozen=True)
class ExchangeConfirmed:
    """Amounts in fen. `supplement_no` is the number of the buyer's own payment for the supplement."""

    after_sales_no: str
    status: str
    version: int
    accepted_qty: int
    credit_fen: int
    supplement_fen: int
    difference_fen: int
    supplement_no: str
    replayed: bool = False


def confirm_exchange(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    expected_version: int,
    dispositions: Mapping[str, int],
    note: str = "",
    ask: Ask = Ask(),  # noqa: B008 (frozen, and it means: what the rules give)
    by: By,
    key: BusinessKey,
    now: datetime,
) -> ExchangeConfirmed:
    """A dearer replacement waits for the supplement, any other for the merchant's parcel; sold out becomes a refund.

    The old units are worth their credit (R19: 100 − 20 against 120 owes 40). Raises NotFound, InvalidInput,
    VersionConflict, IllegalTransition, InArbitration, AboveEntitlement, ReasonNeeded.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, ExchangeConfirmed, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no)
        by_ordinal = assign_dispositions(claim, dispositions)
        accepted = [ordinal for ordinal, what in by_ordinal.items() if what != Disposition.MISSING]
        settled = settle(claim, ask, accepted=accepted)
        exchange = Exchange.objects.get(after_sales=claim)
        price_fen = exchange.unit_price_fen * len(accepted)
        supplement_fen = max(0, price_fen - settled.goods_fen)
        edge = ASK_SUPPLEMENT if supplement_fen else ACCEPT_EXCHANGE
        with blaming_the_state(edge, claim.pk, expected_version=expected_version):
            free_given_up_units(claim, settled)
        _receive(edge, claim, settled, expected_version=expected_version, by=by, note=note, ask=ask, now=now)
        write_units(claim, settled, dispositions=by_ordinal)
        record_inspection(claim, dispositions, note=note, by=by, now=now)
        Exchange.objects.filter(pk=exchange.pk).update(
            credit_fen=settled.goods_fen,
            supplement_fen=supplement_fen,
            difference_fen=max(0, settled.goods_fen - price_fen),
            supplement_no=_open_supplement(claim, supplement_fen, now=now) if supplement_fen else "",
        )
        restock_inspected(claim, now)
        if not _set_aside(claim, exchange, len(accepted), now=now):
            turn_into_refund(claim, by=by, reason="out of stock", now=now)
        result = _confirmed(claim.pk)
        idempotency.finish(key, result)
        return result


def _receive(
    edge: Edge,
    claim: AfterSalesOrder,
    settled: Settled,
    *,
    expected_version: int,
    by: By,
    note: str,
    ask: Ask,
    now: datetime,
) -> None:
    target = Status.WAIT_BUYER_PAY if edge is ASK_SUPPLEMENT else Status.WAIT_MERCHANT_SHIP
    move(
        edge,
        claim,
        expected_version=expected_version,
        by=by,
        now=now,
        due_at=deadline(claim.merchant, target, now=now),
        reason=note,
        evidence={"credit_fen": settled.goods_fen},
        accepted_qty=len(settled.units),
        entitled_goods_fen=settled.entitled_goods_fen,
        entitled_freight_fen=settled.entitled_freight_fen,
        liability=settled.liability,
        liability_reason=ask.liability_reason,
    )


def _open_supplement(claim: AfterSalesOrder, supplement_fen: int, *, now: datetime) -> str:
    """A payment of its own under the claim's number, by the channel the order was paid with."""
    channel = claim.order.paid_channel
    if not ChannelAccount.objects.filter(merchant_id=claim.merchant_id, channel=channel, is_active=True).exists():
        first = ChannelAccount.objects.filter(merchant_id=claim.merchant_id, is_active=True).order_by("id").first()
        channel = first.channel if first else channel
    opened = open_payment(
        merchant_id=claim.merchant_id,
        order_no=claim.after_sales_no,
        channel=channel,
        amount_fen=supplement_fen,
        kind=Payment.Kind.SUPPLEMENT,
        expires_at=deadline(claim.merchant, Status.WAIT_BUYER_PAY, now=now),
        now=now,
    )
    return opened.out_trade_no


def _set_aside(claim: AfterSalesOrder, exchange: Exchange, qty: int, *, now: datetime) -> bool:
    """The replacement is reserved on receipt. False: it is sold out."""
    try:
        with transaction.atomic():  # a savepoint: this refusal is caught, and the rest of the receipt stands
            reserve_stock(
                merchant_id=claim.merchant_id,
                sku=exchange.sku,
                qty=qty,
                business_key=f"{claim.after_sales_no}:replacement",
                reference=claim.after_sales_no,
                now=now,
            )
    except OutOfStock:
        return False
    return True


def _confirmed(claim_id: UUID) -> ExchangeConfirmed:
    claim = AfterSalesOrder.objects.select_related("exchange").get(pk=claim_id)
    exchange = claim.exchange
    return ExchangeConfirmed(
        after_sales_no=claim.after_sales_no,
        status=str(claim.status),
        version=claim.version,
        accepted_qty=claim.accepted_qty or 0,
        credit_fen=exchange.credit_fen or 0,
        supplement_fen=exchange.supplement_fen or 0,
        difference_fen=exchange.difference_fen or 0,
        supplement_no=exchange.supplement_no,
    )
