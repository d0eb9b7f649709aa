"""Ask the channel what became of a refund number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import errors
from kernel.statemachine import Edge, Insert, New, P, Sql, advance
from kernel.transactions import is_outermost, unit_of_work
from payments.accounts import pace_of
from payments.commands.record_refund_fact import record_refund_fact
from payments.gateway import ChannelRefused, ChannelUnknown
from payments.models import RefundAttempt, RefundFact
from payments.registry import gateway_for

Status = RefundAttempt.Status

CLAIM = {
    source: Edge(
        RefundAttempt,
        method,
        guards={
            "version": P("version"),
            "turn": Sql("(%(forced)s::bool OR t.next_action_at <= clock_timestamp()) AND NOT t.resend"),
        },
        changes={
            "queries": Sql("t.queries + 1"),
            "next_action_at": Sql(
                "clock_timestamp()"
                " + (%(backoff)s::int[])[least(t.queries + 1, cardinality(%(backoff)s::int[]))] * interval '1 second'"
            ),
            "picked_at": None,
            "version": Sql("t.version + 1"),
        },
        returning=["version"],
    )
    for source, method in ((Status.SENT, "stay_sent"), (Status.PROCESSING, "stay_processing"))
}
"""The next question's time is set before this one is asked, so a worker that dies loses nothing."""

NOTHING_LEARNED = {
    source: Edge(
        RefundAttempt,
        method,
        guards={"version": P("version")},
        changes={"last_error": P("code"), "version": Sql("t.version + 1")},
        writes=[
            Insert(
                RefundFact,
                {
                    "merchant": New("merchant_id"),
                    "attempt": New("id"),
                    "source": RefundFact.Source.QUERY,
                    "state": "UNKNOWN",
                    "from_status": New("status"),
                    "outcome": RefundFact.Outcome.UNKNOWN,
                    "detail": P("detail"),
                    "heard_at": P("now"),
                },
            )
        ],
        returning=["version"],
    )
    for source, method in ((Status.SENT, "stay_sent"), (Status.PROCESSING, "stay_processing"))
}


@dataclass(frozen=True)
class RefundQueried:
    """`result`: asked (then `status` is what the attempt became), unknown (no usable answer), not_due."""

    refund_no: str
    result: str
    status: str


def query_refund(*, attempt_id: UUID, forced: bool = False, now: datetime) -> RefundQueried:
    """One question, never inside a transaction. Claims first (PostgreSQL's clock, back-off of the account), then asks,
    then records the fact. `forced`: a person wants to know now. An ABNORMAL attempt may only be asked by force.
    Raises NotFound."""
    if not is_outermost():
        raise RuntimeError("a channel is never asked inside a transaction")
    attempt = RefundAttempt.objects.select_related("payment__account").filter(id=attempt_id).first()
    if attempt is None:
        raise errors.NotFound(attempt_id=str(attempt_id))
    account = attempt.payment.account
    if account is None:
        return RefundQueried(attempt.number, "not_due", attempt.status)
    version = attempt.version
    claim = CLAIM.get(Status(attempt.status))
    if claim is not None:
        with unit_of_work(now=now):
            claimed = advance(
                claim,
                pk=attempt.id,
                params={
                    "version": attempt.version,
                    "forced": forced,
                    "backoff": pace_of(account).backoff_array(),
                },
            )
        if claimed is None:
            return RefundQueried(attempt.number, "not_due", attempt.status)
        version = int(claimed["version"])
    elif not forced or attempt.sends == 0:
        return RefundQueried(attempt.number, "not_due", attempt.status)
    try:
        said = gateway_for(account).query_refund(
            refund_no=attempt.number, out_trade_no=attempt.payment.out_trade_no, now=now
        )
    except (ChannelRefused, ChannelUnknown) as error:
        nothing = NOTHING_LEARNED.get(Status(attempt.status))
        if nothing is not None:
            with unit_of_work(now=now):
                advance(
                    nothing,
                    pk=attempt.id,
                    params={"version": version, "code": str(error)[:64], "detail": str(error)[:200], "now": now},
                )
        return RefundQueried(attempt.number, "unknown", attempt.status)
    recorded = record_refund_fact(merchant_id=attempt.merchant_id, said=said, source="query", now=now)
    return RefundQueried(attempt.number, "asked", recorded.status)
