"""Any order, any sequence of claims: the sum never passes what was paid, and meets it when everything goes back.

The sequences mix claims that are open at the same time, rejected ones whose units are claimed again, price
protection, compensation and amounts that the merchant lowers; they run through the functions the commands use.
"""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aftersales.amounts import (
    FrozenLine,
    UnitAmount,
    goods_entitlement,
    lower_to,
    lowest_free_ordinals,
)
from ledgers.shares import points_of_units, share_of_money
from orders.allocation import Discounts, PricedLine, allocate

EXAMPLES = 5000
seen: Counter[str] = Counter()

LINE = st.tuples(st.integers(0, 30_000), st.integers(1, 9), st.integers(0, 100))
ORDER = st.tuples(
    st.lists(LINE, min_size=1, max_size=20),
    st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)),
    st.integers(0, 5_000),
    st.sampled_from(["by_amount", "equal"]),
    st.integers(0, 1_000),
)
STEP = st.tuples(
    st.sampled_from(["return", "return", "return", "protect", "compensate", "approve", "approve", "lower", "reject"]),
    st.integers(0, 1_000),
    st.integers(1, 3),
    st.integers(0, 100),
)


@dataclass
class Claim:
    line: FrozenLine
    kind: str
    units: tuple[UnitAmount, ...]
    open: bool = True
    live: bool = True

    @property
    def paid(self) -> int:
        return sum(unit.goods_fen + unit.freight_fen for unit in self.units)


