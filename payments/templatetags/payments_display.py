"""How the payment pages show figures."""

from typing import Any

from django import template

from kernel import money
from payments.words import CHANNELS, EVERYTHING, REASONS

register = template.Library()


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
    """Why a refund was asked for."""
    return REASONS.get(code, code)
