"""Take in what the channel says about a refund number: the only way in which a refund ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from kernel import errors, outbox
from kernel.statemachine import Edge, Emit, Insert, New, P, Sql, Touch, advance, edges_of
from kernel.transactions import unit_of_work
from payments.accounts import pace_of
from payments.gateway import RefundFact as Said
from payments.gateway import RefundState
from payments.models import Payment, RefundAttempt, RefundFact, RefundRequest

Status = RefundAttempt.Status
Outcome = RefundFact.Outcome

KEPT = Insert(
    RefundFact,
    {
        "merchant": New("merchant_id"),
        "attempt": New("id"),
        "source": P("source"),
        "state": P("state"),
        "amount_fen": P("said_fen"),
        "payer_fen": P("payer_fen"),
        "channel_refund_id": P("refund_id"),
        "succeeded_at": P("succeeded_at"),
        "notify": P("notify_id"),
        "from_status": Sql("%(from_status)s::text"),
        "outcome": Outcome.MOVED,
        "anomaly": P("anomaly"),
        "detail": P("detail"),
        "heard_at": P("now"),
    },
)
REFUND_ID = Sql("coalesce(nullif(%(refund_id)s::text, ''), t.channel_refund_id)")
PAYER_FEN = Sql("coalesce(%(payer_fen)s::bigint, t.payer_fen)")
ENDED = {
    "channel_refund_id": REFUND_ID,
    "payer_fen": PAYER_FEN,
    "next_action_at": None,
    "finished_at": P("now"),
    "version": Sql("t.version + 1"),
}
IDENTITY: dict[str, Any] = {
    "refund_request_id": New("request_id"),
    "owner_kind": Sql("(SELECT r.owner_kind FROM refund_request r WHERE r.id = u.request_id)"),
    "owner_no": Sql("(SELECT r.owner_no FROM refund_request r WHERE r.id = u.request_id)"),
    "order_no": Sql("(SELECT r.order_no FROM refund_request r WHERE r.id = u.request_id)"),
    "payment_id": New("payment_id"),
    "refund_no": New("number"),
    "amount_fen": New("amount_fen"),
    "channel": Sql("(SELECT p.channel FROM payment p WHERE p.id = u.payment_id)"),
    "payment_kind": Sql("(SELECT p.kind FROM payment p WHERE p.id = u.payment_id)"),
}
OWNER_NO = IDENTITY["owner_no"]


def _request(status: str, changes: dict[str, Any]) -> Touch:
    return Touch(
        RefundRequest,
        where={"id": New("request_id"), "status": Sql("s.status = %(request_status)s::text")},
        changes={"status": status, "version": Sql("s.version + 1"), **changes},
    )


SUCCEED = {
    source: Edge(
        RefundAttempt,
        "succeed",
        source=source,
        guards={"version": P("version"), "amount_fen": P("said_fen")},
        changes={**ENDED, "last_error": ""},
        writes=[
            KEPT,
            _request(
                RefundRequest.Status.SUCCEEDED,
                {"succeeded_at": P("succeeded_at"), "recorded_at": P("now"), "refund_no": New("number")},
            ),
            Touch(
                Payment,
                where={"id": New("payment_id")},
                changes={
                    "refunded_fen": Sql("s.refunded_fen + u.amount_fen"),
                    "refund_committed_fen": Sql(
                        "s.refund_committed_fen"
                        " + CASE WHEN %(request_status)s::text = 'ABANDONED' THEN u.amount_fen ELSE 0 END"
                    ),
                    "version": Sql("s.version + 1"),
                },
            ),
        ],
        emit=Emit(
            "refund.succeeded", subject=OWNER_NO, payload={**IDENTITY, "succeeded_at": P("succeeded_at", "timestamptz")}
        ),
        returning=["version"],
    )
    for source in RefundAttempt.Status
    if source != Status.SUCCESS
}
"""The one success of a request: attempt, request and payment move together."""

SUCCEED_AGAIN = {
    source: Edge(
        RefundAttempt,
        "succeed",
        source=source,
        guards={"version": P("version"), "amount_fen": P("said_fen")},
        changes={**ENDED, "last_error": ""},
        writes=[KEPT],
        returning=["version"],
    )
    for source in SUCCEED
}
"""A success beside another one: kept as it is, changes nothing else, and is an anomaly."""

ACCEPT = {
    source: Edge(
        RefundAttempt,
        "accept",
        source=source,
        guards={"version": P("version")},
        changes={
            "channel_refund_id": REFUND_ID,
            "payer_fen": PAYER_FEN,
            "next_action_at": Sql(
                "CASE WHEN %(by_query)s::bool THEN t.next_action_at"
                " ELSE clock_timestamp() + %(query_after)s::int * interval '1 second' END"
            ),
            "finished_at": None,
            "resend": False,
            "last_error": "",
            "version": Sql("t.version + 1"),
        },
        writes=[KEPT],
        returning=["version"],
    )
    for source in (Status.CREATED, Status.SENT)
}

REVIVE = {
    Status.REFUSED: Edge(
        RefundAttempt,
        "accept",
        source=Status.REFUSED,
        guards={"version": P("version")},
        changes={
            "channel_refund_id": REFUND_ID,
            "payer_fen": PAYER_FEN,
            "next_action_at": Sql("clock_timestamp() + %(query_after)s::int * interval '1 second'"),
            "finished_at": None,
            "last_error": "",
            "version": Sql("t.version + 1"),
        },
        writes=[KEPT, _request(RefundRequest.Status.PENDING, {"failure_code": ""})],
        returning=["version"],
    )
}
"""We took a refusal for final and the channel works on the refund all the same: it lives again."""

RESEND = {
    source: Edge(
        RefundAttempt,
        method,
        guards={"version": P("version")},
        changes={"resend": True, "next_action_at": Sql("clock_timestamp()"), "version": Sql("t.version + 1")},
        returning=["version"],
    )
    for source, method in ((Status.SENT, "stay_sent"), (Status.PROCESSING, "stay_processing"))
}


HASTEN = Edge(
    RefundAttempt,
    "stay_processing",
    guards={"version": P("version")},
    changes={
        "next_action_at": Sql(
            "least(t.next_action_at, clock_timestamp() + %(query_after)s::int * interval '1 second')"
        ),
        "version": Sql("t.version + 1"),
    },
    returning=["version"],
)
"""The channel said that something happened, and not what: ask it soon."""

ASK_SOON_SECONDS = 10
"""After a notice without an amount (Alipay's carry the trade's cumulative refund only) the number is asked about this
soon; the channel wants so long between a refund and the question."""


def _failed(method: str, code: str, dead: bool) -> dict[Any, Edge]:
    sources = [Status.CREATED, Status.SENT, Status.PROCESSING, Status.REFUSED]
    more: dict[str, Any] = {}
    if method == "close":
        sources.append(Status.ABNORMAL)
    else:
        more = {"queries": 0, "picked_at": None}  # the slow questions about a parked refund count from here
    return {
        source: Edge(
            RefundAttempt,
            method,
            source=source,
            guards={"version": P("version")},
            changes={**ENDED, **more, "last_error": code},
            writes=[KEPT, _request(RefundRequest.Status.FAILED, {"failure_code": code})],
            emit=Emit("refund.failed", subject=OWNER_NO, payload={**IDENTITY, "code": code, "dead": dead}),
            returning=["version"],
        )
        for source in sources
    }


CLOSE = _failed("close", "CHANNEL_CLOSED", True)
PARK = _failed("park", "CHANNEL_ABNORMAL", False)
CLOSE_QUIETLY = {
    source: Edge(
        RefundAttempt,
        "close",
        source=source,
        guards={"version": P("version")},
        changes={**ENDED, "last_error": "CHANNEL_CLOSED"},
        writes=[KEPT],
        returning=["version"],
    )
    for source in CLOSE
}
"""Closed after the request ended another way: nothing is left to say to its owner."""

WITHDRAW = Edge(
    RefundAttempt,
    "withdraw",
    changes={
        "next_action_at": None,
        "finished_at": P("now"),
        "last_error": "WITHDRAWN",
        "version": Sql("t.version + 1"),
    },
    returning=["version"],
)


@dataclass(frozen=True)
class FactRecorded:
    """`outcome` is one of RefundFact.Outcome; `anomaly` names what was wrong, if anything."""

    refund_no: str
    outcome: str
    status: str
    anomaly: str = ""
    replayed: bool = False


def record_refund_fact(
    *,
    merchant_id: UUID,
    said: Said,
    source: str,
    notify_id: UUID | None = None,
    now: datetime,
) -> FactRecorded:
    """Judge one fact under the payment's row lock; the attempt is found by its full number. May join.

    Only terminal facts end an attempt, never backwards: SUCCESS is left by nothing. An amount, payment number or total
    that differs from ours moves nothing (`refund.anomaly`, both figures). CLOSED after SUCCESS moves nothing and is an
    anomaly. A second SUCCESS of one request keeps both rows and is an anomaly. NOT_FOUND proves nothing: the same
    number is sent again. `source`: answer, query, notify or bill. Raises NotFound (no such number of this merchant).
    """
    with unit_of_work(now=now):
        found = RefundAttempt.objects.filter(merchant_id=merchant_id, number=said.refund_no).only("payment_id").first()
        if found is None:
            raise errors.NotFound(refund_no=said.refund_no)
        payment = Payment.objects.select_for_update().select_related(None).get(id=found.payment_id)
        attempt = RefundAttempt.objects.select_related("request").get(id=found.id)
        heard = _Heard(said, source, notify_id, payment, attempt, attempt.request, now)
        wrong = heard.contradiction()
        if wrong:
            return heard.keep(Outcome.ANOMALY, anomaly=wrong)
        if said.state is RefundState.SUCCESS:
            return _success(heard)
        if said.state is RefundState.CLOSED:
            return _closed(heard)
        if said.state is RefundState.ABNORMAL:
            return _parked(heard)
        if said.state is RefundState.PROCESSING:
            return _processing(heard)
        return _not_found(heard)


@dataclass
class _Heard:
    """One fact beside our own rows, all under the payment's lock."""

    said: Said
    source: str
    notify_id: UUID | None
    payment: Payment
    attempt: RefundAttempt
    request: RefundRequest
    now: datetime

    def contradiction(self) -> str:
        """The name of what differs from our own record, or nothing."""
        said, payment = self.said, self.payment
        if said.state is RefundState.NOT_FOUND:
            return ""
        if said.amount_fen is not None and said.amount_fen != self.attempt.amount_fen:
            return "refund_amount_mismatch"
        if said.total_fen is not None and said.total_fen != payment.amount_fen:
            return "refund_total_mismatch"
        if said.out_trade_no and said.out_trade_no != payment.out_trade_no:
            return "refund_payment_mismatch"
        if said.trade_no and said.trade_no != payment.trade_no:
            return "refund_payment_mismatch"
        if said.state is RefundState.SUCCESS and said.amount_fen is None:
            return "refund_amount_missing"
        if said.payer_refund_fen is not None and not 0 <= said.payer_refund_fen <= self.attempt.amount_fen:
            return "refund_payer_mismatch"
        return ""

    def params(self, *, anomaly: str = "") -> dict[str, Any]:
        pace = pace_of(self.payment.account) if self.payment.account else None
        query_after = pace.query_after if pace else 600
        if self.source == RefundFact.Source.NOTIFY:
            query_after = min(query_after, ASK_SOON_SECONDS)
        return {
            "source": self.source,
            "state": self.said.state.value,
            "said_fen": self.said.amount_fen,
            "payer_fen": self.said.payer_refund_fen,
            "refund_id": self.said.refund_id[:64],
            "succeeded_at": self.said.succeeded_at or self.now,
            "notify_id": self.notify_id,
            "from_status": self.attempt.status,
            "anomaly": anomaly,
            "detail": "",
            "version": self.attempt.version,
            "request_status": self.request.status,
            "query_after": query_after,
            "by_query": self.source == RefundFact.Source.QUERY,
            "now": self.now,
        }

    def move(self, edges: dict[Any, Edge], *, anomaly: str = "") -> FactRecorded:
        """Advance along the edge that leaves the present status. The payment's lock makes the version certain."""
        edge = edges[Status(self.attempt.status)]
        if advance(edge, pk=self.attempt.id, params=self.params(anomaly=anomaly)) is None:
            raise errors.VersionConflict(refund_no=self.attempt.number)
        if anomaly:
            self.announce(anomaly)
        target = edges_of(RefundAttempt, edge.method)[self.attempt.status]
        return FactRecorded(self.attempt.number, Outcome.MOVED.value, target, anomaly)

    def keep(self, outcome: str, *, anomaly: str = "", detail: str = "") -> FactRecorded:
        """Store the fact without moving anything."""
        news = (
            bool(anomaly)
            and not RefundFact.objects.filter(
                attempt=self.attempt, anomaly=anomaly, state=self.said.state.value, amount_fen=self.said.amount_fen
            ).exists()
        )
        RefundFact.objects.create(
            merchant_id=self.attempt.merchant_id,
            attempt=self.attempt,
            source=self.source,
            state=self.said.state.value,
            amount_fen=self.said.amount_fen,
            payer_fen=self.said.payer_refund_fen,
            channel_refund_id=self.said.refund_id[:64],
            succeeded_at=self.said.succeeded_at,
            notify_id=self.notify_id,
            from_status=self.attempt.status,
            outcome=outcome,
            anomaly=anomaly,
            detail=detail,
            heard_at=self.now,
        )
        if news:
            self.announce(anomaly)
        replayed = outcome == Outcome.SAME
        return FactRecorded(self.attempt.number, str(outcome), self.attempt.status, anomaly, replayed=replayed)

    def announce(self, anomaly: str) -> None:
        """Tell the floors above: `refund.anomaly` with both sides' figures."""
        outbox.append(
            name="refund.anomaly",
            merchant_id=self.attempt.merchant_id,
            subject=self.attempt.number,
            payload={
                "kind": anomaly,
                "refund_request_id": str(self.request.id),
                "owner_kind": self.request.owner_kind,
                "owner_no": self.request.owner_no,
                "order_no": self.request.order_no,
                "refund_no": self.attempt.number,
                "channel": self.payment.channel,
                "source": self.source,
                "notify_id": str(self.notify_id) if self.notify_id else None,
                "ours": {
                    "status": self.attempt.status,
                    "amount_fen": self.attempt.amount_fen,
                    "total_fen": self.payment.amount_fen,
                    "out_trade_no": self.payment.out_trade_no,
                    "trade_no": self.payment.trade_no,
                },
                "theirs": {
                    "state": self.said.state.value,
                    "amount_fen": self.said.amount_fen,
                    "payer_fen": self.said.payer_refund_fen,
                    "total_fen": self.said.total_fen,
                    "out_trade_no": self.said.out_trade_no,
                    "trade_no": self.said.trade_no,
                },
            },
            now=self.now,
        )


