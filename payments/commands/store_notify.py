"""Judge a callback and keep it. Durable first, acknowledged after, worked on from the inbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from kernel import numbers, outbox
from kernel.transactions import unit_of_work
from payments.accounts import accounts_for_notify
from payments.gateway import (
    ChannelUnknown,
    Gateway,
    NotifyAnswer,
    NotifyRejected,
    PaymentFact,
    PaymentNotice,
    RefundFact,
    RefundNotice,
    Verdict,
)
from payments.models import ChannelAccount, ChannelNotify
from payments.registry import gateway_for

MAX_BODY = 64 * 1024
"""No channel sends more; anything above is malformed before it is read."""
MAX_REFUSED_BODY = 4096
MAX_REFUSED_PER_MINUTE = 30
"""Refused notifies kept of one address in a minute; what comes above is answered and logged, not stored."""

KEPT_HEADERS = ("wechatpay-", "content-type", "content-length", "user-agent", "request-id")
TELLING = (Verdict.STALE, Verdict.MALFORMED, Verdict.FORGED)
"""Which verdict to keep when several accounts were tried: the one that got furthest."""

log = structlog.get_logger(__name__)

Notice = PaymentNotice | RefundNotice


@dataclass(frozen=True)
class NotifyStored:
    """`answer` goes back to the channel as it is. `notify_id` is None when nothing was kept (rate limit, or the keys
    to judge it by were away)."""

    notify_id: UUID | None
    verdict: str
    kind: str
    answer: NotifyAnswer


@dataclass(frozen=True)
class Judged:
    verdict: Verdict | None
    reason: str
    answer: NotifyAnswer
    account: ChannelAccount | None = None
    notice: Notice | None = None


def store_notify(
    *,
    channel: str,
    kind: str,
    headers: Mapping[str, str],
    body: bytes,
    address: str,
    account_id: UUID | None = None,
    now: datetime,
) -> NotifyStored:
    """Verify by the driver, store the raw notify with its verdict and, when VERIFIED, append `payment.notified` or
    `refund.notified` (by what it is, not by where it was posted: Alipay posts both to the payment's address).

    Its own transaction; a database error leaves as an exception, and the channel will send it again. Nothing but
    what the signature covers is believed; whose payment it is and whether amounts agree is the consumers' business.
    """
    judged = _judge(channel=channel, headers=headers, body=body, account_id=account_id, now=now)
    if judged.verdict is None:
        log.warning("notify.not_judged", channel=channel, kind=kind, reason=judged.reason)
        return NotifyStored(None, "", kind, judged.answer)
    if judged.verdict is not Verdict.VERIFIED:
        log.warning("notify.refused", channel=channel, kind=kind, verdict=judged.verdict, reason=judged.reason)
        if _too_many_refused(address, now=now):
            return NotifyStored(None, judged.verdict, kind, judged.answer)
    row = _row(judged, channel=channel, kind=kind, headers=headers, body=body, address=address, now=now)
    with unit_of_work(now=now):
        row.save(force_insert=True)
        if judged.verdict is Verdict.VERIFIED:
            outbox.append(
                name=f"{row.kind}.notified",
                merchant_id=row.merchant_id,
                subject=row.refund_no or row.out_trade_no,
                payload={"notify_id": str(row.id)},
                now=now,
            )
    return NotifyStored(row.id, judged.verdict, row.kind, judged.answer)


def _judge(*, channel: str, headers: Mapping[str, str], body: bytes, account_id: UUID | None, now: datetime) -> Judged:
    """Try the accounts whose keys may have signed it; the first that verifies it owns it."""
    refused = Judged(Verdict.FORGED, "no account of ours", NotifyAnswer(status=401))
    unknown: Judged | None = None
    for account in accounts_for_notify(channel=channel, headers=headers, account_id=account_id):
        gateway = gateway_for(account)
        if len(body) > MAX_BODY:
            return Judged(Verdict.MALFORMED, "body too large", _refusal(gateway, Verdict.MALFORMED))
        try:
            notice = gateway.parse_notify(headers=headers, body=body, now=now)
        except ChannelUnknown as error:
            unknown = Judged(None, str(error)[:200], gateway.nack("try again"))
            continue
        except NotifyRejected as error:
            if TELLING.index(error.verdict) <= TELLING.index(refused.verdict or Verdict.FORGED):
                refused = Judged(error.verdict, error.reason[:200], _refusal(gateway, error.verdict))
            continue
        if not _is_for(account, notice):
            reason = "signed for another merchant number or app"
            refused = Judged(Verdict.MALFORMED, reason, _refusal(gateway, Verdict.MALFORMED))
            continue
        return Judged(Verdict.VERIFIED, "", gateway.ack(), account, notice)
    return unknown or refused


def _refusal(gateway: Gateway, verdict: Verdict) -> NotifyAnswer:
    """The channel's own form of "no", with a status that says whose fault it is."""
    return replace(gateway.nack("refused"), status=400 if verdict is Verdict.MALFORMED else 401)


def _is_for(account: ChannelAccount, notice: Notice) -> bool:
    if isinstance(notice, RefundNotice):
        return notice.merchant_ref in ("", account.mchid)
    return notice.fact.merchant_ref in ("", account.mchid) and notice.fact.app_id in ("", account.app_id)


def _too_many_refused(address: str, *, now: datetime) -> bool:
    kept = ChannelNotify.objects.filter(address=address, received_at__gt=now - timedelta(minutes=1))
    return kept.exclude(verdict="VERIFIED")[:MAX_REFUSED_PER_MINUTE].count() >= MAX_REFUSED_PER_MINUTE


def _row(
    judged: Judged, *, channel: str, kind: str, headers: Mapping[str, str], body: bytes, address: str, now: datetime
) -> ChannelNotify:
    notice = judged.notice
    verified = notice is not None
    row = ChannelNotify(
        id=numbers.uuid7(),
        channel=channel[:16],
        kind=kind,
        account=judged.account,
        merchant_id=judged.account.merchant_id if judged.account else None,
        verdict=str(judged.verdict),
        reason=judged.reason,
        headers=_kept_headers(headers, limit=1024 if verified else 256),
        body=body if verified else body[:MAX_REFUSED_BODY],
        body_size=len(body),
        address=address[:64],
        received_at=now,
    )
    if notice is not None:
        row.kind = "refund" if isinstance(notice, RefundNotice) else "payment"
        row.notify_no = notice.notify_id[:128]
        row.event_type = notice.event_type[:64]
        row.out_trade_no = notice.fact.out_trade_no[:64]
        row.trade_no = notice.fact.trade_no[:64]
        row.refund_no = notice.fact.refund_no[:64] if isinstance(notice, RefundNotice) else ""
        row.facts = facts_of(notice.fact)
    return row


def _kept_headers(headers: Mapping[str, str], *, limit: int) -> dict[str, str]:
    names = [name for name in headers if name.lower().startswith(KEPT_HEADERS)]
    return {name[:64]: str(headers[name])[:limit].replace("\x00", "") for name in names[:16]}


def facts_of(fact: PaymentFact | RefundFact) -> dict[str, Any]:
    """A fact as plain JSON, without the payer's identity and without the raw answer."""
    if isinstance(fact, RefundFact):
        return {
            "state": fact.state.value,
            "refund_no": fact.refund_no,
            "refund_id": fact.refund_id,
            "out_trade_no": fact.out_trade_no,
            "trade_no": fact.trade_no,
            "amount_fen": fact.amount_fen,
            "payer_refund_fen": fact.payer_refund_fen,
            "total_fen": fact.total_fen,
            "succeeded_at": fact.succeeded_at.isoformat() if fact.succeeded_at else None,
        }
    return {
        "state": fact.state.value,
        "out_trade_no": fact.out_trade_no,
        "trade_no": fact.trade_no,
        "amount_fen": fact.amount_fen,
        "payer_paid_fen": fact.payer_paid_fen,
        "paid_at": fact.paid_at.isoformat() if fact.paid_at else None,
    }
