"""What can be done to a claim: each button with the states that allow it and the question it asks, amounts named."""

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from aftersales import claim_page, forms
from aftersales.actors import By
from aftersales.commands.open_arbitration import cause_of
from aftersales.funding import refund_requests_of
from aftersales.models import ALWAYS_TURNED_BACK, Actor, AfterSalesOrder, ArbitrationCase, Status, Type
from kernel import money
from kernel.admin import Button
from kernel.admin.buttons import Reason

NEXT_STEPS = ("approve", "confirm_return", "confirm_exchange", "ship_replacement", "retry_refund")
"""The buttons that the queue offers on a row."""


def in_audit(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.WAIT_AUDIT and not claim.is_disputed


def in_inspection(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.WAIT_MERCHANT_RECEIVE and claim.type == Type.RETURN and not claim.is_disputed


def exchange_is_here(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.WAIT_MERCHANT_RECEIVE and claim.type == Type.EXCHANGE and not claim.is_disputed


def may_be_sent_away(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.WAIT_MERCHANT_RECEIVE and not claim.is_disputed


def waits_for_parcel(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.WAIT_MERCHANT_SHIP and not claim.is_disputed


def may_be_converted(claim: AfterSalesOrder) -> bool:
    return waits_for_parcel(claim) and claim.type == Type.EXCHANGE


def may_be_quarrelled_over(claim: AfterSalesOrder) -> bool:
    return cause_of(claim, by=By(Actor.MERCHANT)) is not None and not _has_case(claim)


def _has_case(claim: AfterSalesOrder) -> bool:
    return claim.arbitrations.filter(state=ArbitrationCase.State.OPEN).exists()


def has_voucher(claim: AfterSalesOrder) -> bool:
    return may_retry(claim) and refund_requests_of(claim).exclude(voucher="").exists()


def rejection_is_asked(claim: AfterSalesOrder) -> bool:
    return may_retry(claim) and bool(claim.rejection_asked_by)


def may_retry(claim: AfterSalesOrder) -> bool:
    return claim.status == Status.REFUND_FAILED


def has_dead_rollback(claim: AfterSalesOrder) -> bool:
    """Something of a refunded claim waits for a person: a dead message, or a system that was never asked."""
    if claim.status != Status.REFUND_SUCCESS:
        return False
    shown = claim_page.rollbacks_of(claim)
    asked = {item["row"].system for item in shown}
    return any(item["state"] == "dead" for item in shown) or not asked.issuperset(ALWAYS_TURNED_BACK)


def approval_question(claim: AfterSalesOrder | None) -> str:
    """What approving does, with the amount when money moves."""
    if claim is None:
        return _("Each claim is approved with the amount the rules give.")
    amounts = {
        "total": money.display(claim.applied_total_fen),
        "goods": money.display(claim.applied_goods_fen),
        "freight": money.display(claim.applied_freight_fen),
    }
    if claim.type in (Type.REFUND_ONLY, Type.PRICE_PROTECTION):
        return (
            _("%(total)s go back to the buyer at once: %(goods)s for the goods, %(freight)s for the freight.") % amounts
        )
    if claim.type == Type.RESHIP:
        return _("You send the goods once more. No money moves.")
    return _("The buyer sends the goods back. After your inspection %(total)s go back to the buyer.") % amounts


def inspection_question(claim: AfterSalesOrder) -> str:
    return _("The parcel is here. %(total)s go back to the buyer for %(qty)s units, unless you lower it below.") % {
        "total": money.display(claim.applied_total_fen),
        "qty": claim.qty,
    }


def exchange_question(claim: AfterSalesOrder) -> str:
    """Credit, price, and which way the difference goes."""
    exchange = claim.exchange
    price = exchange.unit_price_fen * claim.qty
    asked = _("The old goods are worth %(credit)s, the replacement costs %(price)s.") % {
        "credit": money.display(claim.applied_goods_fen),
        "price": money.display(price),
    }
    if price > claim.applied_goods_fen:
        return (
            asked
            + " "
            + _("The buyer pays %(fen)s more before you ship.")
            % {"fen": money.display(price - claim.applied_goods_fen)}
        )
    if price < claim.applied_goods_fen:
        return (
            asked
            + " "
            + _("%(fen)s go back to the buyer at the end.") % {"fen": money.display(claim.applied_goods_fen - price)}
        )
    return asked


def _worth(claim: AfterSalesOrder) -> int:
    return sum(unit.goods_fen + unit.freight_fen for unit in claim.units.filter(live=True))


BUTTONS = [
    Button(
        "approve",
        gettext_lazy("Approve"),
        form=forms.DecisionForm,
        icon="check",
        variant="primary",
        confirm=approval_question,
        allowed=in_audit,
    ),
    Button(
        "reject",
        gettext_lazy("Refuse"),
        form=Reason,
        icon="close",
        variant="danger",
        confirm=gettext_lazy("The buyer gets nothing and may go to arbitration. The units are free again."),
        allowed=in_audit,
    ),
    Button(
        "confirm_return",
        gettext_lazy("Confirm receipt and refund"),
        form=forms.InspectionForm,
        icon="inventory",
        variant="primary",
        confirm=inspection_question,
        allowed=in_inspection,
    ),
    Button(
        "reject_return",
        gettext_lazy("Refuse and send back"),
        form=forms.SendBackForm,
        icon="undo",
        variant="danger",
        confirm=gettext_lazy("No money moves. The goods go back to the buyer; the parcel's number is mandatory."),
        allowed=may_be_sent_away,
    ),
    Button(
        "confirm_exchange",
        gettext_lazy("Confirm receipt and exchange"),
        form=forms.InspectionForm,
        icon="swap_horiz",
        variant="primary",
        confirm=exchange_question,
        allowed=exchange_is_here,
    ),
    Button(
        "ship_replacement",
        gettext_lazy("Ship the replacement"),
        form=forms.ParcelForm,
        icon="local_shipping",
        variant="primary",
        allowed=waits_for_parcel,
    ),
    Button(
        "convert_to_refund",
        gettext_lazy("Sold out: refund instead"),
        form=Reason,
        icon="money",
        variant="danger",
        confirm=lambda claim: (
            _("%(total)s go back to the buyer; a supplement that was paid goes back as well.")
            % {"total": money.display(sum(unit.goods_fen + unit.freight_fen for unit in claim.units.filter(live=True)))}
        ),
        allowed=may_be_converted,
    ),
    Button(
        "open_arbitration",
        gettext_lazy("Call the platform in"),
        form=forms.WishForm,
        icon="gavel",
        confirm=gettext_lazy("The platform decides. Until then nobody else does, and deadlines stand still."),
        allowed=may_be_quarrelled_over,
    ),
    Button("add_evidence", gettext_lazy("Add an image"), form=forms.ImageForm, icon="add_photo_alternate"),
    Button(
        "retry_refund",
        gettext_lazy("Try the refund again"),
        icon="replay",
        variant="primary",
        confirm=lambda claim: (
            _("%(total)s are sent to the channel again, under the number its rules allow.")
            % {"total": money.display(claim.approved_total_fen)}
        ),
        allowed=may_retry,
    ),
    Button(
        "enter_voucher",
        gettext_lazy("Paid another way"),
        form=forms.VoucherForm,
        icon="receipt_long",
        confirm=lambda claim: (
            _("%(total)s were paid outside the channel. Another person has to approve it.")
            % {"total": money.display(claim.approved_total_fen)}
        ),
        allowed=may_retry,
    ),
    Button(
        "approve_voucher",
        gettext_lazy("Approve the voucher"),
        icon="verified",
        variant="primary",
        confirm=lambda claim: (
            _("The claim ends as refunded: %(total)s, voucher %(voucher)s.")
            % {
                "total": money.display(claim.approved_total_fen),
                "voucher": ", ".join(refund_requests_of(claim).values_list("voucher", flat=True)),
            }
        ),
        allowed=has_voucher,
    ),
    Button(
        "ask_rejection",
        gettext_lazy("Give the refund up"),
        form=Reason,
        icon="block",
        confirm=gettext_lazy("Only when nothing can arrive any more. Another person has to agree."),
        allowed=may_retry,
    ),
    Button(
        "approve_rejection",
        gettext_lazy("Agree to give it up"),
        icon="block",
        variant="danger",
        confirm=lambda claim: (
            _("%(who)s asked for it: %(why)s. The buyer gets nothing by this claim.")
            % {"who": claim.rejection_asked_by, "why": claim.rejection_reason}
        ),
        allowed=rejection_is_asked,
    ),
    Button(
        "retry_rollback",
        gettext_lazy("Try the rollbacks again"),
        icon="replay",
        confirm=gettext_lazy("What was not turned back yet is tried again. What is done stays done."),
        allowed=has_dead_rollback,
    ),
]
