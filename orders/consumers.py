"""What orders do about events. Consumers that may talk to a channel or to Valkey run outside a transaction."""

from uuid import UUID

from kernel import inbox
from orders import status_board
from orders.commands._coordinate_coupon import coordinate_overdue_lease
from orders.commands.deliver_order import finish_fulfilment
from orders.commands.fulfil_order import fulfil_order
from orders.commands.open_anomaly import open_anomaly
from orders.commands.settle_notice import settle_notice
from orders.models import Anomaly, Order

STATUS_EVENTS = (
    "order.created",
    "order.paid",
    "order.closed",
    "order.cancelled",
    "order.reopened",
    "order.delivered",
    "order.completed",
)


@inbox.consumer("payment.notified", name="orders.settle_notice", atomic=False)
def settle(event: inbox.Event) -> None:
    """A verified callback is durable: decide it. What cannot be decided yet is tried again with back-off."""
    settled = settle_notice(notify_id=UUID(event.payload["notify_id"]), now=event.now)
    if settled.again:
        raise inbox.Later(settled.outcome)


@inbox.consumer("order.paid", name="orders.fulfil_order", atomic=False)
def fulfil(event: inbox.Event) -> None:
    """A paid order: run the handlers of its product kinds. A failure is put off on the order's own row."""
    fulfil_order(order_id=UUID(event.payload["order_id"]), now=event.now)


@inbox.consumer("after_sales.refunded", name="orders.finish_fulfilment")
def finish(event: inbox.Event) -> None:
    """Units were refunded: perhaps only they were missing, or nothing is left to deliver."""
    order = Order.objects.get(merchant_id=event.merchant_id, order_no=event.payload["order_no"])
    if order.status == Order.Status.PAID:
        finish_fulfilment(order_id=order.id, now=event.now)


@inbox.consumer("coupon.lease_overdue", name="orders.coordinate_overdue_lease")
def coordinate(event: inbox.Event) -> None:
    """The scanner found an overdue lease of an order that was paid, in full or in part: not its to release."""
    coordinate_overdue_lease(merchant_id=event.merchant_id, order_no=event.payload["order_no"], now=event.now)


@inbox.consumer("refund.failed", name="orders.queue_failed_refund")
def queue_failed_refund(event: inbox.Event) -> None:
    """Money that orders send back by themselves did not arrive: people have to see to it."""
    said = event.payload
    if said["owner_kind"] != "order_payment":
        return
    order = Order.objects.filter(merchant_id=event.merchant_id, order_no=said["order_no"]).first()
    open_anomaly(
        merchant_id=event.merchant_id,
        kind=Anomaly.Kind.REFUND_FAILED,
        order=order,
        order_no=said["order_no"],
        trade_no=said["owner_no"],
        facts={"refund_request_id": said["refund_request_id"]},
        evidence=said,
        outcome="needs a person",
        now=event.now,
    )


@inbox.consumer("refund.anomaly", name="orders.queue_refund_drift")
def queue_refund_drift(event: inbox.Event) -> None:
    """What the channel says of a refund is not what we asked for: nothing moved, people compare both figures."""
    said = event.payload
    order = Order.objects.filter(merchant_id=event.merchant_id, order_no=said["order_no"]).first()
    open_anomaly(
        merchant_id=event.merchant_id,
        kind=Anomaly.Kind.REFUND_DRIFT,
        order=order,
        order_no=said["order_no"],
        facts={"refund_no": said["refund_no"], "difference": said["kind"]},
        evidence=said,
        outcome="nothing was moved",
        now=event.now,
    )


def show(event: inbox.Event) -> None:
    """Tell the clients that watch this order, and refresh what pollers read."""
    status_board.publish(UUID(event.payload["order_id"]), now=event.now)


for _name in STATUS_EVENTS:
    inbox.consumer(_name, name="orders.show_status", atomic=False)(show)
