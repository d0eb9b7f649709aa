"""The kinds of risk rules: what each looks at, and the figures it takes. Reads only; the rows say which are active."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from aftersales.models import AfterSalesOrder, CarrierEvent, GoodsState, Hold, Type
from aftersales.reasons import REASONS
from kernel.errors import InvalidInput
from orders.models import Order, Shipment

Figures = Mapping[str, Any]
Found = dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What the caller may tell beside the claim; nothing of it is needed."""

    device_hash: str = ""
    account_created_at: datetime | None = None
    freight_insured: bool = False


@dataclass(frozen=True)
class Rule:
    label: Promise
    figures: dict[str, int]
    look: Callable[[AfterSalesOrder, Application, Figures, datetime], Found]


def _many_claims(claim: AfterSalesOrder, application: Application, figures: Figures, now: datetime) -> Found:
    """The same buyer applied too often lately."""
    since = now - timedelta(days=figures["days"])
    count = (
        AfterSalesOrder.objects.filter(
            merchant_id=claim.merchant_id, user_id=claim.user_id, created_at__gte=since, origin="buyer"
        )
        .values("batch_id")
        .distinct()
        .count()
    )
    return {"claims": count, "days": figures["days"]} if count > figures["claims"] else None


def _all_back_kept(claim: AfterSalesOrder, application: Application, figures: Figures, now: datetime) -> Found:
    """Shipped goods, no parcel back, and nearly all that was paid for them."""
    if claim.type != Type.REFUND_ONLY or claim.goods_state == GoodsState.UNSHIPPED or not claim.entitled_goods_fen:
        return None
    percent = 100 * claim.applied_goods_fen // claim.entitled_goods_fen
    return {"percent": percent} if percent >= figures["percent"] else None


def _before_movement(claim: AfterSalesOrder, application: Application, figures: Figures, now: datetime) -> Found:
    """Money is wanted before any carrier saw the parcel move."""
    if claim.goods_state != GoodsState.IN_TRANSIT or claim.type not in (Type.REFUND_ONLY, Type.RETURN):
        return None
    parcels = Shipment.objects.filter(order_id=claim.order_id, lines__line_id=claim.line_id)
    for carrier, tracking_no in parcels.values_list("carrier", "tracking_no"):
        if CarrierEvent.objects.filter(
            merchant_id=claim.merchant_id, carrier=carrier, tracking_no=tracking_no
        ).exists():
            return None
    return {"moved": False}


def _new_account(claim: AfterSalesOrder, application: Application, figures: Figures, now: datetime) -> Found:
    """The account, or its first order here, is too young."""
    born = application.account_created_at
    if born is None:
        first = (
            Order.objects.filter(merchant_id=claim.merchant_id, user_id=claim.user_id).order_by("created_at").first()
        )
        born = first.created_at if first else now
    age = (now - born).days
    return {"age_days": age} if age < figures["days"] and claim.applied_total_fen >= figures["from_fen"] else None


def _shared_address(claim: AfterSalesOrder, application: Application, figures: Figures, now: datetime) -> Found:
    """Other buyers with claims had the same address delivered to."""
    address = claim.order.address
    if not address:
        return None
    since = now - timedelta(days=figures["days"])
    others = (
        AfterSalesOrder.objects.filter(merchant_id=claim.merchant_id, created_at__gte=since, order__address=address)
        .exclude(user_id=claim.user_id)
        .values("user_id")
        .distinct()
        .count()
    )
    return {"other_buyers": others} if others >= figures["buyers"] else None


def _shared_device(claim: AfterSalesOrder, application: Application, figures: Figures, now: datetime) -> Found:
    """Other buyers applied from the same device."""
    if not application.device_hash:
        return None
    since = now - timedelta(days=figures["days"])
    others = (
        AfterSalesOrder.objects.filter(
            merchant_id=claim.merchant_id, created_at__gte=since, device_hash=application.device_hash
        )
        .exclude(user_id=claim.user_id)
        .values("user_id")
        .distinct()
        .count()
    )
    return {"other_buyers": others} if others >= figures["buyers"] else None


def _freight_insurance(claim: AfterSalesOrder, application: Application, figures: Figures, now: datetime) -> Found:
    """Insured parcels sent back again and again for reasons of the buyer's own."""
    own = [code for code, reason in REASONS.items() if reason.liability == "buyer"]
    if not application.freight_insured or claim.reason_code not in own or claim.hold != Hold.CONSUMES:
        return None
    since = now - timedelta(days=figures["days"])
    count = AfterSalesOrder.objects.filter(
        merchant_id=claim.merchant_id,
        user_id=claim.user_id,
        created_at__gte=since,
        type=Type.RETURN,
        reason_code__in=own,
    ).count()
    return {"returns": count} if count >= figures["returns"] else None


RULES: dict[str, Rule] = {
    "many_claims": Rule(_("Many applications"), {"claims": 5, "days": 30}, _many_claims),
    "all_back_without_return": Rule(_("Nearly all back without a return"), {"percent": 95}, _all_back_kept),
    "before_movement": Rule(_("Refund before the parcel moved"), {}, _before_movement),
    "new_account": Rule(_("New account"), {"days": 7, "from_fen": 10_000}, _new_account),
    "shared_address": Rule(_("Shared address"), {"buyers": 3, "days": 90}, _shared_address),
    "shared_device": Rule(_("Shared device"), {"buyers": 2, "days": 90}, _shared_device),
    "freight_insurance": Rule(_("Freight insurance"), {"returns": 3, "days": 60}, _freight_insurance),
}
"""By kind, with the figures a new row starts with."""


def figures_of(kind: str, given: Mapping[str, Any]) -> dict[str, int]:
    """The rule's figures with what was given. Raises InvalidInput for an unknown or senseless one."""
    known = RULES[kind].figures
    wrong = {name: value for name, value in given.items() if name not in known or not _is_figure(value)}
    if wrong:
        raise InvalidInput(**wrong)
    return {**known, **given}


def _is_figure(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**9
