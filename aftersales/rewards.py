"""What a line earned and spent follows the goods money that went back, through exchanges too. Reads only.

Earned points, commissions and used points stand on the line that was ordered. A replacement has a line of its own and
no rewards; what is refunded of it counts for the line whose units it replaced, up to what those units were worth.
"""

from django.db.models import Sum

from aftersales.models import AfterSalesOrder, Exchange, Status
from orders.models import OrderLine

MOST_EXCHANGES = 20
"""A unit is replaced so many times at most before this gives up looking for its origin."""


def ordered_units(line: OrderLine, ordinals: list[int]) -> tuple[OrderLine, list[int]]:
    """The line that was ordered and its units for which these of a replacement stand; the line itself otherwise."""
    for _step in range(MOST_EXCHANGES):
        exchange = Exchange.objects.select_related("after_sales__line").filter(replacement_line=line).first()
        if exchange is None:
            break
        replaced = list(
            exchange.after_sales.units.filter(live=True).order_by("ordinal").values_list("ordinal", flat=True)
        )
        line, ordinals = exchange.after_sales.line, [replaced[ordinal - 1] for ordinal in ordinals]
    return line, ordinals


def ordered_line(line: OrderLine) -> OrderLine:
    """The line that was ordered, of which this one may be a replacement."""
    return ordered_units(line, [])[0]


def refunded_goods_fen(line: OrderLine) -> int:
    """Goods money of an ordered line that went back so far, that of its replacements included; at most its net."""
    return min(_refunded(line, MOST_EXCHANGES), line.net_fen)


def _refunded(line: OrderLine, left: int) -> int:
    done = AfterSalesOrder.objects.filter(line=line, status=Status.REFUND_SUCCESS)
    refunded = int(done.aggregate(fen=Sum("approved_goods_fen"))["fen"] or 0)
    exchanges = Exchange.objects.select_related("replacement_line").filter(
        after_sales__line=line, replacement_line__isnull=False
    )
    for exchange in exchanges if left else ():
        assert exchange.replacement_line is not None
        worth = (exchange.credit_fen or 0) - (exchange.difference_fen or 0)
        refunded += min(_refunded(exchange.replacement_line, left - 1), worth)
    return refunded
