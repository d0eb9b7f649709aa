"""Each status of payments, refunds, callbacks and bills in a line."""

from django.utils.translation import gettext_lazy as _

from kernel.admin import Legend
from payments.models import ChannelBill, ChannelNotify, Payment, RefundRequest
from payments.pages import PAYMENT_TONES, REQUEST_TONES, VERDICT_TONES

BILL_TONES = {"PARSED": "success", "EMPTY": "neutral", "WAITING": "warning", "CORRUPT": "danger"}
PAYMENTS = [
    Legend(
        "status",
        {
            Payment.Status.CREATED: _("The number is stored; the channel does not know it yet."),
            Payment.Status.PREPAYING: _("Being placed at the channel; the answer is not here yet."),
            Payment.Status.AWAITING: _("Placed. The buyer can pay until the order's time-out."),
            Payment.Status.PAID: _("The channel has the money. What goes back is counted against it."),
            Payment.Status.CLOSED: _("Closed at the channel; nobody can pay it any more."),
        },
        PAYMENT_TONES,
    )
]
REFUNDS = [
    Legend(
        "status",
        {
            RefundRequest.Status.PENDING: _("Under way at the channel. It is asked again by itself."),
            RefundRequest.Status.SUCCEEDED: _("The buyer has the money."),
            RefundRequest.Status.FAILED: _(
                "The channel closed, refused or parked it. Finance tries again, sends parked money on, or pays offline."
            ),
            RefundRequest.Status.ABANDONED: _("Given up by two people; nothing can arrive any more."),
        },
        REQUEST_TONES,
    )
]
NOTIFIES = [
    Legend(
        "verdict",
        {
            ChannelNotify.Verdict.VERIFIED: _("Signed by the channel, and fresh. It is acted on once."),
            ChannelNotify.Verdict.FORGED: _("The signature is not the channel's. Kept as evidence, never acted on."),
            ChannelNotify.Verdict.STALE: _("Signed, but too old or too new: perhaps a replay. Not acted on."),
            ChannelNotify.Verdict.MALFORMED: _("Cannot be read as a callback. Not acted on."),
        },
        VERDICT_TONES,
    )
]
BILLS = [
    Legend(
        "state",
        {
            ChannelBill.State.WAITING: _(
                "The channel has not made it yet, usually before 10:00. Tried again by itself."
            ),
            ChannelBill.State.EMPTY: _("The channel says that nothing happened that day."),
            ChannelBill.State.PARSED: _("Read; its rows add up to its own summary."),
            ChannelBill.State.CORRUPT: _(
                "Its hash or its summary disagrees with its rows. The day is not judged by it."
            ),
        },
        BILL_TONES,
    )
]