@dataclass
class Book:
    """What claims did to an order, kept as the tables keep it: units held, amounts per ordinal."""

    lines: list[FrozenLine]
    payable_fen: int
    claims: list[Claim] = field(default_factory=list)

    def held(self, line: FrozenLine) -> set[int]:
        return {
            unit.ordinal
            for claim in self.claims
            if claim.line is line and claim.live and (claim.kind == "return" or claim.open)
            for unit in claim.units
        }

    def earlier(self, line: FrozenLine) -> dict[int, int]:
        taken: dict[int, int] = {}
        for claim in self.claims:
            if claim.line is line and claim.live and claim.kind != "return":
                for unit in claim.units:
                    taken[unit.ordinal] = taken.get(unit.ordinal, 0) + unit.goods_fen
        return taken

    def protected(self, line: FrozenLine) -> set[int]:
        return {u.ordinal for c in self.claims if c.line is line and c.live and c.kind == "protect" for u in c.units}

    def apply(self, kind: str, line: FrozenLine, qty: int, percent: int) -> None:
        taken = self.held(line) | (self.protected(line) if kind == "protect" else set())
        ordinals = lowest_free_ordinals(qty=line.qty, held=taken, wanted=qty)
        if not ordinals:
            seen["nothing free"] += 1
            return
        full = goods_entitlement(
            line=line, ordinals=ordinals, freight_refundable=kind == "return", earlier_fen=self.earlier(line)
        )
        units = full.units
        if kind != "return":
            units = lower_to(units=units, goods_fen=full.goods_fen * percent // 100, freight_fen=0)
        self.claims.append(Claim(line, kind, units))
        seen[kind] += 1

    def settle(self, how: str, pick: int, percent: int) -> None:
        waiting = [claim for claim in self.claims if claim.open]
        if not waiting:
            return
        claim = waiting[pick % len(waiting)]
        claim.open = False
        if how == "reject":
            claim.live = False
        elif how == "lower":
            goods = sum(unit.goods_fen for unit in claim.units)
            freight = sum(unit.freight_fen for unit in claim.units)
            claim.units = lower_to(
                units=claim.units, goods_fen=goods * percent // 100, freight_fen=freight * percent // 100
            )
        seen[how] += 1

    def paid_back(self) -> int:
        return sum(claim.paid for claim in self.claims if claim.live)

    def check(self) -> None:
        assert 0 <= self.paid_back() <= self.payable_fen
        for line in self.lines:
            mine = [claim for claim in self.claims if claim.line is line and claim.live]
            assert all(unit.goods_fen >= 0 and unit.freight_fen >= 0 for claim in mine for unit in claim.units)
            assert sum(unit.goods_fen for claim in mine for unit in claim.units) <= line.net_fen
            assert sum(unit.freight_fen for claim in mine for unit in claim.units) <= line.freight_share_fen


def frozen_order(made) -> Book:
    """Discounts as parts of what is left, so that every order is a possible one."""
    rows, (coupon, subsidy, points), freight, policy, points_used = made
    priced = [
        PricedLine(line_no=n, unit_price_fen=price, qty=qty, line_discount_fen=price * qty * off // 100)
        for n, (price, qty, off) in enumerate(rows, 1)
    ]
    left = sum(line.base_fen for line in priced)
    amounts = []
    for percent in (coupon, subsidy, points):
        amounts.append(left * percent // 100)
        left -= amounts[-1]
    allocation = allocate(
        lines=priced,
        discounts=Discounts(
            coupon_fen=amounts[0], subsidy_fen=amounts[1], points_fen=amounts[2], points_used=points_used
        ),
        freight_fen=freight,
        freight_policy=policy,
    )
    lines = [
        FrozenLine(
            line_no=line.line_no,
            qty=line.qty,
            net_fen=line.net_fen,
            freight_share_fen=line.freight_share_fen,
            points_used=line.points_used,
        )
        for line in allocation.lines
    ]
    assert sum(line.points_used for line in lines) == points_used
    assert sum(line.net_fen + line.freight_share_fen for line in lines) == allocation.payable_fen
    return Book(lines, allocation.payable_fen)


def take(book: Book, steps) -> None:
    for what, pick, qty, percent in steps:
        if what in ("return", "protect", "compensate"):
            book.apply(what, book.lines[pick % len(book.lines)], qty, percent)
        else:
            book.settle(what, pick, percent)
        book.check()


def test_never_above_and_exact_in_the_end():
    seen.clear()
    any_order_any_sequence()
    claims = seen["claims in the sequence"]
    print(f"{seen['examples']} examples, {claims / seen['examples']:.1f} claims each: {dict(seen)}")
    assert seen["examples"] >= EXAMPLES
    assert claims / seen["examples"] >= 10
    for kind in ("return", "protect", "compensate", "approve", "lower", "reject"):
        assert seen[kind] >= seen["examples"] / 2, kind


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=ORDER, steps=st.lists(STEP, min_size=18, max_size=48))
def any_order_any_sequence(made, steps):
    seen["examples"] += 1
    book = frozen_order(made)
    take(book, steps)
    seen["claims in the sequence"] += len(book.claims)
    lowered = any(claim.live and claim.kind == "return" and _is_lowered(claim) for claim in book.claims)
    for claim in book.claims:
        claim.open = False
    for line in book.lines:
        while len(book.held(line)) < line.qty:
            book.apply("return", line, 1, 0)
            book.claims[-1].open = False
            book.check()
    if lowered:
        assert book.paid_back() <= book.payable_fen
    else:
        assert book.paid_back() == book.payable_fen


def _is_lowered(claim: Claim) -> bool:
    full = goods_entitlement(
        line=claim.line,
        ordinals=[unit.ordinal for unit in claim.units],
        freight_refundable=True,
        earlier_fen={unit.ordinal: unit.earlier_fen for unit in claim.units},
    )
    return claim.paid < full.total_fen


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(made=ORDER, steps=st.lists(STEP, min_size=10, max_size=30), order=st.randoms(use_true_random=False))
def test_a_line_does_not_depend_on_what_happens_to_the_others(made, steps, order):
    """The steps of every line keep their order among themselves; those of different lines are shuffled."""
    by_line: dict[int, list] = {}
    count = len(frozen_order(made).lines)
    for step in steps:
        if step[0] in ("return", "protect", "compensate"):
            by_line.setdefault(step[1] % count, []).append(step)
    results = []
    for _ in range(2):
        book, queues = frozen_order(made), {number: list(rows) for number, rows in by_line.items()}
        while any(queues.values()):
            number = order.choice([number for number, rows in queues.items() if rows])
            what, _pick, qty, percent = queues[number].pop(0)
            book.apply(what, book.lines[number], qty, percent)
            if book.claims:
                book.claims[-1].open = False
        results.append({line.line_no: [c.units for c in book.claims if c.line is line] for line in book.lines})
    assert results[0] == results[1]


@settings(max_examples=1000, deadline=None)
@given(
    points=st.integers(0, 10_000),
    qty=st.integers(1, 50),
    order=st.randoms(use_true_random=False),
)
def test_points_go_back_exactly_in_any_order(points, qty, order):
    ordinals = list(range(1, qty + 1))
    order.shuffle(ordinals)
    back = [points_of_units(points, qty, [ordinal]) for ordinal in ordinals]
    assert min(back) >= 0
    assert sum(back) == points


@settings(max_examples=1000, deadline=None)
@given(total=st.integers(0, 100_000), whole=st.integers(1, 1_000_000), parts=st.lists(st.integers(0, 100), max_size=12))
def test_commission_and_earned_points_are_taken_back_in_proportion_and_never_twice(total, whole, parts):
    refunded, taken = 0, 0
    for percent in parts:
        step = (whole - refunded) * percent // 100
        before = share_of_money(total, whole, refunded)
        refunded += step
        movement = share_of_money(total, whole, refunded) - before
        assert movement >= 0
        taken += movement
        assert taken <= total
    rest = share_of_money(total, whole, whole) - taken
    assert taken + rest == total
