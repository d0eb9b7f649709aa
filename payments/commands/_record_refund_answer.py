"""Record an answer to a send that is no fact: a definite no, or nothing at all. And stop what must not be sent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kernel import outbox
from kernel.statemachine import Edge, Emit, Insert, New, P, Sql, Touch, advance
from kernel.transactions import unit_of_work
from payments.accounts import pace_of
from payments.commands.record_refund_fact import IDENTITY, OWNER_NO
from payments.gateway import ChannelRefused, ChannelUnknown, FollowUp
from payments.models import Payment, RefundAttempt, RefundFact, RefundRequest

Status = RefundAttempt.Status

HEARD = Insert(
    RefundFact,
    {
        "merchant": New("merchant_id"),
        "attempt": New("id"),
        "source": RefundFact.Source.ANSWER,
        "state": P("state"),
        "from_status": Sql("%(from_status)s::text"),
        "outcome": P("outcome"),
        "anomaly": P("anomaly"),
        "detail": P("detail"),
        "heard_at": P("now"),
    },
)

AGAIN = {
    source: Edge(
        RefundAttempt,
        method,
        guards={"version": P("version")},
        changes={
            "unanswered_sends": Sql("t.unanswered_sends - 1"),
            "resend": True,
            "next_action_at": Sql(
                "clock_timestamp() + (%(waits)s::int[])[least(t.sends, cardinality(%(waits)s::int[]))]"
                " * interval '1 second'"
            ),
            "last_error": P("code"),
            "version": Sql("t.version + 1"),
        },
        writes=[HEARD],
        returning=["status"],
    )
    for source, method in ((Status.SENT, "stay_sent"), (Status.PROCESSING, "stay_processing"))
}
"""Not accepted now (no funds, too fast): the same number, later."""

ASK = {
    source: Edge(
        RefundAttempt,
        method,
        guards={"version": P("version")},
        changes={"last_error": P("code"), "version": Sql("t.version + 1")},
        writes=[HEARD],
        returning=["status"],
    )
    for source, method in ((Status.SENT, "stay_sent"), (Status.PROCESSING, "stay_processing"))
}
"""Nothing proven: the time to ask was set when it was claimed."""

REFUSE = Edge(
    RefundAttempt,
    "refuse",
    guards={"version": P("version"), "proof": Sql("t.unanswered_sends = 1")},
    changes={
        "unanswered_sends": 0,
        "next_action_at": None,
        "finished_at": P("now"),
        "last_error": P("code"),
        "version": Sql("t.version + 1"),
    },
    writes=[
        HEARD,
        Touch(
            RefundRequest,
            where={"id": New("request_id"), "status": Sql("s.status = 'PENDING'")},
            changes={
                "status": RefundRequest.Status.FAILED,
                "failure_code": P("code"),
                "version": Sql("s.version + 1"),
            },
        ),
    ],
    emit=Emit("refund.failed", subject=OWNER_NO, payload={**IDENTITY, "code": P("code"), "dead": True}),
    returning=["status"],
)
"""A definite no to the only send that ever went out: the number is dead."""

STOP = Edge(
    RefundAttempt,
    "withdraw",
    guards={
        "limit": Sql(
            "t.sends = 0 AND EXISTS (SELECT 1 FROM payment p WHERE p.id = t.payment_id"
            " AND p.paid_at <= clock_timestamp() - %(days)s::int * interval '1 day')"
        )
    },
    changes={
        "next_action_at": None,
        "finished_at": P("now"),
        "last_error": "PAYMENT_TOO_OLD",
        "version": Sql("t.version + 1"),
    },
    writes=[
        Touch(
            RefundRequest,
            where={"id": New("request_id"), "status": Sql("s.status = 'PENDING'")},
            changes={
                "status": RefundRequest.Status.FAILED,
                "failure_code": "PAYMENT_TOO_OLD",
                "route": RefundRequest.Route.OFFLINE,
                "route_reason": "PAYMENT_TOO_OLD",
                "version": Sql("s.version + 1"),
            },
        ),
    ],
    emit=Emit("refund.failed", subject=OWNER_NO, payload={**IDENTITY, "code": "PAYMENT_TOO_OLD", "dead": True}),
    returning=["status"],
)
"""The window closed while it waited: nothing is sent, a person chooses another way."""


@dataclass(frozen=True)
class AnswerRecorded:
    """`recorded` is False when the attempt moved on meanwhile (a callback was faster): then nothing was written."""

    refund_no: str
    status: str
    recorded: bool


def record_refund_refused(*, attempt_id: UUID, version: int, refusal: ChannelRefused, now: datetime) -> AnswerRecorded:
    """A verified no to the send claimed under `version`. Its own transaction.

    SAME_NUMBER_LATER: SENT, sent again after a growing wait. ASK_AND_ALERT: SENT, asked, and `refund.anomaly`. Any
    other no: REFUSED and `refund.failed`, but only when no earlier send of the number is still unanswered; otherwise
    it proves nothing, stays SENT, is asked, and is an anomaly for a person.
    """
    with unit_of_work(now=now):
        attempt = _locked(attempt_id)
        if attempt.version != version or attempt.status not in (Status.SENT, Status.PROCESSING):
            return AnswerRecorded(attempt.number, attempt.status, recorded=False)
        params = _params(attempt, state="REFUSED", detail=str(refusal), code=refusal.code[:64], now=now)
        if refusal.follow_up is FollowUp.SAME_NUMBER_LATER:
            account = attempt.payment.account
            assert account is not None
            waits = pace_of(account).wait_array()
            moved = advance(AGAIN[Status(attempt.status)], pk=attempt.id, params={**params, "waits": waits})
        elif refusal.follow_up is not FollowUp.ASK_AND_ALERT and (
            moved := advance(REFUSE, pk=attempt.id, params=params) if attempt.status == Status.SENT else None
        ):
            pass
        else:
            kind = (
                "refund_number_has_other_parameters"
                if refusal.follow_up is FollowUp.ASK_AND_ALERT
                else "refund_refused_without_proof"
            )
            news = not RefundFact.objects.filter(attempt=attempt, anomaly=kind).exists()
            moved = advance(
                ASK[Status(attempt.status)], pk=attempt.id, params={**params, "outcome": "anomaly", "anomaly": kind}
            )
            if news:
                _announce(attempt, kind, code=refusal.code, message=refusal.message, now=now)
        return AnswerRecorded(attempt.number, moved["status"] if moved else attempt.status, recorded=moved is not None)


def record_refund_unknown(*, attempt_id: UUID, version: int, unknown: ChannelUnknown, now: datetime) -> AnswerRecorded:
    """No answer to the send claimed under `version`: the send stays on the attempt's account, the channel is asked at
    the time that was set when it was claimed. Its own transaction."""
    with unit_of_work(now=now):
        attempt = _locked(attempt_id)
        edge = ASK.get(Status(attempt.status))
        if attempt.version != version or edge is None:
            return AnswerRecorded(attempt.number, attempt.status, recorded=False)
        params = _params(attempt, state="UNKNOWN", detail=str(unknown), code=str(unknown)[:64], now=now)
        moved = advance(edge, pk=attempt.id, params={**params, "outcome": "unknown"})
        return AnswerRecorded(attempt.number, attempt.status, recorded=moved is not None)


def stop_refund_before_call(*, attempt_id: UUID, window_days: int, now: datetime) -> bool:
    """True when the payment is too old for the channel: the attempt is withdrawn unsent and `refund.failed` says so.
    (The count of 50 is kept when the number is made.)"""
    with unit_of_work(now=now):
        return advance(STOP, pk=attempt_id, params={"days": window_days, "now": now}) is not None


def _locked(attempt_id: UUID) -> RefundAttempt:
    attempt = RefundAttempt.objects.select_related("request", "payment__account").get(id=attempt_id)
    Payment.objects.select_for_update().get(id=attempt.payment_id)
    return RefundAttempt.objects.select_related("request", "payment__account").get(id=attempt_id)


def _params(attempt: RefundAttempt, *, state: str, detail: str, code: str, now: datetime) -> dict[str, Any]:
    return {
        "version": attempt.version,
        "state": state,
        "from_status": attempt.status,
        "outcome": "moved",
        "anomaly": "",
        "detail": detail[:200],
        "code": code,
        "now": now,
    }


def _announce(attempt: RefundAttempt, kind: str, *, code: str, message: str, now: datetime) -> None:
    outbox.append(
        name="refund.anomaly",
        merchant_id=attempt.merchant_id,
        subject=attempt.number,
        payload={
            "kind": kind,
            "refund_request_id": str(attempt.request_id),
            "owner_kind": attempt.request.owner_kind,
            "owner_no": attempt.request.owner_no,
            "order_no": attempt.request.order_no,
            "refund_no": attempt.number,
            "channel": attempt.payment.channel,
            "source": "answer",
            "notify_id": None,
            "ours": {"status": attempt.status, "amount_fen": attempt.amount_fen},
            "theirs": {"code": code, "message": message[:200]},
        },
        now=now,
    )
