"""Send a refund number to the channel: claim, commit, call, record."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog
from django.conf import settings

from kernel import errors
from kernel.statemachine import Edge, P, Sql, advance
from kernel.transactions import is_outermost, unit_of_work
from payments.accounts import REFUND_WINDOW_DAYS, Pace, pace_of
from payments.commands._record_refund_answer import (
    record_refund_refused,
    record_refund_unknown,
    stop_refund_before_call,
)
from payments.commands.record_refund_fact import record_refund_fact
from payments.gateway import ChannelRefused, ChannelUnknown, Gateway, RefundState
from payments.models import ChannelAccount, Payment, RefundAttempt
from payments.registry import gateway_for

Status = RefundAttempt.Status

log = structlog.get_logger(__name__)

SLOT = Edge(
    Payment,
    "take_refund_slot",
    guards={"pause": Sql("t.next_refund_at IS NULL OR t.next_refund_at <= clock_timestamp()")},
    changes={"next_refund_at": Sql("clock_timestamp() + %(spacing)s::int * interval '1 second'")},
    returning=["next_refund_at"],
)
"""The channel wants a pause between two refunds of one payment: whoever moves this column may send."""

CLAIM = {
    source: Edge(
        RefundAttempt,
        "send",
        source=source,
        guards={
            "version": P("version"),
            "request": Sql(
                "EXISTS (SELECT 1 FROM refund_request r WHERE r.id = t.request_id AND r.status = 'PENDING')"
            ),
            "turn": Sql("t.resend AND t.next_action_at <= clock_timestamp()")
            if source != Status.CREATED
            else Sql("t.next_action_at <= clock_timestamp()"),
        },
        changes={
            "sends": Sql("t.sends + 1"),
            "unanswered_sends": Sql("t.unanswered_sends + 1"),
            "queries": 0,
            "resend": False,
            "sent_at": Sql("clock_timestamp()"),
            "next_action_at": Sql("clock_timestamp() + %(query_after)s::int * interval '1 second'"),
            "picked_at": None,
            "version": Sql("t.version + 1"),
        },
        returning=["version", "sends"],
    )
    for source in (Status.CREATED, Status.SENT, Status.PROCESSING)
}
"""A worker that dies after this leaves a SENT row whose time to ask is set, and one unanswered send on its account."""

WAIT = {
    source: Edge(
        RefundAttempt,
        method,
        guards={"version": P("version")},
        changes={
            "next_action_at": Sql(
                "greatest(clock_timestamp() + interval '1 second',"
                " (SELECT p.next_refund_at FROM payment p WHERE p.id = t.payment_id))"
            ),
            "picked_at": None,
            "version": Sql("t.version + 1"),
        },
        returning=["next_action_at"],
    )
    for source, method in (
        (Status.CREATED, "wait_for_slot"),
        (Status.SENT, "stay_sent"),
        (Status.PROCESSING, "stay_processing"),
    )
}


@dataclass(frozen=True)
class RefundSent:
    """`result`: sent (then `status` is what the attempt became), waiting (the payment's pause), not_due (someone else
    has it, or there is nothing to send), held (the number before it is not proven closed), stopped (past the
    channel's limits), withdrawn (the number before it succeeded after all)."""

    refund_no: str
    result: str
    status: str


class _Lost(Exception):
    """Another worker claimed it first: give the slot back."""


def send_refund(*, attempt_id: UUID, now: datetime) -> RefundSent:
    """One send of one number. Never inside a transaction: it is HTTP.

    Claim (PostgreSQL's clock): the payment's slot, then the attempt's version; commit. Call without any lock. Second
    transaction: what was answered. No answer → SENT stays, the channel is asked after the account's `query_after`, and
    the *same* number is sent again if the channel does not know it. A number after the first is sent only once
    the channel itself, asked just now, says that the one before it is CLOSED.
    """
    if not is_outermost():
        raise RuntimeError("a refund is never sent inside a transaction")
    attempt = RefundAttempt.objects.select_related("payment__account", "request").filter(id=attempt_id).first()
    if attempt is None:
        raise errors.NotFound(attempt_id=str(attempt_id))
    account = attempt.payment.account
    if Status(attempt.status) not in CLAIM or account is None:
        return RefundSent(attempt.number, "not_due", attempt.status)
    gateway = gateway_for(account)
    if attempt.seq > 0 and attempt.sends == 0:
        held = _check_predecessor(attempt, gateway, now=now)
        if held is not None:
            return held
    if stop_refund_before_call(attempt_id=attempt.id, window_days=REFUND_WINDOW_DAYS, now=now):
        return RefundSent(attempt.number, "stopped", Status.REFUSED)
    version = _claim(attempt, pace=pace_of(account), now=now)
    if isinstance(version, RefundSent):
        return version
    return _call(attempt, account, gateway, version=version, now=now)


def _claim(attempt: RefundAttempt, *, pace: Pace, now: datetime) -> int | RefundSent:
    """The slot and the attempt, or neither. Returns the version under which the answer will be recorded."""
    source = Status(attempt.status)
    try:
        with unit_of_work(now=now):
            if advance(SLOT, pk=attempt.payment_id, params={"spacing": pace.spacing}) is None:
                advance(WAIT[source], pk=attempt.id, params={"version": attempt.version})
                return RefundSent(attempt.number, "waiting", attempt.status)
            claimed = advance(
                CLAIM[source],
                pk=attempt.id,
                params={"version": attempt.version, "query_after": pace.query_after},
            )
            if claimed is None:
                raise _Lost
            return int(claimed["version"])
    except _Lost:
        return RefundSent(attempt.number, "not_due", attempt.status)


def _call(
    attempt: RefundAttempt, account: ChannelAccount, gateway: Gateway, *, version: int, now: datetime
) -> RefundSent:
    payment = attempt.payment
    try:
        said = gateway.refund(
            refund_no=attempt.number,
            out_trade_no=payment.out_trade_no,
            trade_no=payment.trade_no,
            amount_fen=attempt.amount_fen,
            total_fen=payment.amount_fen,
            reason=attempt.request.reason,
            notify_url=refund_notify_url(account),
            now=now,
        )
    except ChannelRefused as refusal:
        recorded = record_refund_refused(attempt_id=attempt.id, version=version, refusal=refusal, now=now)
        return RefundSent(attempt.number, "sent", recorded.status)
    except ChannelUnknown as unknown:
        recorded = record_refund_unknown(attempt_id=attempt.id, version=version, unknown=unknown, now=now)
        return RefundSent(attempt.number, "sent", recorded.status)
    fact = record_refund_fact(merchant_id=attempt.merchant_id, said=said, source="answer", now=now)
    return RefundSent(attempt.number, "sent", fact.status)


def _check_predecessor(attempt: RefundAttempt, gateway: Gateway, *, now: datetime) -> RefundSent | None:
    """Ask the channel about the number before this one. None: it is CLOSED there, go on."""
    before = RefundAttempt.objects.filter(request_id=attempt.request_id, seq=attempt.seq - 1).first()
    if before is None or before.sends == 0:
        return None
    try:
        said = gateway.query_refund(refund_no=before.number, out_trade_no=attempt.payment.out_trade_no, now=now)
    except (ChannelRefused, ChannelUnknown) as error:
        log.warning("refund.held", refund_no=attempt.number, before=before.number, error=str(error))
        advance(WAIT[Status(attempt.status)], pk=attempt.id, params={"version": attempt.version})
        return RefundSent(attempt.number, "held", attempt.status)
    if said.state is RefundState.CLOSED:
        return None
    record_refund_fact(merchant_id=attempt.merchant_id, said=said, source="query", now=now)
    after = RefundAttempt.objects.get(id=attempt.id)
    if after.status == Status.REFUSED:
        return RefundSent(attempt.number, "withdrawn", after.status)
    advance(WAIT[Status(attempt.status)], pk=attempt.id, params={"version": after.version})
    return RefundSent(attempt.number, "held", after.status)


def refund_notify_url(account: ChannelAccount) -> str:
    """Where the channel shall post what became of a refund. The account in the path tells its keys."""
    return f"{settings.QUITS_BASE_URL}/api/v1/refunds/notify/{account.channel}/{account.id}"
