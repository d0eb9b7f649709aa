"""Any order, any sequence of claims: the sum never passes what was paid, and meets it when everything goes back.

The claims are judged by `draft_claim`, the very function that applying and previewing use; a book beside it keeps what
the tables keep (who holds which unit, what was taken from it). Among the steps: claims open at the same time, rejected
ones and refunds given up whose units are claimed again, price protection, compensation, amounts that the merchant
lowers, shipments in between. Used points, earned points and commissions of two levels follow in the same examples.
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aftersales.amounts import UnitAmount, lower_to
from aftersales.drafts import Draft, Item, LineFacts, NoSuchUnits, Terms, TypeDoesNotFit, draft_claim, hold_of
from aftersales.models import GoodsState, Hold, Type
from ledgers.shares import points_of_units, share_of_money
from orders.allocation import Discounts, PricedLine, allocate
from orders.models import OrderLine
from tests.conftest import NOW

EXAMPLES, PARTS = 5000, 2
TERMS = Terms(window_days=15)
WAITING, REFUNDING, REFUNDED, DEAD = "waiting", "refunding", "refunded", "dead"
seen: Counter[str] = Counter()

LINE = st.tuples(st.integers(0, 30_000), st.integers(1, 9), st.integers(0, 100), st.integers(0, 9))
"""Unit price in fen, units, per cent of line discount, units shipped."""
ORDER = st.tuples(
    st.lists(LINE, min_size=1, max_size=20),
    st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100)),
    st.integers(0, 5_000),
    st.sampled_from(["by_amount", "equal"]),
    st.integers(0, 1_000),
)
STEPS = st.lists(st.integers(0, 2**30), min_size=26, max_size=56)
"""Each number is one step: what, to which line or claim, how many units, how many per cent."""
WHAT = (
    *["refund", "return", "return", "protect", "compensate", "compensate", "refund", "return"],
    *["approve", "approve", "approve", "lower", "reject", "pay", "pay", "give up", "ship", "complete"],
)
FROZEN = ("line_no", "qty", "net_fen", "freight_share_fen", "points_used", "signed_at")
REWARDS = ("earned points", "commission 1", "commission 2")


@dataclass(eq=False)
class Claim:
    """A draft that was written, and what became of it."""

    draft: Draft
    number: int
    units: tuple[UnitAmount, ...]
    hold: str
    state: str = WAITING

    @property
    def live(self) -> bool:
        return self.state != DEAD

    @property
    def open(self) -> bool:
        return self.state in (WAITING, REFUNDING)

    @property
    def goods_fen(self) -> int:
        return sum(unit.goods_fen for unit in self.units)

    @property
    def paid_fen(self) -> int:
        return sum(unit.goods_fen + unit.freight_fen for unit in self.units)

    @property
    def kept_back_fen(self) -> int:
        """What giving these units back was worth and was not paid: lowered, or the freight of a buyer's own fault."""
        return self.draft.entitlement.total_fen - self.paid_fen if self.hold == Hold.CONSUMES else 0


