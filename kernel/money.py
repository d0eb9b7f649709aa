"""Money is integer fen (1/100 yuan). Yuan exist only at the edges: forms, bills, display."""

import re
from collections.abc import Sequence
from decimal import Decimal

YUAN = re.compile(r"(-?)(\d{1,13})(?:\.(\d{1,2}))?", re.ASCII)


def yuan_to_fen(text: str) -> int:
    """ "19.90" → 1990, exactly. More than two decimals, exponents, blanks or floats raise ValueError."""
    matched = YUAN.fullmatch(text)
    if matched is None:
        raise ValueError(f"not an amount in yuan: {text!r}")
    sign, whole, cents = matched.groups()
    fen = int(whole) * 100 + int((cents or "0").ljust(2, "0"))
    return -fen if sign else fen


def fen_to_yuan(fen: int) -> str:
    """1990 → "19.90", as bills and forms carry it."""
    return str(Decimal(fen).scaleb(-2).quantize(Decimal("0.01")))


def display(fen: int | None) -> str:
    """123456 → "¥1,234.56"; None → "–"."""
    if fen is None:
        return "–"
    return f"{'-' if fen < 0 else ''}¥{abs(fen) // 100:,}.{abs(fen) % 100:02d}"


def split_by_weight(total_fen: int, weights: Sequence[int]) -> list[int]:
    """Split an amount over weights by largest remainder; ties go to the lower index; the sum is exact.

    All weights zero → an equal split. Raises ValueError for a negative total or weight, or no weights.
    """
    if not weights or total_fen < 0 or min(weights) < 0:
        raise ValueError("an amount ≥ 0 and at least one weight ≥ 0 are needed")
    whole = sum(weights)
    if whole == 0:
        return split_equally(total_fen, len(weights))
    shares = [total_fen * weight // whole for weight in weights]
    remainders = [total_fen * weight % whole for weight in weights]
    order = sorted(range(len(weights)), key=lambda index: (-remainders[index], index))
    for index in order[: total_fen - sum(shares)]:
        shares[index] += 1
    return shares


def split_equally(total_fen: int, parts: int) -> list[int]:
    """Split an amount into equal parts; the odd fen go to the lower indexes."""
    return split_by_weight(total_fen, [1] * parts)


def worth_of_first(total_fen: int, units: int, quantity: int) -> int:
    """E(q) = ⌊(2·X·q + n) / (2·n)⌋: what the first q of n units are worth together, rounded half up."""
    return (2 * total_fen * quantity + units) // (2 * units)


def unit_worth(total_fen: int, units: int, ordinal: int) -> int:
    """What the unit with this ordinal (1..n) is worth: E(j) − E(j−1). Fixed, so any order of returns is exact."""
    if not 1 <= ordinal <= units:
        raise ValueError(f"ordinal {ordinal} is not one of 1..{units}")
    return worth_of_first(total_fen, units, ordinal) - worth_of_first(total_fen, units, ordinal - 1)
