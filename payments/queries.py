"""Reads for the floors above and for the pages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from uuid import UUID

from kernel import clock
from payments.models import ChannelAccount, ChannelBill, Payment, RefundAttempt, RefundRequest

BILL_HOUR = 10
"""Bills of a day are there from 10:00 (Asia/Shanghai) of the next."""
BILL_DAYS_BACK = 7
BILL_KINDS = ("trade", "refund", "fundflow")
"""The bills of a day that are fetched and compared, unless the account's settings name fewer under "bills"."""


def bill_kinds(account: ChannelAccount) -> list[str]:
    """The account may have no right to a bill at its channel; then nobody waits for it."""
    wanted = account.settings.get("bills", BILL_KINDS)
    return [kind for kind in BILL_KINDS if kind in wanted]


@dataclass(frozen=True)
class RefundStanding:
    """Where a refund stands. `dead`: no attempt may still pay, so it may be given up or settled by other means."""

    refund_request_id: UUID
    status: str
    amount_fen: int
    route: str
    route_reason: str
    failure_code: str
    refund_no: str
    attempt_status: str
    dead: bool


def get_refund_standing(*, merchant_id: UUID, owner_kind: str, owner_no: str) -> RefundStanding | None:
    """The standing of the refund asked for by this owner, or None when none was asked for."""
    request = (
        RefundRequest.objects.filter(merchant_id=merchant_id, owner_kind=owner_kind, owner_no=owner_no)
        .order_by("-id")
        .first()
    )
    if request is None:
        return None
    attempts = list(RefundAttempt.objects.filter(request=request).order_by("seq"))
    newest = attempts[-1] if attempts else None
    live = any(each.status not in ("CLOSED", "REFUSED") for each in attempts)
    return RefundStanding(
        refund_request_id=request.id,
        status=request.status,
        amount_fen=request.amount_fen,
        route=request.route,
        route_reason=request.route_reason,
        failure_code=request.failure_code,
        refund_no=newest.number if newest else request.refund_no,
        attempt_status=newest.status if newest else "",
        dead=request.status == RefundRequest.Status.FAILED and not live,
    )


def paid_payment_of(*, merchant_id: UUID, order_no: str) -> Payment | None:
    """The paid payment an order stands on: not a second charge, the earliest paid one."""
    return (
        Payment.objects.filter(merchant_id=merchant_id, order_no=order_no, status=Payment.Status.PAID)
        .exclude(kind=Payment.Kind.EXTRA)
        .order_by("paid_at", "id")
        .first()
    )


def bills_to_fetch(*, now: datetime) -> list[tuple[UUID, str, date]]:
    """(account, kind, day) of every bill that should be there by now and is not."""
    local = now.astimezone(clock.CHANNEL_ZONE)
    newest = local.date() - timedelta(days=1 if local.hour >= BILL_HOUR else 2)
    wanted = []
    for account in ChannelAccount.objects.filter(is_active=True, channel__in=["wechat", "alipay"]):
        first = max(newest - timedelta(days=BILL_DAYS_BACK - 1), clock.channel_day(account.created_at))
        bills = ChannelBill.objects.filter(account=account, bill_on__gte=first).defer("raw")
        known = {(bill.kind, bill.bill_on): bill for bill in bills}
        for back in range((newest - first).days + 1):
            day = newest - timedelta(days=back)
            for kind in bill_kinds(account):
                bill = known.get((kind, day))
                if bill is None or (bill.next_try_at is not None and bill.next_try_at <= now):
                    wanted.append((account.id, kind, day))
    return wanted
