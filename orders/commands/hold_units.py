"""Units of a line under an after-sales claim: held, freed, given back; and the line's money guard.

Every function joins the caller's transaction and is one conditional UPDATE, so the row lock is taken before the
after-sales order's own (the fixed order of locks) and the guard stands in the statement.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from django.utils.translation import gettext_lazy as _

from kernel.errors import Refusal
from kernel.statemachine import Sql, Touch
from orders.models import OrderLine


class UnitsTaken(Refusal):
    code = "UNITS_NOT_AVAILABLE"
    status = 422
    message = _("The line has not that many units left for this kind of claim.")


class RefundExceedsPaid(Refusal):
    code = "REFUND_EXCEEDS_PAID"
    status = 422
    message = _("Refunds would exceed what was paid.")


def hold_units(*, line_id: UUID, ordinals: Sequence[int], unshipped: bool) -> None:
    """Put units under a claim that takes them back. `unshipped` ones must still be in the house.

    Raises UnitsTaken when one is held, given back or (if `unshipped`) shipped already.
    """
    _update_or_refuse(
        """
        UPDATE order_line SET held_ordinals = held_ordinals || %(units)s::int[]
        WHERE id = %(line)s AND NOT (held_ordinals || refunded_ordinals) && %(units)s::int[]
          AND (NOT %(unshipped)s OR NOT shipped_ordinals && %(units)s::int[])
        """,
        UnitsTaken(ordinals=list(ordinals)),
        line=line_id,
        units=list(ordinals),
        unshipped=unshipped,
    )


def free_units(*, line_id: UUID, ordinals: Sequence[int]) -> None:
    """The claim is dead (or gives some units up): they may be shipped and claimed again."""
    _update_or_refuse(
        """
        UPDATE order_line SET held_ordinals =
            ARRAY(SELECT o FROM unnest(held_ordinals) o WHERE o <> ALL (%(units)s::int[]) ORDER BY o)
        WHERE id = %(line)s AND held_ordinals @> %(units)s::int[]
        """,
        UnitsTaken(ordinals=list(ordinals)),
        line=line_id,
        units=list(ordinals),
    )


def give_back_units(*, line_id: UUID, ordinals: Sequence[int]) -> None:
    """The claim succeeded: the units are refunded for good."""
    _update_or_refuse(
        """
        UPDATE order_line SET refunded_ordinals = refunded_ordinals || %(units)s::int[], held_ordinals =
            ARRAY(SELECT o FROM unnest(held_ordinals) o WHERE o <> ALL (%(units)s::int[]) ORDER BY o)
        WHERE id = %(line)s AND held_ordinals @> %(units)s::int[] AND NOT refunded_ordinals && %(units)s::int[]
        """,
        UnitsTaken(ordinals=list(ordinals)),
        line=line_id,
        units=list(ordinals),
    )


def line_refund(*, goods: str, freight: str, unshipped: str) -> tuple[str, dict[str, str]]:
    """The line's money guard for amounts and units given as SQL: (condition, {column: new value}); `s` is the line."""
    columns = {
        "goods_committed_fen": f"s.goods_committed_fen + {goods}",
        "freight_committed_fen": f"s.freight_committed_fen + {freight}",
    }
    fits = (
        f"{columns['goods_committed_fen']} <= s.net_fen AND {columns['freight_committed_fen']} <= s.freight_share_fen"
        f" AND NOT s.shipped_ordinals && {unshipped}"
    )
    return fits, columns


def touch_line(*, where: dict[str, Any], beside: str, goods: str, freight: str, unshipped: str) -> Touch:
    """`commit_line_refund` inside another edge's statement: the same guards, the same place among the locks."""
    fits, columns = line_refund(goods=goods, freight=freight, unshipped=unshipped)
    changes = {column: Sql(value) for column, value in columns.items()}
    return Touch(OrderLine, first=True, beside=beside, where={**where, "fits": Sql(fits)}, changes=changes)


FITS, COLUMNS = line_refund(
    goods="%(goods_fen)s::bigint", freight="%(freight_fen)s::bigint", unshipped="%(unshipped)s::int[]"
)
COMMIT_LINE = (
    f"UPDATE order_line s SET {', '.join(f'{column} = {value}' for column, value in COLUMNS.items())}"
    f" WHERE s.id = %(line_id)s AND {FITS}"
)


def commit_line_refund(
    *, line_id: UUID, goods_fen: int, freight_fen: int, unshipped_ordinals: Sequence[int] = ()
) -> None:
    """Commit money of the line to a refund, in fen. The units of an unshipped claim must still be unshipped.

    Raises RefundExceedsPaid: more than the line's net or freight share, or the goods have left meanwhile.
    """
    _update_or_refuse(
        COMMIT_LINE,
        RefundExceedsPaid(goods_fen=goods_fen, freight_fen=freight_fen),
        line_id=line_id,
        goods_fen=goods_fen,
        freight_fen=freight_fen,
        unshipped=list(unshipped_ordinals),
    )


def release_line_refund(*, line_id: UUID, goods_fen: int, freight_fen: int) -> None:
    """The refund is known dead: its money is free for another claim."""
    _update_or_refuse(
        """
        UPDATE order_line SET goods_committed_fen = goods_committed_fen - %(goods)s,
                              freight_committed_fen = freight_committed_fen - %(freight)s
        WHERE id = %(line)s AND goods_committed_fen >= %(goods)s AND freight_committed_fen >= %(freight)s
        """,
        RefundExceedsPaid(goods_fen=-goods_fen, freight_fen=-freight_fen),
        line=line_id,
        goods=goods_fen,
        freight=freight_fen,
    )


def _update_or_refuse(sql: str, refusal: Refusal, **params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        if cursor.rowcount != 1:
            raise refusal
