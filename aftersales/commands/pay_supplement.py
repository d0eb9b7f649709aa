"""Place a supplement's payment at its channel and give the client what it needs to pay there."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from aftersales.claims import get_claim
from aftersales.commands.settle_supplement import settle_supplement
from aftersales.models import Status
from kernel.errors import IllegalTransition, NotFound, Refusal
from orders.commands.pay_order import ChannelAway, notify_url, payer_of
from payments.commands.begin_prepay import PrepayBegun, begin_prepay
from payments.commands.finish_prepay import finish_prepay
from payments.gateway import ChannelRefused, ChannelUnknown
from payments.models import ChannelAccount, Payment
from payments.registry import gateway_for


class SupplementRefused(Refusal):
    code = "CHANNEL_REFUSED_PAYMENT"
    status = 422
    message = _("The payment channel refused the supplement.")


@dataclass(frozen=True)
class SupplementPlaced:
    """`client_params` go to the mini-program as they are. `status` is the claim's."""

    after_sales_no: str
    out_trade_no: str
    channel: str
    amount_fen: int
    client_params: dict[str, Any]
    expires_at: datetime | None
    status: str
    replayed: bool = False


def pay_supplement(
    *, merchant_id: UUID, after_sales_no: str, user_id: str, payer_ref: str, now: datetime
) -> SupplementPlaced:
    """The payment is PREPAYING before the channel is called, and no transaction is open during the call.

    Called again while it waits → the same parameters, so it needs no key of its own. Raises NotFound, IllegalTransition
    (nothing to pay now), ChannelAway, SupplementRefused.
    """
    claim = get_claim(merchant_id=merchant_id, after_sales_no=after_sales_no, user_id=user_id)
    if claim.status != Status.WAIT_BUYER_PAY:
        raise IllegalTransition(after_sales_no=after_sales_no, status=claim.status)
    payment = Payment.objects.filter(merchant_id=merchant_id, out_trade_no=claim.exchange.supplement_no).first()
    if payment is None:
        raise NotFound(after_sales_no=after_sales_no)
    payer = payer_of(payment.channel, user_id=user_id, payer_ref=payer_ref)
    begun = begin_prepay(payment_id=payment.pk, now=now)
    params = begun.client_params if begun.awaiting else _place(begun, payer_ref=payer, now=now)
    claim.refresh_from_db(fields=["status"])
    return SupplementPlaced(
        after_sales_no=after_sales_no,
        out_trade_no=begun.out_trade_no,
        channel=payment.channel,
        amount_fen=begun.amount_fen,
        client_params=params,
        expires_at=begun.expires_at,
        status=str(claim.status),
    )


def _place(begun: PrepayBegun, *, payer_ref: str, now: datetime) -> dict[str, Any]:
    account = ChannelAccount.objects.get(id=begun.account_id)
    try:
        prepaid = gateway_for(account).prepay(
            out_trade_no=begun.out_trade_no,
            amount_fen=begun.amount_fen,
            description="exchange supplement",
            payer_ref=payer_ref,
            notify_url=notify_url(account),
            expires_at=begun.expires_at,
            now=now,
        )
    except ChannelUnknown as unknown:
        raise ChannelAway(out_trade_no=begun.out_trade_no, retry_after_seconds=3) from unknown
    except ChannelRefused as refused:
        raise SupplementRefused(out_trade_no=begun.out_trade_no, channel_code=refused.code) from refused
    finish_prepay(
        payment_id=begun.payment_id,
        prepay_id=prepaid.prepay_id,
        client_params=prepaid.client_params,
        payer_ref=payer_ref,
        now=now,
    )
    if prepaid.fact is not None:
        settle_supplement(payment_id=begun.payment_id, fact=prepaid.fact, now=now)
    return dict(prepaid.client_params)
