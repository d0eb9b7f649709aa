"""Pay: place the order's payment at its channel and give the client what it needs to pay there."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils.translation import gettext_lazy as _

from kernel import idempotency
from kernel.errors import IllegalTransition, InvalidInput, NotFound, Refusal
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from orders.commands.close_order import close_order
from orders.commands.create_order import OrderAlreadyPaid
from orders.commands.settle_charge import settle_charge
from orders.models import Order, PayMethod
from orders.tender import Heard, ask, close_at_channel, read_answer
from payments.commands.begin_prepay import PrepayBegun, begin_prepay
from payments.commands.finish_prepay import finish_prepay
from payments.commands.open_payment import open_payment
from payments.gateway import ChannelRefused, ChannelUnknown, Gateway, Prepaid
from payments.models import ChannelAccount, Payment
from payments.registry import gateway_for

PAID_THERE = ("ORDERPAID", "ACQ.TRADE_HAS_SUCCESS")
TOO_LITTLE = ("NOT_ENOUGH_BALANCE",)
"""Our own wallet's no: nothing is wrong with the order, the buyer may top up and pay it."""
ENDING = ("CLOSED",)
"""Our own wallet's no to a number that we have closed: somebody is just ending the order, and says why."""


class OrderNotPayable(Refusal):
    code = "ORDER_NOT_PAYABLE"
    message = _("The order cannot be paid any more.")


class NothingToPay(Refusal):
    code = "NOTHING_TO_PAY"
    message = _("There is nothing to pay for this order.")


class ChannelAway(Refusal):
    code = "CHANNEL_AWAY"
    status = 503
    message = _("The payment channel does not answer. Try again shortly; nothing was charged.")


class BalanceTooLow(Refusal):
    code = "NOT_ENOUGH_BALANCE"
    status = 422
    message = _("There is not enough money in the wallet. Top it up and pay again, or order with another way to pay.")


class ChannelRefusedPayment(Refusal):
    code = "CHANNEL_REFUSED_PAYMENT"
    status = 422
    message = _("The payment channel refused the payment, and the order was closed. Ask for a new quote.")


@dataclass(frozen=True)
class PaymentPlaced:
    """`client_params` go to the mini-program as they are. `status` is the order's: PAID where the channel pays on
    the spot (balance)."""

    order_no: str
    out_trade_no: str
    channel: str
    amount_fen: int
    client_params: dict[str, Any]
    expires_at: datetime
    status: int
    replayed: bool = False


def pay_order(
    *, merchant_id: UUID, order_no: str, user_id: str, payer_ref: str, key: BusinessKey, now: datetime
) -> PaymentPlaced:
    """The payment is stored as PREPAYING before the channel is called, and no transaction is open during the call.

    Called again while the payment waits → the same parameters. Raises NotFound, OrderAlreadyPaid, OrderNotPayable,
    NothingToPay, InvalidInput (no payer), ChannelAway (nothing known: call again), BalanceTooLow (the order stays
    payable), ChannelRefusedPayment (a definite no: the order is closed, `enqueue_fail`), and what open_payment raises.
    """
    replay = idempotency.find(key, PaymentPlaced)
    if replay is not None:
        return replay
    order, begun = _begin(merchant_id=merchant_id, order_no=order_no, user_id=user_id, payer_ref=payer_ref, now=now)
    params = begun.client_params
    if not begun.awaiting:
        payer = payer_of(order.pay_method, user_id=user_id, payer_ref=payer_ref)
        params = _place(order, begun, payer_ref=payer, now=now)
    order = Order.objects.get(id=order.id)
    placed = PaymentPlaced(
        order_no=order.order_no,
        out_trade_no=begun.out_trade_no,
        channel=order.pay_method,
        amount_fen=begun.amount_fen,
        client_params=params,
        expires_at=order.pay_expires_at,
        status=order.status,
    )
    with unit_of_work(now=now):
        earlier = idempotency.begin(key, PaymentPlaced, now=now)
        if earlier is None:
            idempotency.finish(key, placed)
    return earlier or placed


def payer_of(channel: str, *, user_id: str, payer_ref: str) -> str:
    """Who pays, as the channel calls them. A wallet is the buyer's own: nobody pays with another's. Raises
    InvalidInput."""
    if channel == PayMethod.BALANCE:
        if payer_ref not in ("", user_id):
            raise InvalidInput(fields={"payer_ref": [_("A balance is paid with by its owner only.")]})
        return user_id
    if not payer_ref:
        raise InvalidInput(fields={"payer_ref": [_("The payer's id at the channel is needed.")]})
    return payer_ref


