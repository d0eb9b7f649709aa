"""A refund that its channel cannot pay any more goes to the user's balance instead."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel import errors
from kernel.statemachine import Edge, Emit, New, P, Sql, Touch, advance
from kernel.transactions import unit_of_work
from payments.channels.balance import WalletRefused
from payments.commands._dead_request import dead_request
from payments.models import Payment, RefundRequest
from payments.registry import wallet_for

TO_BALANCE = Edge(
    RefundRequest,
    "succeed",
    source=RefundRequest.Status.FAILED,
    guards={"version": P("version"), "no_voucher": Sql("t.voucher = ''")},
    changes={
        "route": RefundRequest.Route.BALANCE,
        "route_reason": Sql("CASE WHEN t.route_reason = '' THEN t.failure_code ELSE t.route_reason END"),
        "succeeded_at": P("now"),
        "recorded_at": P("now"),
        "refund_no": P("refund_no"),
        "version": Sql("t.version + 1"),
    },
    writes=[
        Touch(
            Payment,
            where={"id": New("payment_id")},
            changes={"refunded_fen": Sql("s.refunded_fen + u.amount_fen"), "version": Sql("s.version + 1")},
        )
    ],
    emit=Emit(
        "refund.succeeded",
        subject=New("owner_no"),
        payload={
            "refund_request_id": New("id"),
            "owner_kind": New("owner_kind"),
            "owner_no": New("owner_no"),
            "order_no": New("order_no"),
            "payment_id": New("payment_id"),
            "refund_no": New("refund_no"),
            "amount_fen": New("amount_fen"),
            "channel": "balance",
            "payment_kind": Sql("(SELECT p.kind FROM payment p WHERE p.id = u.payment_id)"),
            "succeeded_at": P("now", "timestamptz"),
        },
    ),
    returning=["version"],
)


class WalletRefusedRefund(errors.Refusal):
    code = "WALLET_REFUSED_REFUND"
    status = 422
    message = _("The wallet does not take this refund.")


class VoucherEnteredAlready(errors.Refusal):
    code = "VOUCHER_ENTERED_ALREADY"
    message = _("A voucher says that this refund is paid offline. It is not paid to the balance as well.")


@dataclass(frozen=True)
class RefundedToBalance:
    refund_request_id: UUID
    refund_no: str
    amount_fen: int
    replayed: bool = False


def refund_to_balance(*, merchant_id: UUID, refund_request_id: UUID, now: datetime) -> RefundedToBalance:
    """FAILED → SUCCEEDED: the wallet is credited under `{owner_no}-balance`, the request ends with `refund.succeeded`
    (channel `balance`), both in one transaction. Only where no attempt at the channel may still pay. Joins the caller.
    Done already → replay. Raises NotFound, RefundNotDead, VoucherEnteredAlready, WalletRefusedRefund (nobody knows
    whose wallet, or more than the wallet paid)."""
    with unit_of_work(now=now):
        found = RefundRequest.objects.filter(id=refund_request_id, merchant_id=merchant_id).first()
        if found is not None and found.status == "SUCCEEDED" and found.route == RefundRequest.Route.BALANCE:
            return RefundedToBalance(found.id, found.refund_no, found.amount_fen, replayed=True)
        request = dead_request(merchant_id, refund_request_id)
        if request.voucher:
            raise VoucherEnteredAlready(voucher=request.voucher)
        number = f"{request.owner_no}-balance"
        params = {"version": request.version, "refund_no": number, "now": now}
        if advance(TO_BALANCE, pk=request.id, params=params) is None:
            raise errors.VersionConflict(refund_request_id=str(request.id))
        try:
            wallet_for(merchant_id).credit(
                number=number,
                charge_no=request.payment.out_trade_no,
                amount_fen=request.amount_fen,
                total_fen=request.payment.amount_fen,
                reason=request.reason,
                now=now,
            )
        except WalletRefused as refused:
            raise WalletRefusedRefund(wallet_code=refused.code) from refused
        return RefundedToBalance(request.id, number, request.amount_fen)
