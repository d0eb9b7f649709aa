"""Each status of after-sales in a line: what it means, and who has to do what."""

from django.utils.translation import gettext_lazy as _

from aftersales.claim_page import TONES
from aftersales.models import ArbitrationCase, RiskReview, Status
from kernel.admin import Legend

CLAIMS = [
    Legend(
        "status",
        {
            Status.WAIT_AUDIT: _(
                "The merchant approves or refuses. After the deadline an unshipped refund approves itself if the shop"
                " wants it so; everything else goes to the platform."
            ),
            Status.WAIT_BUYER_RETURN: _(
                "Approved. The buyer sends the goods back and enters the parcel; after the deadline the claim ends."
            ),
            Status.WAIT_MERCHANT_RECEIVE: _(
                "The parcel is on its way to the merchant, or there. The refund starts when its contents are counted."
            ),
            Status.WAIT_BUYER_PAY: _(
                "The new goods cost more. The buyer pays the difference, or the exchange becomes a refund."
            ),
            Status.WAIT_MERCHANT_SHIP: _(
                "The merchant sends the replacement and enters the parcel. An exchange that is not sent in time becomes"
                " a refund."
            ),
            Status.WAIT_BUYER_CONFIRM: _("The replacement is on its way. The buyer or the deadline confirms it."),
            Status.REFUNDING: _("The money is on its way back through the channel. Nothing is left to do by hand."),
            Status.REFUND_FAILED: _(
                "The channel will not pay this number. Try again, pay another way with a voucher, or give it up: a"
                " second person confirms the last two."
            ),
            Status.REFUND_SUCCESS: _(
                "The buyer has the money. Stock, coupon, points, commission and sales figures are turned back."
            ),
            Status.COMPLETED: _("The replacement arrived. The claim is over."),
            Status.REJECTED: _("Refused with a reason. The buyer may call the platform in."),
            Status.CANCELED: _("The buyer withdrew it, a deadline passed, or a decision replaced it."),
        },
        TONES,
    )
]
CASES = [
    Legend(
        "state",
        {
            ArbitrationCase.State.OPEN: _(
                "Both sides may speak and show images. Deadlines stand still until the platform decides."
            ),
            ArbitrationCase.State.DECIDED: _("Decided for good. What was awarded went to the buyer at once."),
            ArbitrationCase.State.WITHDRAWN: _("The party that asked for it took it back."),
        },
        {"OPEN": "danger", "DECIDED": "success", "WITHDRAWN": "neutral"},
    )
]
REVIEWS = [
    Legend(
        "state",
        {
            RiskReview.State.OPEN: _("Auto-approval and deadlines leave the claim alone until somebody has looked."),
            RiskReview.State.CLEARED: _("Looked at, nothing wrong. The claim goes its usual way again."),
            RiskReview.State.CONFIRMED: _("Looked at, suspicious. Only people decide this claim from now on."),
        },
        {"OPEN": "danger", "CLEARED": "success", "CONFIRMED": "warning"},
    )
]
