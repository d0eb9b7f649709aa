"""How the payment pages show figures."""

from django import template

from kernel import money

register = template.Library()


@register.filter
def fen(amount: int | None) -> str:
    """¥1,234.56, or a dash."""
    return money.display(amount)
