"""A shop whose account speaks to a running simulator through the real driver, and the few words tests need about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import connection

from kernel import numbers, stream
from payments.commands.open_payment import open_payment
from payments.commands.pick_due_refunds import pick_due_refunds
from payments.commands.pursue_refund import pursue_refund
from payments.commands.record_payment_paid import record_payment_paid
from payments.commands.request_refund import RefundRequested, request_refund
from payments.commands.save_account import save_account
from payments.models import ChannelAccount, Payment, RefundAttempt, RefundRequest
from payments.registry import gateway_for
from payments.simulator.client import SimulatorClient
from payments.simulator.keys import alipay_account, wechat_account
from tests.merchants.factories import a_merchant

HASTE = {
    "refund_spacing_seconds": 0,
    "query_after_seconds": 0,
    "query_backoff_seconds": [0],
    "retry_wait_seconds": [0],
}
"""A pace for tests: everything is due at once."""


def moment() -> datetime:
    """The real time: signatures and PostgreSQL's clock use it too."""
    return datetime.now(UTC)


@dataclass
class Trader:
    """A merchant with one account at the simulator."""

    sim: SimulatorClient
    merchant_id: UUID
    account: ChannelAccount

    @classmethod
    def open(
        cls, sim: SimulatorClient, keys: dict[str, Any], *, channel: str = "wechat", number: int = 0, **settings: Any
    ) -> Trader:
        make = {"wechat": wechat_account, "alipay": alipay_account}[channel]
        row = make(keys, number, sim.base_url)
        merchant = a_merchant(now=moment(), code=f"{channel}-{number}")
        saved = save_account(
            merchant_id=merchant.pk,
            channel=channel,
            mchid=row["mchid"],
            app_id=row["app_id"],
            settings={**row["settings"], "timeouts": {"read": 0.5}, "pace": HASTE, **settings},
            secret_values=row["secrets"],
            now=moment(),
        )
        return cls(sim, merchant.pk, ChannelAccount.objects.get(id=saved.account_id))

    def pace(self, **changes: Any) -> None:
        """Another pace from now on."""
        self.account.settings["pace"] = {**HASTE, **changes}
        ChannelAccount.objects.filter(id=self.account.id).update(settings=self.account.settings)

    def paid(
        self, amount_fen: int = 26000, *, voucher_fen: int = 0, notify_url: str = "https://127.0.0.1:1/unused"
    ) -> Payment:
        """An order placed at the channel and paid there, `voucher_fen` of it by the channel's own voucher."""
        gateway = gateway_for(self.account)
        opened = open_payment(
            merchant_id=self.merchant_id,
            order_no=numbers.next_number("order"),
            channel=self.account.channel,
            amount_fen=amount_fen,
            now=moment(),
        )
        gateway.prepay(
            out_trade_no=opened.out_trade_no,
            amount_fen=amount_fen,
            description="坚果与茶",
            payer_ref="oUpF8uMuAJO_M2pxb1Q9zNjWeS6o",
            notify_url=notify_url,
            expires_at=None,
            now=moment(),
        )
        self.sim.pay(opened.out_trade_no, notify=False, channel=self.account.channel, voucher_fen=voucher_fen)
        fact = gateway.query_payment(out_trade_no=opened.out_trade_no, now=moment())
        assert fact.amount_fen is not None
        record_payment_paid(
            payment_id=opened.payment_id,
            trade_no=fact.trade_no,
            amount_fen=fact.amount_fen,
            payer_paid_fen=fact.payer_paid_fen,
            paid_at=fact.paid_at or moment(),
            now=moment(),
        )
        return Payment.objects.get(id=opened.payment_id)

    def refund(self, payment: Payment, amount_fen: int, owner_no: str = "") -> RefundRequested:
        return request_refund(
            merchant_id=self.merchant_id,
            payment_id=payment.id,
            owner_kind="after_sales",
            owner_no=owner_no or numbers.next_number("after_sales"),
            amount_fen=amount_fen,
            reason="商品破损",
            now=moment(),
        )

    def at_channel(self, payment: Payment) -> list[tuple[str, int, str]]:
        """(number, fen, state) of every refund the channel has for this payment."""
        rows = self.sim.get(f"orders/{payment.out_trade_no}")["refunds"]
        return [(row["refund_no"], row["amount_fen"], row["state"]) for row in rows]


def step(refund: RefundRequested) -> Any:
    """One step of the refund's newest attempt."""
    return pursue_refund(attempt_id=newest(refund).id, now=moment())


def newest(refund: RefundRequested) -> RefundAttempt:
    attempt = RefundAttempt.objects.filter(request_id=refund.refund_request_id).order_by("-seq").first()
    assert attempt is not None
    return attempt


def request(refund: RefundRequested) -> RefundRequest:
    return RefundRequest.objects.get(id=refund.refund_request_id)


def make_due(refund: RefundRequested) -> None:
    """As if its time had come."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE refund_attempt SET next_action_at = now() - interval '1 second'"
            " WHERE request_id = %s AND next_action_at IS NOT NULL",
            [refund.refund_request_id],
        )


def work_until(done: Callable[[], bool], *, seconds: float = 20) -> None:
    """Sweep, take steps and deliver events, as the workers do, until something is true."""
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, list(
            RefundAttempt.objects.values_list("number", "status", "last_error", "sends", "queries")
        )
        picked = pick_due_refunds()
        for attempt_id in picked:
            pursue_refund(attempt_id=attempt_id, now=moment())
        if picked:
            with connection.cursor() as cursor:
                cursor.execute("UPDATE refund_attempt SET picked_at = NULL WHERE id = ANY(%s)", [picked])
        stream.drain(now=moment())
        if not done():
            time.sleep(0.05)
