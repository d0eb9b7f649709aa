"""A completed order earns: points for the buyer, commissions for those who were named for its lines."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from aftersales.claims import settings_of
from aftersales.models import FINAL, AfterSalesOrder, AfterSalesSettings
from aftersales.rewards import ordered_line, refunded_goods_fen
from kernel.errors import IllegalTransition, NotFound
from kernel.transactions import unit_of_work
from ledgers.commands.accrue_commission import accrue_commission
from ledgers.commands.earn_points import earn_points
from ledgers.models import CommissionShare, PointsEarned
from ledgers.shares import share_of_money
from orders.models import Order, OrderLine

WHOLE_BP = 10_000
FEN_PER_YUAN = 100


@dataclass(frozen=True)
class OrderRewarded:
    """What was granted, less what falls to goods refunded before; points and fen."""

    order_no: str
    points: int
    commission_fen: int


def reward_order(*, merchant_id: UUID, order_no: str, now: datetime) -> OrderRewarded:
    """Points per yuan of net goods and a commission per declared share; each line, beneficiary and level once.

    The ordered lines are locked first, so a refund that ends in the same moment is counted either here or by its own
    rollback. Commission is held from the completion on, and while a claim on the line is open. Joins the caller.
    Raises NotFound, IllegalTransition (not completed).
    """
    with unit_of_work(now=now):
        order = Order.objects.select_related("merchant").filter(merchant_id=merchant_id, order_no=order_no).first()
        if order is None:
            raise NotFound(order_no=order_no)
        if order.completed_at is None:
            raise IllegalTransition(order_no=order_no, status=order.status)
        settings = settings_of(order.merchant)
        points = commission = 0
        # The lock on the lines is older than everything that is read about them.
        lines = list(OrderLine.objects.select_for_update().filter(order=order).order_by("line_no"))
        open_claims = _open_claims(order)
        for line in [each for each in lines if ordered_line(each).pk == each.pk]:
            refunded_fen = refunded_goods_fen(line)
            points += _grant_points(order, line, settings, refunded_fen, now=now)
            commission += _grant_commission(
                order, line, settings, refunded_fen, open_claims.get(line.line_no, []), now=now
            )
        return OrderRewarded(order_no, points, commission)


def _open_claims(order: Order) -> dict[int, list[str]]:
    """Numbers of the claims that are under way, by the line that was ordered."""
    found: dict[int, list[str]] = {}
    claims = AfterSalesOrder.objects.select_related("line").filter(order=order).exclude(status__in=FINAL)
    for claim in claims:
        found.setdefault(ordered_line(claim.line).line_no, []).append(claim.after_sales_no)
    return found


def _grant_points(
    order: Order, line: OrderLine, settings: AfterSalesSettings, refunded_fen: int, *, now: datetime
) -> int:
    points = line.net_fen * settings.points_per_yuan // FEN_PER_YUAN
    known = PointsEarned.objects.filter(
        merchant_id=order.merchant_id, order_no=order.order_no, line_no=line.line_no
    ).exists()
    if not points or known:  # the rate may have changed since; what was granted stays
        return 0
    return earn_points(
        merchant_id=order.merchant_id,
        user_id=order.user_id,
        order_no=order.order_no,
        line_no=line.line_no,
        base_fen=line.net_fen,
        points=points,
        refunded_fen=refunded_fen,
        now=now,
    ).points


def _grant_commission(
    order: Order,
    line: OrderLine,
    settings: AfterSalesSettings,
    refunded_fen: int,
    open_claims: list[str],
    *,
    now: datetime,
) -> int:
    assert order.completed_at is not None
    granted = 0
    shares = CommissionShare.objects.filter(
        merchant_id=order.merchant_id, order_no=order.order_no, line_no=line.line_no
    )
    for share in shares.order_by("beneficiary", "level"):
        done = accrue_commission(
            merchant_id=order.merchant_id,
            order_no=order.order_no,
            line_no=line.line_no,
            beneficiary=share.beneficiary,
            level=share.level,
            base_fen=line.net_fen,
            amount_fen=share_of_money(line.net_fen, WHOLE_BP, share.rate_bp),
            hold_until=order.completed_at + timedelta(days=settings.commission_hold_days),
            refunded_fen=refunded_fen,
            open_claims=open_claims,
            now=now,
        )
        granted += 0 if done.replayed else done.amount_fen
    return granted
