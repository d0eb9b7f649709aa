"""The buyer has the replacement, or time says so: an exchange becomes a line of its own, a reship frees its units."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from aftersales.actors import SYSTEM, By
from aftersales.algorithms import unit_worth
from aftersales.claims import get_claim
from aftersales.commands._transition import blaming_the_state, declare, move
from aftersales.commands.pay_difference import pay_difference
from aftersales.models import AfterSalesOrder, AfterSalesUnit, Exchange, Status, Type
from aftersales.rewards import ordered_line
from kernel import idempotency
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from ledgers.commands.release_commission import release_commission
from orders.commands.add_replacement_line import add_replacement_line
from orders.commands.hold_units import give_back_units
from orders.models import OrderLine

CONFIRM = declare("confirm_replacement", event="after_sales.completed")


@dataclass(frozen=True)
class ReplacementConfirmed:
    """`line_no` is the new line of an exchange, with a window of its own; None for a reship."""

    after_sales_no: str
    status: str
    version: int
    line_no: int | None
    difference_no: str
    replayed: bool = False


def confirm_replacement(
    *,
    merchant_id: UUID,
    after_sales_no: str,
    user_id: str | None,
    expected_version: int | None = None,
    by: By,
    key: BusinessKey,
    now: datetime,
) -> ReplacementConfirmed:
    """WAIT_BUYER_CONFIRM → COMPLETED, for the buyer (`user_id`) or by the timer (None).

    Exchanged ordinals are gone for good; their replacement carries net = old net + supplement − difference, and the
    difference is paid by a linked claim. Raises NotFound, VersionConflict, IllegalTransition, InArbitration.
    """
    with unit_of_work(now=now):
        done = idempotency.begin(key, ReplacementConfirmed, now=now)
        if done is not None:
            return done
        claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no, user_id=user_id)
        expected = claim.version if expected_version is None else expected_version
        OrderLine.objects.select_for_update().get(pk=claim.line_id)  # before its order is rewarded, or after
        ordinals = list(claim.units.filter(live=True).order_by("ordinal").values_list("ordinal", flat=True))
        exchanged = claim.type == Type.EXCHANGE
        if exchanged:
            with blaming_the_state(CONFIRM, claim.pk, expected_version=expected):
                give_back_units(line_id=claim.line_id, ordinals=ordinals)
        version = move(CONFIRM, claim, expected_version=expected, by=by, now=now)
        AfterSalesUnit.objects.filter(after_sales=claim, live=True).update(is_open=False, live=exchanged)
        line_no, difference_no = _complete_exchange(claim, ordinals, now=now) if exchanged else (None, "")
        release_commission(
            merchant_id=merchant_id,
            order_no=claim.order_no,
            line_no=ordered_line(claim.line).line_no,
            after_sales_no=after_sales_no,
            now=now,
        )
        result = ReplacementConfirmed(
            after_sales_no=after_sales_no,
            status=str(Status.COMPLETED),
            version=version,
            line_no=line_no,
            difference_no=difference_no,
        )
        idempotency.finish(key, result)
        return result


def _complete_exchange(claim: AfterSalesOrder, ordinals: list[int], *, now: datetime) -> tuple[int, str]:
    exchange = Exchange.objects.get(after_sales=claim)
    old = claim.line
    line = add_replacement_line(
        line_id=old.pk,
        sku=exchange.sku,
        title=exchange.title,
        unit_price_fen=exchange.unit_price_fen,
        qty=len(ordinals),
        freight_share_fen=sum(
            unit_worth(claim.algorithm, old.freight_share_fen, old.qty, ordinal) for ordinal in ordinals
        ),
        now=now,
    )
    Exchange.objects.filter(pk=exchange.pk).update(replacement_line=line)
    if not exchange.difference_fen:
        return line.line_no, ""
    paid = pay_difference(
        parent=claim, goods_fen=exchange.difference_fen, reason_code="exchange_difference", by=SYSTEM, now=now
    )
    return line.line_no, paid
