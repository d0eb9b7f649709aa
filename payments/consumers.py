"""What payments does about events: wake a worker for a refund, take in a refund callback, ask where it says little."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from kernel import inbox, outbox
from kernel.tasks import send_quietly
from payments.commands.record_refund_fact import record_refund_fact
from payments.gateway import Channel, RefundFact, RefundState
from payments.models import ChannelNotify, RefundAttempt


@inbox.consumer("refund.requested", name="payments.wake_refund", atomic=False)
def wake_refund(event: inbox.Event) -> None:
    """Hand the attempt to a worker now. A lost task costs seconds: the sweep finds the row."""
    from payments.tasks import work_refund

    send_quietly(work_refund, event.payload["attempt_id"])


@inbox.consumer("refund.notified", name="payments.record_refund")
def record_refund(event: inbox.Event) -> None:
    """A verified refund callback → the fact it states. A number we never gave is an anomaly, not a crash."""
    notify = ChannelNotify.objects.get(id=UUID(event.payload["notify_id"]))
    said = _said(notify)
    assert notify.merchant_id is not None
    if RefundAttempt.objects.filter(merchant_id=notify.merchant_id, number=said.refund_no).exists():
        record_refund_fact(
            merchant_id=notify.merchant_id, said=said, source="notify", notify_id=notify.id, now=event.now
        )
    else:
        outbox.append(
            name="refund.anomaly",
            merchant_id=notify.merchant_id,
            subject=said.refund_no,
            payload={
                "kind": "refund_number_unknown",
                "refund_request_id": None,
                "owner_kind": "",
                "owner_no": "",
                "order_no": "",
                "refund_no": said.refund_no,
                "channel": notify.channel,
                "source": "notify",
                "notify_id": str(notify.id),
                "ours": {},
                "theirs": notify.facts,
            },
            now=event.now,
        )


def _said(notify: ChannelNotify) -> RefundFact:
    facts = notify.facts
    done = facts.get("succeeded_at")
    return RefundFact(
        channel=Channel(notify.channel),
        state=RefundState(facts["state"]),
        refund_no=facts["refund_no"],
        refund_id=facts.get("refund_id") or "",
        out_trade_no=facts.get("out_trade_no") or "",
        trade_no=facts.get("trade_no") or "",
        amount_fen=facts.get("amount_fen"),
        payer_refund_fen=facts.get("payer_refund_fen"),
        total_fen=facts.get("total_fen"),
        succeeded_at=datetime.fromisoformat(done) if done else None,
    )
