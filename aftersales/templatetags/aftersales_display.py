"""How the after-sales pages show figures and names."""

from django import template

from aftersales.claim_page import TONES
from aftersales.models import Status
from aftersales.risk import RULES
from kernel import money
from orders.models import OrderLine, PayMethod

register = template.Library()


@register.filter
def fen(amount: int | None) -> str:
    """¥1,234.56, or a dash."""
    return money.display(amount)


@register.filter
def committed(line: OrderLine) -> int:
    """Fen of a line that refunds have taken or will take."""
    return line.goods_committed_fen + line.freight_committed_fen


@register.filter
def status_tone(status: str) -> str:
    return TONES[Status(status)]


@register.filter
def risk_rule(kind: str) -> str:
    return str(RULES[kind].label) if kind in RULES else kind


@register.filter
def channel_name(channel: str) -> str:
    return str(PayMethod(channel).label) if channel in PayMethod.values else channel