def _begin(
    *, merchant_id: UUID, order_no: str, user_id: str, payer_ref: str, now: datetime
) -> tuple[Order, PrepayBegun]:
    with unit_of_work(now=now):
        order = (
            Order.objects.select_for_update()
            .filter(merchant_id=merchant_id, order_no=order_no, user_id=user_id)
            .first()
        )
        if order is None:
            raise NotFound(order_no=order_no)
        if order.pay_method == PayMethod.NONE:
            raise NothingToPay(order_no=order_no)
        if order.status in Order.PAID_OR_LATER:
            raise OrderAlreadyPaid(order_no=order_no, status=order.status)
        payer_of(order.pay_method, user_id=user_id, payer_ref=payer_ref)
        if order.status != Order.Status.PENDING or order.pay_expires_at <= now:
            raise OrderNotPayable(order_no=order_no, status=order.status, closed_reason=order.closed_reason)
        opened = open_payment(
            merchant_id=merchant_id,
            order_no=order_no,
            channel=order.pay_method,
            amount_fen=order.payable_fen,
            expires_at=order.pay_expires_at,
            now=now,
        )
    try:
        return order, begin_prepay(payment_id=opened.payment_id, now=now)
    except IllegalTransition as refusal:
        raise _too_late(order) from refusal


def _place(order: Order, begun: PrepayBegun, *, payer_ref: str, now: datetime) -> dict[str, Any]:
    account = ChannelAccount.objects.get(id=begun.account_id)
    gateway = gateway_for(account)
    try:
        prepaid = gateway.prepay(
            out_trade_no=begun.out_trade_no,
            amount_fen=begun.amount_fen,
            description=_description(order),
            payer_ref=payer_ref,
            notify_url=notify_url(account),
            expires_at=begun.expires_at,
            now=now,
        )
    except ChannelUnknown as unknown:
        raise ChannelAway(order_no=order.order_no, retry_after_seconds=3) from unknown
    except ChannelRefused as refused:
        _refused(order, begun, refused, now=now)
        raise ChannelRefusedPayment(order_no=order.order_no, channel_code=refused.code) from refused
    finished = finish_prepay(
        payment_id=begun.payment_id,
        prepay_id=prepaid.prepay_id,
        client_params=prepaid.client_params,
        payer_ref=payer_ref,
        now=now,
    )
    _settle_on_the_spot(begun, prepaid, now=now)
    if finished.status == Payment.Status.CLOSED:
        _withdraw(gateway, begun, now=now)
        raise _too_late(order)
    return dict(prepaid.client_params)


def _settle_on_the_spot(begun: PrepayBegun, prepaid: Prepaid, *, now: datetime) -> None:
    """A channel that pays at once (balance) answers the prepay with the paid fact itself."""
    if prepaid.fact is None:
        return
    answer = read_answer(prepaid.fact, amount_fen=begun.amount_fen)
    settle_charge(payment_id=begun.payment_id, heard=Heard(answer=answer, fact=prepaid.fact), now=now)


def _withdraw(gateway: Gateway, begun: PrepayBegun, *, now: datetime) -> None:
    """The order ended while the payment was being placed: close it at the channel, and look whether it was paid."""
    close_at_channel(gateway, begun.out_trade_no, now=now)
    payment = Payment.objects.select_related("account").get(id=begun.payment_id)
    settle_charge(payment_id=payment.id, heard=ask(payment, now=now), now=now)


def _refused(order: Order, begun: PrepayBegun, refused: ChannelRefused, *, now: datetime) -> None:
    """A definite no. "Paid already" is asked about, an empty wallet may be filled; any other ends the order, for it
    could not be placed."""
    payment = Payment.objects.select_related("account").get(id=begun.payment_id)
    if refused.code in TOO_LITTLE:
        raise BalanceTooLow(order_no=order.order_no) from refused
    if refused.code in ENDING:
        raise _too_late(order) from refused
    if refused.code in PAID_THERE:
        settle_charge(payment_id=payment.id, heard=ask(payment, now=now), now=now)
    else:
        close_order(
            order_id=order.id,
            reason=Order.ClosedReason.ENQUEUE_FAIL.value,
            now=now,
            note=f"{refused.status} {refused.code}",
            prepay_answered=True,
        )
    order = Order.objects.get(id=order.id)
    if order.status in Order.PAID_OR_LATER:
        raise OrderAlreadyPaid(order_no=order.order_no, status=order.status)
    if order.status == Order.Status.PENDING:
        raise ChannelAway(order_no=order.order_no, retry_after_seconds=10)


def _too_late(order: Order) -> Refusal:
    """Somebody was faster: paid it, or is just ending it."""
    now_is = Order.objects.get(id=order.id)
    if now_is.status in Order.PAID_OR_LATER:
        return OrderAlreadyPaid(order_no=now_is.order_no, status=now_is.status)
    return OrderNotPayable(order_no=now_is.order_no, status=now_is.status, closed_reason=now_is.closed_reason)


def _description(order: Order) -> str:
    """What the payer sees in the channel's app: the first article, and how many more."""
    titles = list(order.lines.order_by("line_no").values_list("title", flat=True))
    more = f" +{len(titles) - 1}" if len(titles) > 1 else ""
    return f"{titles[0][: 100 - len(more)]}{more}"


def notify_url(account: ChannelAccount) -> str:
    """Where the channel shall post what became of a payment. The account in the path tells its keys."""
    return f"{settings.QUITS_BASE_URL}/api/v1/orders/notify/{account.channel}/{account.id}"
