"""How the order pages show figures and names."""

from django import template

from kernel import money
from orders.models import OrderLine, PayMethod

register = template.Library()


@register.filter
def fen(amount: int | None) -> str:
    """¥1,234.56, or a dash."""
    return money.display(amount)


@register.filter
def off(amount: int | None) -> str:
    """−¥1,234.56 for what was taken off, a dash for nothing."""
    return f"−{money.display(amount)}" if amount else "–"


@register.filter
def channel_name(channel: str) -> str:
    """The name of a pay method."""
    return str(PayMethod(channel).label) if channel in PayMethod.values else channel


@register.filter
def units(ordinals: list[int]) -> str:
    """[1, 2, 3, 5] → "1–3, 5"."""
    runs: list[list[int]] = []
    for ordinal in sorted(set(ordinals)):
        if runs and runs[-1][-1] == ordinal - 1:
            runs[-1].append(ordinal)
        else:
            runs.append([ordinal])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "–"


@register.filter
def to_ship(line: OrderLine) -> int:
    """How many units of a line still have to leave."""
    gone = {*line.shipped_ordinals, *line.refunded_ordinals}
    return line.qty - len(gone)
