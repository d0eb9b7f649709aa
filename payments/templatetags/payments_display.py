"""How the payment pages show figures."""

import re
from typing import Any

from django import template

from kernel import money
from payments.words import CHANNELS, EVERYTHING, REASONS

register = template.Library()
TWO_CODES = re.compile(r"[a-z_]+:[A-Z_]+", re.ASCII)


@register.filter
def fen(amount: int | None) -> str:
    """¥1,234.56, or a dash."""
    return money.display(amount)


@register.filter
def channel_name(channel: str) -> Any:
    """The name of a channel."""
    return CHANNELS.get(channel, channel)


@register.filter
def in_words(code: str) -> Any:
    """A code of the channel or of a refund in words, if it has any."""
    return EVERYTHING.get(code, code)


@register.filter
def reason_name(code: str) -> Any:
    """Why a refund was asked for. A code may have another behind it (`not_reopened:OUT_OF_STOCK`); what a person wrote
    stays as it is."""
    return REASONS.get(code.partition(":")[0] if TWO_CODES.fullmatch(code) else code, code)
