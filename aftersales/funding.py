"""Which payments a refund goes back to: the order's, and for goods that came by an exchange the supplement's first."""

from django.db.models import Q, QuerySet

from aftersales.models import AfterSalesOrder, Exchange
from payments.models import Payment, RefundRequest


def owner_no(after_sales_no: str, part: int) -> str:
    """The name under which the payments floor knows a part of a claim's refund; refund numbers are made from it."""
    return after_sales_no if part == 0 else f"{after_sales_no}_{part}"


def claim_no(owner: str) -> str:
    """The claim behind a name that `owner_no` made."""
    return owner.partition("_")[0]


def refund_requests_of(claim: AfterSalesOrder) -> QuerySet[RefundRequest]:
    """Every part of a claim's refund, the order's own payment first."""
    return RefundRequest.objects.filter(
        Q(owner_no=claim.after_sales_no) | Q(owner_no__startswith=f"{claim.after_sales_no}_"),
        merchant_id=claim.merchant_id,
        owner_kind=RefundRequest.OwnerKind.AFTER_SALES,
    ).order_by("owner_no")


def split_over_payments(claim: AfterSalesOrder, amount_fen: int) -> list[tuple[Payment, int]]:
    """Supplements first (the last one paid before the earlier), the order's own payment for the rest, in fen."""
    parts: list[tuple[Payment, int]] = []
    left = amount_fen
    for payment in supplements_of(claim):
        fen = min(left, payment.amount_fen - payment.refund_committed_fen)
        if fen > 0:
            parts.append((payment, fen))
            left -= fen
    if left > 0:
        payment = Payment.objects.get(
            merchant_id=claim.merchant_id,
            order_no=claim.order_no,
            kind=Payment.Kind.ORDER,
            status=Payment.Status.PAID,
        )
        parts.append((payment, left))
    return parts[::-1]


def supplements_of(claim: AfterSalesOrder) -> list[Payment]:
    """The paid supplements behind a line that exchanges made, the newest exchange first."""
    numbers: list[str] = []
    line_id = claim.line_id
    while True:
        exchange = Exchange.objects.select_related("after_sales").filter(replacement_line_id=line_id).first()
        if exchange is None:
            break
        if exchange.supplement_no:
            numbers.append(exchange.supplement_no)
        line_id = exchange.after_sales.line_id
    found = {
        payment.out_trade_no: payment
        for payment in Payment.objects.filter(
            merchant_id=claim.merchant_id, out_trade_no__in=numbers, status=Payment.Status.PAID
        )
    }
    return [found[number] for number in numbers if number in found]
