"""How much of a whole goes with a part: the two roundings by which points and commission follow units and money."""

from __future__ import annotations

from collections.abc import Iterable

from kernel import money


def points_of_units(points: int, units: int, ordinals: Iterable[int]) -> int:
    """What these units of a line are worth in points: Σ of C(j) − C(j−1) with C(q) = ⌈points·q / n⌉. All units
    together are worth exactly `points`, in whatever order they come. Raises ValueError for a unit that is not there."""
    total = 0
    for ordinal in set(ordinals):
        if not 1 <= ordinal <= units:
            raise ValueError(f"ordinal {ordinal} is not one of 1..{units}")
        total += _first(points, units, ordinal) - _first(points, units, ordinal - 1)
    return total


def _first(points: int, units: int, quantity: int) -> int:
    return -(-points * quantity // units)


def share_of_money(whole: int, base_fen: int, refunded_fen: int) -> int:
    """E on money: ⌊(2·whole·refunded + base) / (2·base)⌋, what falls to the money refunded so far. 0 if base is 0."""
    if base_fen == 0:
        return 0
    return money.worth_of_first(whole, base_fen, min(refunded_fen, base_fen))
