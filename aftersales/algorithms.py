"""The amount algorithms there are: how much of a line's money falls on one of its units.

Each shares a total out over units 1..n exactly, so any of them keeps Σ refunds = paid; they differ in which unit gets
the odd fen. A line keeps the algorithm of its first live claim: two of them on one line would not add up.
"""

from collections.abc import Callable

from kernel import money

LIVE = "ordinals-1"


def front_loaded(total_fen: int, units: int, ordinal: int) -> int:
    """The odd fen go to the first units."""
    whole, odd = divmod(total_fen, units)
    return whole + (1 if ordinal <= odd else 0)


ALGORITHMS: dict[str, Callable[[int, int, int], int]] = {
    LIVE: money.unit_worth,
    "front-loaded-1": front_loaded,
}
"""name: (total in fen, units, ordinal) → fen."""


def unit_worth(algorithm: str, total_fen: int, units: int, ordinal: int) -> int:
    """What one unit is worth, in fen. Raises KeyError for an algorithm that does not exist."""
    return ALGORITHMS[algorithm](total_fen, units, ordinal)
