"""Codes of channels and refunds in words for people. What has no words here is shown as the channel says it."""

from typing import Any

from django.utils.translation import gettext_lazy as _

from payments.gateway import RefundState
from payments.models import ChannelAccount

CHANNELS: dict[str, Any] = {
    **dict(ChannelAccount.Channel.choices),
    "offline": _("Offline"),
    "none": _("Nothing to pay"),
    "zero": _("Nothing to pay"),
    "unknown": _("Unknown"),
}
FAILURES: dict[str, Any] = {
    "CHANNEL_CLOSED": _("Closed by the channel: a new number may be used"),
    "CHANNEL_ABNORMAL": _("Parked by the channel: the buyer's card or account takes no money"),
    "PAYMENT_TOO_OLD": _("Too old for the channel: it has to be paid another way"),
    "REFUND_COUNT": _("The channel takes no more refunds of this payment"),
}
REFUND_STATES: dict[str, Any] = {
    RefundState.PROCESSING: _("Accepted"),
    RefundState.SUCCESS: _("Refunded"),
    RefundState.CLOSED: _("Closed"),
    RefundState.ABNORMAL: _("Parked"),
    RefundState.NOT_FOUND: _("Not known to the channel"),
}
CONTRADICTIONS: dict[str, Any] = {
    "refund_amount_mismatch": _("Another amount than ours"),
    "refund_total_mismatch": _("Another total of the payment than ours"),
    "refund_payment_mismatch": _("Another payment than ours"),
    "refund_amount_missing": _("No amount was named"),
    "double_refund": _("A second number of this refund succeeded"),
    "refund_above_paid": _("More went back than was paid"),
    "refund_closed_after_success": _("Closed after it had succeeded"),
    "refund_abnormal_after_success": _("Parked after it had succeeded"),
    "refund_lives_after_end": _("Alive after it had ended"),
    "refused_refund_is_processing": _("Refused, and under way all the same"),
}
REASONS: dict[str, Any] = {}
"""Why a refund was asked for, by code: the floors above fill it with the words of theirs."""
EVERYTHING = {**FAILURES, **REFUND_STATES, **CONTRADICTIONS}
"""Codes of these tables differ, so one filter serves them all."""