@dataclass(eq=False)
class LineBook:
    """One line with its claims, as the tables keep it; no other line is seen from here."""

    line: OrderLine
    rewards: dict[str, int]
    shipped_first: list[int]
    claims: list[Claim] = field(default_factory=list)
    ever_dead: set[int] = field(default_factory=set)
    given_back: list[int] = field(default_factory=list)
    granted: bool = False
    refunded_fen: int = 0
    taken: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def facts(self) -> LineFacts:
        """As `drafts.facts_of` reads them from the tables."""
        facts = LineFacts(self.line)
        for claim in self.claims:
            if not claim.live:
                continue
            for unit in claim.units:
                if claim.hold == Hold.CONSUMES or claim.open:
                    facts.taken.add(unit.ordinal)
                if claim.hold == Hold.DEDUCTS:
                    facts.earlier_fen[unit.ordinal] = facts.earlier_fen.get(unit.ordinal, 0) + unit.goods_fen
                if claim.draft.protects_price:
                    facts.protected.add(unit.ordinal)
        return facts

    def again(self) -> "LineBook":
        """The line as it was before anything happened to it."""
        columns = {name: getattr(self.line, name) for name in FROZEN}
        return LineBook(
            OrderLine(**columns, shipped_ordinals=list(self.shipped_first)), self.rewards, self.shipped_first
        )

    @property
    def committed_fen(self) -> int:
        return sum(claim.paid_fen for claim in self.claims if claim.live)

    def fits(self, what: str) -> bool:
        """Whether a claim waits for such a decision, or a unit is free to be claimed."""
        if what in ("approve", "lower", "reject"):
            return any(claim.state == WAITING for claim in self.claims)
        if what in ("pay", "give up"):
            return any(claim.state == REFUNDING for claim in self.claims)
        return what in ("ship", "complete") or len(self.facts().taken) < self.line.qty

    # --- steps ---------------------------------------------------------------------------------------------------

    def step(self, what: str, pick: int, qty: int, percent: int) -> None:
        if what in ("refund", "return", "protect", "compensate"):
            self.apply(what, qty, percent)
        elif what == "ship":
            self.ship(qty)
        elif what == "complete":
            self.complete()
        else:
            self.settle(what, pick, percent)

    def apply(self, what: str, qty: int, percent: int) -> Claim | None:
        facts = self.facts()
        kind = {"return": Type.RETURN, "protect": Type.PRICE_PROTECTION}.get(what, Type.REFUND_ONLY)
        reason = {"protect": "price_drop"}.get(what) or ("changed_mind" if percent % 5 == 0 else "quality")
        wish = {"line_no": self.line.line_no, "qty": qty, "type": kind, "reason_code": reason}
        try:
            if what in ("protect", "compensate"):
                room = draft_claim(
                    facts=facts, item=Item(**wish, goods_fen=0), terms=TERMS, by_system=False, now=NOW
                ).entitlement.goods_fen
                wish["goods_fen"] = room * percent // 100
            draft = draft_claim(facts=facts, item=Item(**wish), terms=TERMS, by_system=False, now=NOW)
        except (NoSuchUnits, TypeDoesNotFit):
            self.counts["refused"] += 1
            return None
        self.counts["open beside another"] += any(claim.open for claim in self.claims)
        self.counts["applied again"] += not self.ever_dead.isdisjoint(unit.ordinal for unit in draft.units)
        self.counts["unshipped" if draft.goods_state == GoodsState.UNSHIPPED else "shipped"] += 1
        self.counts["protect" if draft.protects_price else str(draft.hold)] += 1
        self.claims.append(Claim(draft, len(self.claims), draft.units, draft.hold))
        return self.claims[-1]

    def settle(self, what: str, pick: int, percent: int) -> None:
        state = REFUNDING if what in ("pay", "give up") else WAITING
        mine = [claim for claim in self.claims if claim.state == state]
        if not mine:
            return
        claim = mine[pick % len(mine)]
        if what in ("reject", "give up"):
            claim.state = DEAD
            self.ever_dead.update(unit.ordinal for unit in claim.units)
        elif what == "pay":
            self.pay(claim)
        else:
            if what == "lower":
                self.lower(claim, percent)
            claim.state = REFUNDING
        self.counts[what] += 1

    def lower(self, claim: Claim, percent: int) -> None:
        """Goods kept and less than their worth makes compensation, as `settlement.settle` decides it."""
        goods = claim.goods_fen * percent // 100
        freight = sum(unit.freight_fen for unit in claim.units) * percent // 100
        draft = claim.draft
        if claim.hold == Hold.CONSUMES and draft.item.type == Type.REFUND_ONLY:
            whole = goods == draft.entitlement.goods_fen
            claim.hold = hold_of(Type.REFUND_ONLY, unshipped=draft.goods_state == GoodsState.UNSHIPPED, whole=whole)
        freight = 0 if claim.hold == Hold.DEDUCTS else freight
        claim.units = lower_to(units=claim.units, goods_fen=goods, freight_fen=freight)

    def pay(self, claim: Claim) -> None:
        """The channel says success: points and commissions follow."""
        claim.state = REFUNDED
        if claim.hold == Hold.CONSUMES:
            ordinals = [unit.ordinal for unit in claim.units]
            self.given_back.append(points_of_units(self.line.points_used, self.line.qty, ordinals))
        self.refunded_fen += claim.goods_fen
        if self.granted:
            self.take_back()

    def ship(self, qty: int) -> None:
        held = {u.ordinal for c in self.claims if c.live and c.hold == Hold.CONSUMES for u in c.units}
        free = [o for o in range(1, self.line.qty + 1) if o not in held and o not in self.line.shipped_ordinals]
        self.line.shipped_ordinals = sorted(self.line.shipped_ordinals + free[:qty])

    def complete(self) -> None:
        """Earned points and commissions are granted, less what was refunded before."""
        if not self.granted:
            self.granted = True
            self.take_back()
            self.counts["refunded before it was earned"] += self.refunded_fen > 0

    def take_back(self) -> None:
        for name, whole in self.rewards.items():
            target = share_of_money(whole, self.line.net_fen, self.refunded_fen)
            movement = target - self.taken.get(name, 0)
            assert movement >= 0, name
            self.taken[name] = target

    # --- what always holds ---------------------------------------------------------------------------------------

    def check(self) -> None:
        live = [claim for claim in self.claims if claim.live]
        assert all(unit.goods_fen >= 0 and unit.freight_fen >= 0 for claim in live for unit in claim.units)
        assert sum(claim.goods_fen for claim in live) <= self.line.net_fen
        assert sum(claim.paid_fen - claim.goods_fen for claim in live) <= self.line.freight_share_fen
        assert all(points >= 0 for points in self.given_back)
        assert sum(self.given_back) <= self.line.points_used
        assert all(0 <= self.taken.get(name, 0) <= whole for name, whole in self.rewards.items())

    def outcome(self) -> tuple:
        claims = [(claim.state, str(claim.hold), claim.units) for claim in self.claims]
        return claims, sum(self.given_back), self.refunded_fen, self.taken


