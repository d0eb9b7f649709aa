"""The refund amount engine: pure functions over integer fen, no database, no clock.

A line's paid money is frozen when the order is made: ``net_fen`` for the goods and ``freight_share_fen`` for the
freight.  Its units are ordinals 1..qty, and ordinal *j* of a series *X* over *n* units is worth ``E(j) - E(j-1)`` with
``E(q) = floor((2*X*q + n) / (2*n))``.  Because the worth of an ordinal depends on nothing but the line, the sum is
exact under any mix of partial, concurrent, rejected and repeated claims; a counted "already refunded" drifts by up
to 3 fen.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from aftersales.algorithms import LIVE, unit_worth
from kernel import money


@dataclass(frozen=True, slots=True)
class FrozenLine:
    """What the order froze on one line: fen, units and (not money) the points used on it."""

    line_no: int
    qty: int
    net_fen: int
    freight_share_fen: int
    points_used: int = 0
    algorithm: str = LIVE


@dataclass(frozen=True, slots=True)
class UnitAmount:
    """One ordinal of one claim, in fen: its worth, what was taken from it before, and what the claim may pay."""

    ordinal: int
    worth_fen: int
    earlier_fen: int
    goods_fen: int
    freight_fen: int


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The most a claim may pay, in fen, with every unit named."""

    units: tuple[UnitAmount, ...]
    algorithm: str = LIVE

    @property
    def goods_fen(self) -> int:
        return sum(unit.goods_fen for unit in self.units)

    @property
    def freight_fen(self) -> int:
        return sum(unit.freight_fen for unit in self.units)

    @property
    def total_fen(self) -> int:
        return self.goods_fen + self.freight_fen


def lowest_free_ordinals(*, qty: int, held: Collection[int], wanted: int) -> tuple[int, ...]:
    """The lowest ``wanted`` ordinals of a line that no live claim holds; fewer when the line has not that many left."""
    free = (ordinal for ordinal in range(1, qty + 1) if ordinal not in held)
    return tuple(ordinal for ordinal, _ in zip(free, range(wanted), strict=False))


def goods_entitlement(
    *,
    line: FrozenLine,
    ordinals: Sequence[int],
    freight_refundable: bool,
    earlier_fen: Mapping[int, int] | None = None,
    strict: bool = True,
) -> Entitlement:
    """What giving these ordinals back is worth.

    ``earlier_fen`` is, per ordinal, the price protection and compensation that is not known dead; it comes off the
    goods and never off the freight. Not `strict`: what another algorithm took may pass what this one says (a shadow
    run), and the difference shows.
    """
    earlier = earlier_fen or {}
    units = []
    for ordinal in ordinals:
        worth = unit_worth(line.algorithm, line.net_fen, line.qty, ordinal)
        taken = earlier.get(ordinal, 0)
        if strict and not 0 <= taken <= worth:
            raise ValueError(f"ordinal {ordinal} of line {line.line_no} is worth {worth} fen, {taken} were taken")
        freight = 0
        if freight_refundable:
            freight = unit_worth(line.algorithm, line.freight_share_fen, line.qty, ordinal)
        units.append(
            UnitAmount(
                ordinal=ordinal,
                worth_fen=worth,
                earlier_fen=taken,
                goods_fen=worth - taken,
                freight_fen=freight,
            )
        )
    return Entitlement(units=tuple(units), algorithm=line.algorithm)


def lower_to(*, units: Sequence[UnitAmount], goods_fen: int, freight_fen: int) -> tuple[UnitAmount, ...]:
    """Name the ordinals that an amount at or below the entitlement is taken from, in proportion to what each has left.

    Price protection, compensation and a merchant's reduction all pass here; no unit pays more than it has left.
    """
    goods = _shares(goods_fen, [unit.goods_fen for unit in units])
    freight = _shares(freight_fen, [unit.freight_fen for unit in units])
    return tuple(
        replace(unit, goods_fen=goods_share, freight_fen=freight_share)
        for unit, goods_share, freight_share in zip(units, goods, freight, strict=True)
    )


def _shares(amount_fen: int, room: list[int]) -> list[int]:
    if not 0 <= amount_fen <= sum(room):
        raise ValueError(f"{amount_fen} fen do not fit into {sum(room)} fen")
    return money.split_by_weight(amount_fen, room) if amount_fen else [0] * len(room)
