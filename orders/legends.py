"""Each status of orders, quotes and anomalies in a line: what it means, and what to do about it."""

from django.utils.translation import gettext_lazy as _

from kernel.admin import Legend
from orders.models import Anomaly, CouponState, Order, Quote
from orders.order_page import ANOMALY_TONES, COUPON_TONES, FULFILMENT_TONES, TONES

ORDERS = [
    Legend(
        "status",
        {
            Order.Status.PENDING: _("Stock and coupon are held. Unpaid after the time-out, the order closes itself."),
            Order.Status.PAID: _("The money is there. Ship it, or wait for the units under a claim."),
            Order.Status.DELIVERED: _("Every unit was signed for or granted. The return window runs."),
            Order.Status.COMPLETED: _("The return window is over, or the buyer confirmed. Commission matures."),
            Order.Status.CLOSED: _(
                "Ended unpaid. A late payment reopens it if nothing has changed, else it is refunded."
            ),
            Order.Status.CANCELLED: _("The buyer cancelled. It never reopens; a late payment is refunded."),
        },
        TONES,
    ),
    Legend(
        "coupon_state",
        {
            CouponState.LEASED: _("The coupon is held for this order until it is paid or ends."),
            CouponState.REDEEMED: _("The coupon was used for this order."),
            CouponState.RELEASED: _("The order ended unpaid; its holder can use the coupon again."),
            CouponState.HONOURED: _("The price was kept although the coupon is somebody else's."),
            CouponState.CONFLICT: _(
                "Paid, but the coupon was gone. Keep the price within ten minutes, or it is refunded by itself."
            ),
        },
        COUPON_TONES,
    ),
    Legend(
        "fulfilment",
        {
            Order.Fulfilment.WAITING: _("Nothing has left yet."),
            Order.Fulfilment.PARTIAL: _("Some units have left, others wait."),
            Order.Fulfilment.DONE: _("Every unit that is still wanted has left."),
            Order.Fulfilment.VOID: _("Every unit was refunded before it left: nothing is to be shipped."),
        },
        FULFILMENT_TONES,
    ),
]
QUOTES = [
    Legend(
        "state",
        {
            Quote.State.OPEN: _("The price stands for a few minutes, and the coupon is held."),
            Quote.State.ORDERED: _("An order was made from it."),
            Quote.State.REUSED: _("The buyer had an open order for the same goods; that one goes on."),
            Quote.State.REPLACED: _("The buyer asked again; the newer price holds the coupon."),
            Quote.State.EXPIRED: _("Nobody ordered in time. What it held is free again."),
        },
        {"OPEN": "info", "ORDERED": "success"},
    )
]
ANOMALIES = [
    Legend(
        "kind",
        {
            Anomaly.Kind.AMOUNT_MISMATCH: _(
                "The channel took another amount than the order asks. The order was closed and the money goes back"
                " unless it says otherwise below; compare both figures, then resolve."
            ),
            Anomaly.Kind.TRADE_NO_MISMATCH: _(
                "The buyer paid twice. The second charge is refunded; see that the refund arrived, then resolve."
            ),
            Anomaly.Kind.PAID_ON_CLOSED: _(
                "A payment was reported after the order had closed for good. What arrived goes back; tell the buyer."
            ),
            Anomaly.Kind.PAID_ON_CANCELLED: _(
                "The buyer cancelled while paying. The order stays cancelled, what arrived goes back; tell the buyer."
            ),
            Anomaly.Kind.ORDER_DISAPPEARED: _(
                "A verified callback names no order of ours. Ask who placed this payment; refund it at the channel."
            ),
            Anomaly.Kind.UNEXPECTED_STATUS: _(
                "The channel says something that fits no step of this order. Nothing moved; ask the channel again."
            ),
            Anomaly.Kind.DELIVERY_FAILED: _(
                "Paid, but handing over failed. It is tried again by itself; read the error if it stays."
            ),
            Anomaly.Kind.GATEWAY_QUERY_FAILED: _(
                "The channel gave no answer, so nobody knows whether it was paid. Ask it now."
            ),
            Anomaly.Kind.MALFORMED_PAID_NOTIFY: _(
                "A signed callback without amount or trade number. Nothing moved; ask the channel what it means."
            ),
            Anomaly.Kind.REFUND_DRIFT: _(
                "The channel reports another refund than we asked for. Nothing moved; finance compares both figures."
            ),
            Anomaly.Kind.REFUND_FAILED: _(
                "Money that has to go back did not arrive. Finance tries it again or pays another way."
            ),
            Anomaly.Kind.SUPERSEDED_GATEWAY_CLOSE_FAILED: _(
                "An older order could not be closed at the channel, so the buyer cannot order again. Ask it now."
            ),
            Anomaly.Kind.COUPON_CONFLICT: _(
                "Paid at a price whose coupon another order has. Operations keeps the price; otherwise it is refunded"
                " after ten minutes."
            ),
        },
    ),
    Legend(
        "state",
        {
            Anomaly.State.OPEN: _("Nobody looks into it yet. Take it, so that two people do not do it twice."),
            Anomaly.State.ASSIGNED: _("Somebody looks into it."),
            Anomaly.State.RESOLVED: _("Over, with how it was resolved."),
        },
        ANOMALY_TONES,
    ),
]
