"""After the window is over a buyer cannot apply any more, but may call the platform in."""

from datetime import datetime
from uuid import UUID

from aftersales.actors import By
from aftersales.commands._hold_case import hold_for_case, write_case
from aftersales.commands.open_arbitration import ArbitrationOpened, NothingToArbitrate
from aftersales.drafts import NoSuchUnits, facts_of, window_end
from aftersales.models import Actor, ArbitrationCase
from kernel import idempotency
from kernel.errors import InvalidInput, NotFound
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from orders.models import Order, OrderLine


def open_late_arbitration(
    *,
    merchant_id: UUID,
    order_no: str,
    user_id: str,
    line_no: int,
    qty: int,
    wish: str,
    key: BusinessKey,
    now: datetime,
) -> ArbitrationOpened:
    """Over the lowest free ordinals of a line that was signed for too long ago to apply.

    Raises NotFound, InvalidInput, NothingToArbitrate (the window is still open), NoSuchUnits, ArbitrationAlreadyOpen.
    """
    if qty < 1 or not wish.strip():
        raise InvalidInput(qty=qty, wish="needed")
    with unit_of_work(now=now):
        done = idempotency.begin(key, ArbitrationOpened, now=now)
        if done is not None:
            return done
        order = (
            Order.objects.select_related("merchant")
            .filter(merchant_id=merchant_id, order_no=order_no, user_id=user_id)
            .first()
        )
        line = OrderLine.objects.select_for_update().filter(order=order, line_no=line_no).first() if order else None
        if order is None or line is None:
            raise NotFound(order_no=order_no, line_no=line_no)
        ends_at = window_end(line, window_days=order.merchant.return_window_days)
        if order.status not in Order.PAID_OR_LATER or ends_at is None or now <= ends_at:
            raise NothingToArbitrate(order_no=order_no, line_no=line_no)
        ordinals = facts_of([line])[line_no].free(shipped=True)[:qty]
        if len(ordinals) < qty:
            raise NoSuchUnits(line_no=line_no, qty=qty)
        hold_for_case(line.pk, ordinals, owner=None)
        case = write_case(
            order_id=order.pk,
            line_id=line.pk,
            claim=None,
            ordinals=ordinals,
            cause=ArbitrationCase.Cause.WINDOW_OVER,
            wish=wish,
            holds_line=True,
            by=By(Actor.BUYER, user_id),
            now=now,
        )
        result = ArbitrationOpened(
            case_id=case.pk,
            after_sales_no="",
            cause=str(case.cause),
            ordinals=ordinals,
            entitled_fen=case.entitled_fen,
        )
        idempotency.finish(key, result)
        return result
