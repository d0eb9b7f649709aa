"""Every order of events: paid, closed, lease overdue, another order locks and pays, refunded; repeated and late.

Each letter is an event as its consumer sees it: it carries the lease its order once got, with the version it knew,
and the same business key when it is delivered again. Each sequence runs through the real commands, every command in
its own committed transaction, on a coupon of its own that order A holds; at the end every invariant is checked.

    P  A was paid: redeem A          L  order B locks         R  A's refund succeeded: decide and return
    C  A was closed: release A       Q  B was paid: redeem B  X  the scanner's release of A's overdue lease
    D  B was closed: release B

All words of five of these seven letters (16,807), and all distinct orders of a longer story with duplicates
(P P C C X L R): together more than the source's 18,000, and no more than five minutes on two cores.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from itertools import islice, permutations, product
from pathlib import Path
from time import monotonic, process_time
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings

from coupons import leases
from coupons.commands.lock_coupon import Locked, lock_coupon
from coupons.commands.redeem_coupon import redeem_coupon
from coupons.commands.release_coupon import release_coupon
from coupons.commands.release_leases import HeldLease, release_leases
from coupons.models import CouponRedemption, CouponRefusal, UserCoupon
from coupons.refusals import CouponRefused
from kernel.idempotency import BusinessKey
from tests.coupons.factories import Shop, decide, give_back, issue_many, make_shop
from tests.coupons.invariants import broken_invariants

LETTERS = "PCXLQDR"
STORIES = ("PPCCXLR",)
PARTS = 4
CHUNK = 250
OLD = {"TOKEN_MISMATCH", "VERSION_CONFLICT"}


@cache
def words() -> list[str]:
    """All sequences, each once."""
    found = {"".join(word) for word in product(LETTERS, repeat=5)}
    for story in STORIES:
        found |= {"".join(word) for word in permutations(story)}
    return sorted(found)


@dataclass
class Life:
    """One coupon and what the two orders know."""

    shop: Shop
    coupon_id: UUID
    a: Locked
    b: Locked | None = None
    redeemed: Any = None
    decided: Any = None
    said: list[str] = field(default_factory=list)

    def key(self, name: str) -> BusinessKey:
        return BusinessKey(self.shop.merchant_id, f"{name}:{self.coupon_id}", name)

    def play(self, word: str) -> None:
        for letter in word:
            try:
                self.said.append(getattr(self, letter)() or "nothing")
            except CouponRefused as refusal:
                self.said.append(refusal.code)

    def _under(self, command: Any, lease: Locked | None, name: str, **values: Any) -> Any:
        """A command with the lease that an order believes to hold; without one, with a token it made up."""
        return command(
            merchant_id=self.shop.merchant_id,
            coupon_id=self.coupon_id,
            order_no=lease.order_no if lease else "B",
            lock_token=lease.lock_token if lease else "x" * leases.TOKEN_LENGTH,
            expected_version=lease.state_version if lease else 2,
            key=self.key(name),
            now=self.shop.now,
            **values,
        )

    def P(self) -> str:
        self.redeemed = self._under(redeem_coupon, self.a, "paid-a", payment_no="pay-a")
        return "again" if self.redeemed.replayed else "redeemed"

    def C(self) -> str:
        return "again" if self._under(release_coupon, self.a, "closed-a").replayed else "released"

    def X(self) -> str:
        overdue = HeldLease(
            self.shop.merchant_id,
            self.coupon_id,
            self.a.lock_id,
            leases.hash_token(self.a.lock_token),
            self.a.order_no,
            self.a.state_version,
        )
        late = self.shop.now + timedelta(hours=1)
        return "scanned" if release_leases(leases=[overdue], now=late).coupon_ids else ""

    def L(self) -> str:
        self.b = lock_coupon(
            merchant_id=self.shop.merchant_id,
            coupon_id=self.coupon_id,
            user_id="user-1",
            order_no="B",
            lease_seconds=300,
            key=self.key("lock-b"),
            now=self.shop.now,
        )
        return "again" if self.b.replayed else "locked"

    def Q(self) -> str:
        return "again" if self._under(redeem_coupon, self.b, "paid-b", payment_no="pay-b").replayed else "redeemed b"

    def D(self) -> str:
        return "again" if self._under(release_coupon, self.b, "closed-b").replayed else "released b"

    def R(self) -> str:
        if self.redeemed is None:
            return ""
        if self.decided is None:
            self.decided = decide(self.shop, self.redeemed.redemption_id)
        return "again" if give_back(self.shop, self.decided, key=f"return:{self.coupon_id}").replayed else "returned"


def chunks(found: list[str]) -> Iterator[list[str]]:
    rest = iter(found)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def judge(lives: dict[UUID, tuple[str, Life]]) -> None:
    """All invariants over these coupons, and of each: one redemption at most, old tokens refused as such."""
    assert not broken_invariants(lives)
    in_force = Counter(
        CouponRedemption.objects.filter(coupon_id__in=lives, ended_by=None).values_list("coupon_id", flat=True)
    )
    assert not in_force or max(in_force.values()) == 1
    states = dict(UserCoupon.objects.filter(pk__in=lives).values_list("pk", "status"))
    evidence = Counter(CouponRefusal.objects.filter(coupon_id__in=lives).values_list("coupon_id", flat=True))
    for coupon_id, (word, life) in lives.items():
        story = list(zip(word, life.said, strict=True))
        ended = False  # whether A's lease has ended, and A did not use the coupon under it
        refused = 0
        for letter, said in story:
            refused += said.isupper()
            if letter in "PC" and said.isupper() and ended:
                assert said in OLD, (word, life.said)
            if letter == "P" and said == "redeemed":
                assert not ended, f"{word}: an old token redeemed: {life.said}"
            ended = ended or said in ("released", "scanned", "returned")
        assert evidence[coupon_id] == refused, (word, life.said)
        assert (states[coupon_id] == "USED") == bool(in_force[coupon_id])


def test_the_sequences_are_distinct_and_more_than_the_sources() -> None:
    assert len(words()) == len(set(words())) >= 18_000


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_order_of_events(transactional_db, now, part: int, record_property) -> None:
    shop = make_shop(now)
    mine = words()[part::PARTS]
    outcomes: Counter[str] = Counter()
    started, busy = monotonic(), process_time()
    for chunk in chunks(mine):
        lives: dict[UUID, tuple[str, Life]] = {}
        for word, coupon_id in zip(chunk, issue_many(shop, len(chunk)), strict=True):
            life = Life(shop, coupon_id, shop.lock(coupon_id, "A"))
            life.play(word)
            lives[coupon_id] = (word, life)
            outcomes.update(f"{letter} {said}" for letter, said in zip(word, life.said, strict=True))
        judge(lives)

    figures = {
        "sequences": len(mine),
        "events": sum(outcomes.values()),
        "seconds": round(monotonic() - started, 1),
        "cpu_seconds": round(process_time() - busy, 1),
        "outcomes": dict(sorted(outcomes.items())),
    }
    print(json.dumps(figures))
    record_property("coupon_sequences", figures)
    folder = Path(django_settings.QUITS_VAR) / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"coupon-sequences-{part}.json").write_text(json.dumps(figures, indent=1))


def test_the_incident_is_among_them(shop: Shop) -> None:
    """The golden case: A locks (v2), its close releases (v3), B locks (v4), A's late payment is refused, B redeems."""
    issued = shop.issue()
    life = Life(shop, issued.coupon_id, shop.lock(issued.coupon_id, "A"))

    life.play("CLPQP")

    assert "CLPQP" in words()
    assert life.said == ["released", "locked", "TOKEN_MISMATCH", "redeemed b", "TOKEN_MISMATCH"]
    judge({issued.coupon_id: ("CLPQP", life)})
