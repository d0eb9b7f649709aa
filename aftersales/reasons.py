"""Why a buyer applies: each reason names the types it fits and who is at fault unless somebody confirms otherwise."""

from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from aftersales.models import Liability, Type

GOODS_BACK = frozenset({Type.REFUND_ONLY, Type.RETURN})
ANY_GOODS = GOODS_BACK | {Type.EXCHANGE}


@dataclass(frozen=True, slots=True)
class Reason:
    label: Promise
    types: frozenset[Type]
    liability: Liability


REASONS: dict[str, Reason] = {
    "changed_mind": Reason(_("Changed my mind"), ANY_GOODS, Liability.BUYER),
    "ordered_wrong": Reason(_("Ordered the wrong thing"), ANY_GOODS, Liability.BUYER),
    "wrong_size": Reason(_("Size or colour does not fit"), ANY_GOODS, Liability.BUYER),
    "refused_parcel": Reason(_("Refused the parcel"), GOODS_BACK, Liability.BUYER),
    "quality": Reason(_("Quality problem"), ANY_GOODS, Liability.MERCHANT),
    "wrong_item": Reason(_("Wrong item sent"), ANY_GOODS, Liability.MERCHANT),
    "damaged": Reason(_("Arrived damaged"), ANY_GOODS | {Type.RESHIP}, Liability.MERCHANT),
    "not_as_described": Reason(_("Not as described"), ANY_GOODS, Liability.MERCHANT),
    "missing_parts": Reason(_("Something is missing"), ANY_GOODS | {Type.RESHIP}, Liability.MERCHANT),
    "late_delivery": Reason(_("Not delivered in time"), GOODS_BACK, Liability.MERCHANT),
    "not_received": Reason(_("Never received"), GOODS_BACK | {Type.RESHIP}, Liability.MERCHANT),
    "price_drop": Reason(_("The price fell"), frozenset({Type.PRICE_PROTECTION}), Liability.MERCHANT),
    "order_refund": Reason(_("The whole order is refunded"), frozenset({Type.REFUND_ONLY}), Liability.MERCHANT),
    "arbitration": Reason(_("Decided by arbitration"), frozenset(Type), Liability.MERCHANT),
    "exchange_difference": Reason(
        _("The replacement is cheaper"), frozenset({Type.PRICE_PROTECTION}), Liability.MERCHANT
    ),
}
"""By code. The last three are the system's own; buyers cannot name them."""

SYSTEM_REASONS = frozenset({"order_refund", "arbitration", "exchange_difference"})


def reason_label(code: str) -> str:
    """What a reason is called; a code that is no longer offered is shown as it is."""
    return str(REASONS[code].label) if code in REASONS else code


def freight_is_refundable(*, unshipped: bool, liability: str) -> bool:
    """Freight goes back when nothing was shipped or the merchant is at fault; otherwise the buyer keeps paying it."""
    return unshipped or liability == Liability.MERCHANT