@dataclass
class Book:
    lines: list[LineBook]
    payable_fen: int
    points_used: int
    steps: list[tuple] = field(default_factory=list)

    @property
    def committed_fen(self) -> int:
        """What the payment's guard counts: everything that is not known dead."""
        return sum(book.committed_fen for book in self.lines)

    def take(self, steps: list[int]) -> None:
        committed = 0
        for number in steps:
            number, what = divmod(number, len(WHAT))
            at = self.where(WHAT[what], number % len(self.lines))
            if at is None:
                continue
            number, qty = divmod(number // len(self.lines), 3)
            pick, percent = divmod(number, 101)
            step = (WHAT[what], pick, qty + 1, percent)
            self.steps.append((at, step))
            book = self.lines[at]
            before = book.committed_fen
            book.step(*step)
            book.check()
            committed += book.committed_fen - before
            assert 0 <= committed <= self.payable_fen
        assert committed == self.committed_fen

    def where(self, what: str, start: int) -> int | None:
        """The first line from here on for which the step means something."""
        for at in (*range(start, len(self.lines)), *range(start)):
            if self.lines[at].fits(what):
                return at
        return None

    def give_everything_back(self) -> None:
        """Every claim ends in a refund, and every unit that is left is given back, freight and all."""
        for book in self.lines:
            while any(claim.open for claim in book.claims):
                book.settle("approve", 0, 0)
                book.settle("pay", 0, 0)
            while book.facts().free(shipped=False):
                self._give_back(book, "refund")
            while book.facts().free(shipped=True):
                self._give_back(book, "return")
            book.complete()
            book.check()

    def _give_back(self, book: LineBook, what: str) -> None:
        claim = book.apply(what, 1, 1)
        assert claim is not None
        claim.state = REFUNDING
        book.pay(claim)


def frozen_order(made) -> Book:
    """Discounts as parts of what is left, so that every order is a possible one."""
    rows, (coupon, subsidy, points), freight, policy, points_used = made
    priced = [
        PricedLine(line_no=n, unit_price_fen=price, qty=qty, line_discount_fen=price * qty * off // 100)
        for n, (price, qty, off, _shipped) in enumerate(rows, 1)
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
    assert sum(line.points_used for line in allocation.lines) == points_used
    assert sum(line.net_fen + line.freight_share_fen for line in allocation.lines) == allocation.payable_fen
    books = []
    for line, (_price, qty, off, shipped) in zip(allocation.lines, rows, strict=True):
        gone = list(range(1, min(shipped, qty) + 1))
        row = OrderLine(
            line_no=line.line_no,
            qty=qty,
            net_fen=line.net_fen,
            freight_share_fen=line.freight_share_fen,
            points_used=line.points_used,
            shipped_ordinals=gone,
            signed_at=NOW,
        )
        amounts = (line.net_fen * 3 // 100, line.net_fen * off // 500, line.net_fen // 50)
        books.append(LineBook(row, dict(zip(REWARDS, amounts, strict=True)), gone))
    return Book(books, allocation.payable_fen, points_used)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_never_above_and_exact_in_the_end(part):
    """In parts, so that the workers of a parallel run share it; each draws its own examples and prints its counts."""
    seen.clear()
    wanted = EXAMPLES // PARTS
    drawn = given(made=ORDER, steps=STEPS, shuffle=st.integers(0, 2**16))(any_order_any_sequence)
    settings(max_examples=wanted, deadline=None, suppress_health_check=list(HealthCheck))(drawn)()
    examples = seen["examples"]
    print(f"{examples} examples, {seen['claims'] / examples:.1f} claims each in the sequence: {dict(seen)}")
    assert examples >= wanted
    assert seen["claims"] / examples >= 10
    every_second = ["consumes", "deducts", "protect", "open beside another", "approve", "reject", "lower", "pay"]
    for kind in (*every_second, "give up", "applied again", "points used"):
        assert seen[kind] >= examples / 2, kind
    for name in REWARDS:
        assert seen[f"{name} taken back"] >= examples / 4, name
    assert seen["nothing kept back"] >= examples / 50


def any_order_any_sequence(made, steps, shuffle):
    seen["examples"] += 1
    book = frozen_order(made)
    book.take(steps)
    seen["claims"] += sum(len(each.claims) for each in book.lines)
    for each in book.lines:
        seen.update(each.counts)
    each_line_for_itself(book, Random(shuffle))

    book.give_everything_back()

    kept_back = sum(claim.kept_back_fen for each in book.lines for claim in each.claims if claim.live)
    assert book.committed_fen + kept_back == book.payable_fen
    assert sum(sum(each.given_back) for each in book.lines) == book.points_used
    for each in book.lines:
        goods_kept_back = each.line.net_fen - each.refunded_fen
        for name, whole in each.rewards.items():
            assert goods_kept_back or each.taken[name] == whole, name
    for name in REWARDS:
        seen[f"{name} taken back"] += any(each.taken[name] for each in book.lines)
    seen["nothing kept back"] += kept_back == 0
    seen["points used"] += book.points_used > 0


def each_line_for_itself(book: Book, order: Random) -> None:
    """The same steps, each line's in their order, but line after line: each ends as it did among the others."""
    numbers = sorted({at for at, _step in book.steps})
    order.shuffle(numbers)
    for number in numbers:
        again = book.lines[number].again()
        for at, step in book.steps:
            if at == number:
                again.step(*step)
        assert again.outcome() == book.lines[number].outcome()


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