def _success(heard: _Heard) -> FactRecorded:
    attempt, request, payment = heard.attempt, heard.request, heard.payment
    if attempt.status == Status.SUCCESS:
        return heard.keep(Outcome.SAME)
    if request.status == RefundRequest.Status.SUCCEEDED:
        return heard.move(SUCCEED_AGAIN, anomaly="double_refund")
    if (
        request.status == RefundRequest.Status.ABANDONED
        and payment.refund_committed_fen + attempt.amount_fen > payment.amount_fen
    ):
        return heard.move(SUCCEED_AGAIN, anomaly="refund_above_paid")
    recorded = heard.move(SUCCEED)
    later = RefundAttempt.objects.filter(request=request, status=Status.CREATED).exclude(id=attempt.id)
    for unsent in later:
        advance(WITHDRAW, pk=unsent.id, params={"now": heard.now})
    return recorded


def _closed(heard: _Heard) -> FactRecorded:
    if heard.attempt.status == Status.CLOSED:
        return heard.keep(Outcome.SAME)
    if heard.attempt.status == Status.SUCCESS:
        return heard.keep(Outcome.ANOMALY, anomaly="refund_closed_after_success")
    if heard.request.status in (RefundRequest.Status.SUCCEEDED, RefundRequest.Status.ABANDONED):
        return heard.move(CLOSE_QUIETLY)
    return heard.move(CLOSE)


