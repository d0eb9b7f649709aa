"""The rows and the hold of a new arbitration case; joined by the commands that open one."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from aftersales.actors import By
from aftersales.drafts import NoSuchUnits, facts_of, left_of_units
from aftersales.models import AfterSalesOrder, ArbitrationCase, ArbitrationStatement, ArbitrationUnit
from kernel import outbox
from kernel.errors import Refusal, refuse_on_constraint
from orders.commands.hold_units import hold_units
from orders.models import Order, OrderLine


class ArbitrationAlreadyOpen(Refusal):
    code = "ARBITRATION_ALREADY_OPEN"
    message = _("Arbitration over these units is open already.")


refuse_on_constraint("unit_has_one_open_arbitration", ArbitrationAlreadyOpen)
refuse_on_constraint("claim_has_one_open_arbitration", ArbitrationAlreadyOpen)


def hold_for_case(line_id: UUID, ordinals: Sequence[int], *, owner: AfterSalesOrder | None) -> bool:
    """Lock the line and keep the units for the case. True: the case itself holds them on the line (no claim does).

    Units of a living claim stay that claim's. Raises NoSuchUnits when another claim has them by now.
    """
    line = OrderLine.objects.select_for_update().get(pk=line_id)
    if ArbitrationUnit.objects.filter(line=line, ordinal__in=ordinals, is_open=True).exists():
        raise ArbitrationAlreadyOpen(ordinals=list(ordinals))
    if owner is not None:
        return False
    if facts_of([line])[line.line_no].taken & set(ordinals):
        raise NoSuchUnits(line_no=line.line_no, ordinals=list(ordinals))
    hold_units(line_id=line_id, ordinals=ordinals, unshipped=False)
    return True


def write_case(
    *,
    order_id: UUID,
    line_id: UUID,
    claim: AfterSalesOrder | None,
    ordinals: Sequence[int],
    cause: str,
    wish: str,
    holds_line: bool,
    by: By,
    now: datetime,
) -> ArbitrationCase:
    """The case, its units, the opener's words and the event."""
    order, line = Order.objects.get(pk=order_id), OrderLine.objects.get(pk=line_id)
    left = left_of_units(line, ordinals)
    case = ArbitrationCase.objects.create(
        merchant_id=order.merchant_id,
        order=order,
        order_no=order.order_no,
        line=line,
        line_no=line.line_no,
        user_id=order.user_id,
        after_sales=claim,
        cause=cause,
        opened_by=by.kind,
        opened_by_id=by.id,
        wish=wish,
        holds_line=holds_line,
        entitled_fen=sum(unit.goods_fen + unit.freight_fen for unit in left),
        opened_at=now,
    )
    ArbitrationUnit.objects.bulk_create(ArbitrationUnit(case=case, line=line, ordinal=ordinal) for ordinal in ordinals)
    if wish:
        ArbitrationStatement.objects.create(case=case, side=by.kind, author=by.id, text=wish, created_at=now)
    outbox.append(
        name="arbitration.opened",
        merchant_id=order.merchant_id,
        subject=claim.after_sales_no if claim else order.order_no,
        payload={"case_id": str(case.pk), "order_no": order.order_no, "line_no": line.line_no, "cause": str(cause)},
        now=now,
    )
    return case
