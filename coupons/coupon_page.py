"""What the coupon's page draws: the promise in words, and the timeline as rows with the lease in force beside them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from coupons.models import CouponCommand, CouponKind, CouponStatus, ReturnDecision, UserCoupon
from coupons.queries import Timeline, TimelineEntry, get_timeline
from coupons.refusals import message_of
from kernel import money

TONES = {
    CouponStatus.AVAILABLE: "success",
    CouponStatus.LOCKED: "warning",
    CouponStatus.USED: "primary",
    CouponStatus.EXPIRED: "neutral",
    CouponStatus.VOID: "danger",
}
DECISION_TONES = {
    ReturnDecision.RETURN: "success",
    ReturnDecision.KEEP: "neutral",
    ReturnDecision.VOID: "danger",
    ReturnDecision.REVIEW: "warning",
}
ICONS = {
    "ISSUE": "redeem",
    "LOCK": "lock",
    "RENEW": "update",
    "REDEEM": "task_alt",
    "RELEASE": "lock_open",
    "RETURN": "undo",
    "VOID": "block",
    "REVERSE": "history",
    "EXPIRE": "hourglass_disabled",
    "decision": "gavel",
    "refusal": "front_hand",
    "gap": "warning",
    "order": "receipt_long",
    "payment": "payments",
    "refund": "currency_exchange",
}
REASONS: dict[str, str | Promise] = {
    "PARTIAL_REFUND": gettext_lazy("only part of the order was refunded"),
    "FULL_REFUND": gettext_lazy("the order is wholly refunded"),
    "COUPON_EXPIRED": gettext_lazy("the coupon's validity is over"),
    "CAMPAIGN_CLOSED": gettext_lazy("the campaign is closed"),
    "RISK_FLAGGED": gettext_lazy("the refund is flagged as a risk"),
    "REVIEWED": gettext_lazy("a person looked at it"),
    "lease overdue": gettext_lazy("the lease ran out"),
    "overdue": gettext_lazy("the lease ran out"),
    "expired": gettext_lazy("the price quote ran out"),
    "replaced": gettext_lazy("a newer price quote took its place"),
    "reused": gettext_lazy("the pending order for the same cart goes on"),
    "cancelled": gettext_lazy("the order was cancelled"),
    "timeout": gettext_lazy("the order was not paid in time"),
    "superseded": gettext_lazy("a newer order took its place"),
    "manual": gettext_lazy("an operator closed the order"),
    "enqueue_fail": gettext_lazy("the order could not be placed at the payment channel"),
    "amount_mismatch": gettext_lazy("another amount was paid"),
    "return policy": gettext_lazy("the return policy says so"),
}
"""Why something was decided or moved; what a person wrote stands as it is."""
ACTORS: dict[str, str | Promise] = {
    "system": gettext_lazy("System"),
    "system:scanner": gettext_lazy("System: deadlines"),
    "orders.create_quote": gettext_lazy("System: price quote"),
    "orders.release_quote": gettext_lazy("System: price quote given up"),
    "orders.create_order": gettext_lazy("System: new order"),
    "orders.coordinate_coupon": gettext_lazy("System: course of the order"),
}
"""Parts of the system that act on coupons, by the name they sign with."""
LEASE_COLOURS = 6
"""How many leases in a row are told apart by colour (coupon.css)."""


@dataclass(frozen=True)
class Row:
    """One line of the drawing.

    `group`: kind of entry without its detail. `lease`: colour of the lease in force after it, 0 for none.
    """

    entry: TimelineEntry
    group: str
    label: str
    icon: str
    tone: str
    status: str
    lease: int
    starts: bool
    ends: bool
    facts: list[tuple[str, str]]


def drawn(coupon: UserCoupon) -> tuple[Timeline, list[Row]]:
    """The timeline of a coupon and its rows, oldest first."""
    timeline = get_timeline(coupon)
    rows, lease, seen = [], 0, 0
    for entry in timeline.entries:
        before, group = lease, entry.kind.partition(".")[0]
        if entry.kind == "operation":
            if entry.title == CouponCommand.LOCK:
                seen += 1
                lease = (seen - 1) % LEASE_COLOURS + 1
            elif entry.status != CouponStatus.LOCKED:
                lease = 0
        rows.append(
            Row(
                entry=entry,
                group=group,
                label=_label(entry),
                icon=ICONS.get(entry.title if entry.kind == "operation" else group, "circle"),
                tone=_tone(entry),
                status=str(CouponStatus(entry.status).label) if entry.status in CouponStatus.values else entry.status,
                lease=lease or before,
                starts=bool(lease and not before),
                ends=bool(before and not lease),
                facts=_facts(entry),
            )
        )
    return timeline, rows


def promise_of(template: Mapping[str, Any]) -> str:
    """What a coupon promises, in words."""
    off, threshold = money.display(template.get("off_fen")), money.display(template.get("threshold_fen"))
    kind = template.get("kind")
    if kind == CouponKind.PERCENT:
        rate = f"{template['rate_bp'] / 100:g} %"
        if template.get("cap_fen") is None:
            return _("%(rate)s off from %(threshold)s") % {"rate": rate, "threshold": threshold}
        return _("%(rate)s off from %(threshold)s, at most %(cap)s") % {
            "rate": rate,
            "threshold": threshold,
            "cap": money.display(template["cap_fen"]),
        }
    if kind == CouponKind.EXCHANGE:
        return _("Free article %(sku)s") % {"sku": template["exchange_sku"]}
    if kind == CouponKind.LINE:
        return _("%(off)s off one line, from %(threshold)s") % {"off": off, "threshold": threshold}
    return _("%(off)s off from %(threshold)s") % {"off": off, "threshold": threshold}


def reasons_of(codes: list[str]) -> str:
    """Reason codes of a decision in words; what a person wrote stays as it is."""
    return _(", ").join(str(REASONS.get(code, code)) for code in codes)


def actor_of(actor: str) -> str:
    """Who acted, in words: a part of the system, an API client by its key, a person by their login."""
    kind, _sep, name = actor.partition(":")
    if actor in ACTORS:
        return str(ACTORS[actor])
    if kind == "client":
        return _("API client %(key)s") % {"key": name}
    return name if kind == "staff" else actor


def _label(entry: TimelineEntry) -> str:
    if entry.kind == "operation":
        return str(CouponCommand(entry.title).label)
    if entry.kind == "refusal":
        return _("Refused: %(command)s") % {"command": CouponCommand(entry.title).label}
    if entry.kind == "decision":
        return _("Decision: %(decision)s") % {"decision": ReturnDecision(entry.title).label}
    if entry.kind == "gap":
        return _("Version %(version)s is missing from the ledger") % {"version": entry.version}
    return entry.title


def _tone(entry: TimelineEntry) -> str:
    if entry.kind in ("refusal", "gap"):
        return "danger"
    if entry.kind == "operation":
        return TONES[CouponStatus(entry.status)]
    if entry.kind == "decision":
        return DECISION_TONES[ReturnDecision(entry.title)]
    return "info"


def _facts(entry: TimelineEntry) -> list[tuple[str, str]]:
    """What is worth saying of an entry beside its label, as (name, value)."""
    detail = entry.detail
    facts = [(_("Order no."), entry.order_no), (_("Who"), actor_of(entry.actor))]
    if entry.kind == "refusal":
        facts += [(_("Reason"), message_of(detail["code"])), (_("Expected version"), detail["expected_version"])]
        if detail["token_matched"] is not None:
            facts.append((_("Token"), _("matches") if detail["token_matched"] else _("does not match")))
    elif entry.kind == "decision":
        policy = f"{detail['policy']} v{detail['policy_version']}"
        facts += [
            (_("Reason"), reasons_of(detail["reasons"])),
            (_("Policy"), policy),
            (_("Because of"), detail["cause_no"]),
        ]
    elif "amount_fen" in detail:
        facts += [(_("Amount"), money.display(detail["amount_fen"])), (_("Reference"), entry.reference)]
    elif entry.kind != "operation":
        facts.append((_("Reference"), entry.reference))
    facts.append((_("Reason"), str(REASONS.get(detail.get("reason", ""), detail.get("reason", "")))))
    return [(str(name), str(value)) for name, value in facts if value not in ("", None)]