def _parked(heard: _Heard) -> FactRecorded:
    if heard.attempt.status == Status.ABNORMAL:
        return heard.keep(Outcome.SAME)
    if heard.attempt.status == Status.SUCCESS:
        # Parked, then paid is an ordinary way; only a parking we never heard of before contradicts the success.
        if RefundFact.objects.filter(attempt=heard.attempt, state=RefundState.ABNORMAL.value).exists():
            return heard.keep(Outcome.IGNORED)
        return heard.keep(Outcome.ANOMALY, anomaly="refund_abnormal_after_success")
    if heard.attempt.status == Status.CLOSED:
        return heard.keep(Outcome.IGNORED)
    if heard.request.status in (RefundRequest.Status.SUCCEEDED, RefundRequest.Status.ABANDONED):
        return heard.keep(Outcome.ANOMALY, anomaly="refund_lives_after_end")
    return heard.move(PARK)


def _processing(heard: _Heard) -> FactRecorded:
    if heard.attempt.status in (Status.CREATED, Status.SENT):
        return heard.move(ACCEPT)
    if heard.attempt.status == Status.PROCESSING:
        if heard.source == RefundFact.Source.NOTIFY:
            advance(HASTEN, pk=heard.attempt.id, params=heard.params())
        return heard.keep(Outcome.SAME)
    if heard.attempt.status == Status.REFUSED:
        if heard.request.status == RefundRequest.Status.FAILED:
            return heard.move(REVIVE, anomaly="refused_refund_is_processing")
        return heard.keep(Outcome.ANOMALY, anomaly="refund_lives_after_end")
    return heard.keep(Outcome.IGNORED)


def _not_found(heard: _Heard) -> FactRecorded:
    """The channel knows no such number (yet). It may still have been accepted, so the very same one is sent again."""
    edge = RESEND.get(Status(heard.attempt.status))
    if edge is not None:
        advance(edge, pk=heard.attempt.id, params={"version": heard.attempt.version})
    return heard.keep(Outcome.UNKNOWN, detail="no such refund at the channel: the same number is sent again")
