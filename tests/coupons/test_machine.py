"""A random life of coupons: every command, right and wrong, against a model that knows what has to come out.

Hypothesis drives the real commands against PostgreSQL. After every step the seven invariants hold over the tables
and each coupon is where the model says. The model predicts the refusal's code, too: a refusal for another reason
than the model's is a failure.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from coupons.commands.lock_coupon import Locked
from coupons.models import CouponOperation, CouponRefusal, UserCoupon
from coupons.refusals import CouponRefused
from kernel.errors import Refusal
from tests.coupons.factories import Shop, decide, expire, give_back, make_shop, undo, void
from tests.coupons.invariants import broken_invariants

PARTS = 4
EXAMPLES = int(os.environ.get("QUITS_MACHINE_EXAMPLES", "2000"))
COMMANDS = ("issue", "lock", "renew", "redeem", "release", "return", "void", "reverse", "expire")
VALID = timedelta(days=31)
_users = count(1)
_orders = count(1)


@dataclass
class Redemption:
    """What the model knows of one use."""

    id: UUID
    order: str
    lease: Locked
    in_force: bool = True
    decision: Any = None


@dataclass
class Model:
    """What the model knows of one coupon."""

    id: UUID
    user: str
    until: datetime
    status: str = "AVAILABLE"
    version: int = 1
    lease: Locked | None = None
    leases: list[Locked] = field(default_factory=list)
    redemptions: list[Redemption] = field(default_factory=list)
    operations: list[tuple[str, str, str]] = field(default_factory=lambda: [("ISSUE", "", "AVAILABLE")])

    def move(self, command: str, target: str) -> None:
        self.operations.append((command, self.status, target))
        self.status, self.version = target, self.version + 1
        if target != "LOCKED":
            self.lease = None

    @property
    def used(self) -> Redemption | None:
        return next((one for one in self.redemptions if one.in_force), None)

    def end_use(self) -> None:
        for one in self.redemptions:
            one.in_force = False


class CouponMachine(RuleBasedStateMachine):
    """Three coupons of two users in one shop, and a clock that only goes forward."""

    shop: ClassVar[Shop]
    accepted: ClassVar[Counter[str]]
    refused: ClassVar[Counter[str]]
    codes: ClassVar[Counter[str]]
    steps: ClassVar[int]
    examples: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.now = self.shop.now
        self.coupons: list[Model] = []
        self.users = [f"u{next(_users)}", f"u{next(_users)}"]
        self.done: list[tuple[Any, Any, dict[str, Any]]] = []
        type(self).examples += 1
        self.evidence: Counter[UUID | None] = Counter()

    # How a command is tried.

    def attempt(self, name: str, expected: str | None, command: Any) -> Any:
        """Run a command; it comes out as the model says: None for accepted, otherwise the refusal's code."""
        try:
            result = command()
        except Refusal as refusal:
            type(self).refused[name] += 1
            type(self).codes[f"{name} {refusal.code}"] += 1
            assert refusal.code == expected, f"{name}: {refusal.code} instead of {expected}"
            if isinstance(refusal, CouponRefused):
                assert refusal.data["next_actions"] is not None
                self.evidence[refusal.attempt.coupon_id] += 1
            return None
        assert expected is None, f"{name} was accepted instead of {expected}"
        type(self).accepted[name] += 1
        return result

    def pick(self, number: int) -> Model:
        return self.coupons[number % len(self.coupons)]

    def version(self, coupon: Model, shift: int) -> int:
        return max(1, coupon.version + shift)

    # Rules: one per command, each with ways to be wrong.

    @initialize()
    def begin(self) -> None:
        for user in (*self.users, self.users[0]):
            self.issue(user)

    def issue(self, user: str) -> None:
        owned = sum(coupon.user == user for coupon in self.coupons)
        expected = "LIMIT_REACHED" if owned >= 3 else None
        issued = self.attempt("issue", expected, lambda: self.shop.issue(user, now=self.now))
        if issued is not None:
            self.coupons.append(Model(issued.coupon_id, user, issued.valid_until))

    @rule(user=st.sampled_from([0, 0, 1]))
    def issue_another(self, user: int) -> None:
        self.issue(self.users[user])

    @rule(which=st.integers(0, 5), shift=st.sampled_from([None, None, 0, 0, -1, 1]), right=st.integers(0, 5))
    def lock(self, which: int, shift: int | None, right: int) -> None:
        coupon, order = self.pick(which), f"O{next(_orders)}"
        user = coupon.user if right else "stranger"
        version = None if shift is None else self.version(coupon, shift)
        expected = None
        if user != coupon.user:
            expected = "NOT_OWNER"
        elif version not in (None, coupon.version):
            expected = "VERSION_CONFLICT"
        elif coupon.status == "USED":
            expected = "ALREADY_REDEEMED"
        elif coupon.status == "EXPIRED" or self.now >= coupon.until:
            expected = "COUPON_EXPIRED"
        elif coupon.status != "AVAILABLE":
            expected = "ILLEGAL_TRANSITION"
        lease = self.attempt(
            "lock",
            expected,
            lambda: self.shop.lock(coupon.id, order, user_id=user, now=self.now, expected_version=version),
        )
        if lease is not None:
            coupon.move("LOCK", "LOCKED")
            coupon.lease = lease
            coupon.leases.append(lease)

    def under_lease(
        self, name: str, coupon: Model, age: int, shift: int, order: str | None, command: Any, **values: Any
    ) -> Any:
        """A command under some lease of the coupon (the newest, or an older one) with some version and order."""
        lease = coupon.leases[-1 - age % len(coupon.leases)]
        version = self.version(coupon, shift)
        order = order or lease.order_no
        holds = coupon.lease is lease or (coupon.used is not None and coupon.used.lease is lease)
        expected = None
        if not holds and coupon.status in ("LOCKED", "USED"):
            expected = "TOKEN_MISMATCH"
        elif coupon.status == "LOCKED" and order != lease.order_no:
            expected = "NOT_OWNER"
        elif name == "redeem" and holds and coupon.status == "USED" and order == lease.order_no:
            expected = "again"
        elif version != coupon.version:
            expected = "VERSION_CONFLICT"
        elif coupon.status == "USED":
            expected = "ALREADY_REDEEMED"
        elif coupon.status != "LOCKED":
            expected = "ILLEGAL_TRANSITION"
        if expected == "again":
            result = command(lease, expected_version=version, order_no=order, now=self.now, **values)
            assert result.replayed
            assert coupon.used is not None
            assert result.redemption_id == coupon.used.id
            return None
        return self.attempt(
            name,
            expected,
            lambda: command(lease, expected_version=version, order_no=order, now=self.now, **values),
        )

    held = st.tuples(
        st.integers(0, 5),
        st.sampled_from([0, 0, 0, 0, 1, 2]),
        st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
        st.sampled_from([None, None, None, None, "someone-elses"]),
    )

    def take(self, coupon: Model, **values: Any) -> Locked:
        """Lock it in a way that has to be accepted."""
        lease = self.attempt(
            "lock",
            None,
            lambda: self.shop.lock(coupon.id, f"O{next(_orders)}", user_id=coupon.user, now=self.now, **values),
        )
        coupon.move("LOCK", "LOCKED")
        coupon.lease = lease
        coupon.leases.append(lease)
        return lease

    def free(self) -> list[Model]:
        return [one for one in self.coupons if one.status == "AVAILABLE" and self.now < one.until]

    def with_lease(self, which: int) -> Model | None:
        """A coupon that is held or was once: mostly one that is held, locked on the way if need be."""
        leased = [coupon for coupon in self.coupons if coupon.leases]
        live = [coupon for coupon in leased if coupon.lease]
        if which < 5 and not live and self.free():
            coupon = self.free()[which % len(self.free())]
            self.take(coupon)
            return coupon
        found = live if which < 5 and live else leased
        return found[which % len(found)] if found else None

    @rule(how=held)
    def renew(self, how: tuple[int, int, int, str | None]) -> None:
        which, age, shift, order = how
        coupon = self.with_lease(which)
        if coupon is None:
            return
        until = self.now + timedelta(hours=1)
        if self.under_lease("renew", coupon, age, shift, order, self.shop.renew, expires_at=until):
            lease = coupon.lease
            coupon.move("RENEW", "LOCKED")
            coupon.lease = lease

    @rule(how=held)
    def redeem(self, how: tuple[int, int, int, str | None]) -> None:
        which, age, shift, order = how
        coupon = self.with_lease(which)
        if coupon is None:
            return
        lease = coupon.lease
        done = self.under_lease("redeem", coupon, age, shift, order, self.shop.redeem)
        if done is not None:
            coupon.move("REDEEM", "USED")
            coupon.redemptions.append(Redemption(done.redemption_id, done.order_no, lease))

    @rule(how=held)
    def release(self, how: tuple[int, int, int, str | None]) -> None:
        which, age, shift, order = how
        coupon = self.with_lease(which)
        if coupon is None:
            return
        released = self.under_lease("release", coupon, age, shift, order, self.shop.release)
        if released is not None:
            coupon.move("RELEASE", "AVAILABLE" if self.now < coupon.until else "EXPIRED")
            assert released.status == coupon.status

    @rule(which=st.integers(0, 9), shift=st.sampled_from([None, None, 0, -1, 1]), wholly=st.sampled_from([1, 1, 1, 0]))
    def give_back(self, which: int, shift: int | None, wholly: int) -> None:
        """Decide about a use (if nobody has) and return the coupon by that decision, if it is one to return."""
        if not any(coupon.used for coupon in self.coupons) and self.free():
            coupon = self.free()[0]
            done = self.attempt("redeem", None, partial(self.shop.redeem, self.take(coupon), now=self.now))
            lease = coupon.lease
            coupon.move("REDEEM", "USED")
            coupon.redemptions.append(Redemption(done.redemption_id, done.order_no, lease))
        uses = [(coupon, one) for coupon in self.coupons for one in coupon.redemptions]
        if not uses:
            return
        open_uses = [(coupon, one) for coupon, one in uses if one.in_force]
        coupon, use = (open_uses or uses)[which % len(open_uses or uses)] if which < 7 else uses[which % len(uses)]
        if use.in_force and (use.decision is None or use.decision.decision != "RETURN"):
            use.decision = decide(self.shop, use.id, order_wholly_refunded=bool(wholly), now=self.now)
            full = "RETURN" if self.now < coupon.until else "KEEP"
            assert use.decision.decision == (full if wholly else "KEEP")
        if use.decision is None:
            return
        version = None if shift is None else self.version(coupon, shift)
        expected = None
        if use.decision.decision != "RETURN":
            expected = "NO_RETURN_DECISION"
        elif not use.in_force or version not in (None, coupon.version):
            expected = "VERSION_CONFLICT"
        elif coupon.status != "USED":
            expected = "ILLEGAL_TRANSITION"
        if self.attempt(
            "return", expected, lambda: give_back(self.shop, use.decision, now=self.now, expected_version=version)
        ):
            coupon.end_use()
            coupon.move("RETURN", "AVAILABLE" if self.now < coupon.until else "EXPIRED")

    @rule(which=st.integers(0, 5), shift=st.sampled_from([0, 0, 0, -1, 1]))
    def void(self, which: int, shift: int) -> None:
        coupon = self.pick(which)
        version = self.version(coupon, shift)
        expected = None
        if version != coupon.version:
            expected = "VERSION_CONFLICT"
        elif coupon.status not in ("AVAILABLE", "USED"):
            expected = "ILLEGAL_TRANSITION"
        if self.attempt("void", expected, lambda: void(self.shop, coupon.id, expected_version=version, now=self.now)):
            coupon.move("VOID", "VOID")

    @rule(which=st.integers(0, 5), back=st.sampled_from([0, 0, 0, 0, 1]), shift=st.sampled_from([0, 0, 0, 0, -1]))
    def reverse(self, which: int, back: int, shift: int) -> None:
        undoable = [one for one in self.coupons if one.operations[-1][0] in ("REDEEM", "RETURN", "VOID", "REVERSE")]
        coupon = undoable[which % len(undoable)] if undoable and which < 4 else self.pick(which)
        index = max(0, len(coupon.operations) - 1 - back)
        command, source, target = coupon.operations[index]
        version = self.version(coupon, shift)
        expected = None
        if command not in ("REDEEM", "RETURN", "VOID", "REVERSE"):
            expected = "NOT_REVERSIBLE"
        elif index != len(coupon.operations) - 1 or version != coupon.version:
            expected = "VERSION_CONFLICT"
        original = CouponOperation.objects.get(coupon_id=coupon.id, to_version=index + 1)
        undone = self.attempt(
            "reverse",
            expected,
            lambda: undo(self.shop, coupon.id, operation_id=original.pk, expected_version=version, now=self.now),
        )
        if undone is None:
            return
        if target == "USED" and source != "VOID":
            coupon.end_use()
            coupon.move("REVERSE", "AVAILABLE" if self.now < coupon.until else "EXPIRED")
        elif source == "USED" and target != "VOID":
            last = coupon.redemptions[-1]
            coupon.redemptions.append(Redemption(undone.redemption_id, last.order, last.lease))
            coupon.move("REVERSE", "USED")
        else:
            coupon.move("REVERSE", source)
        assert undone.status == coupon.status

    @rule(which=st.integers(0, 5), shift=st.sampled_from([0, 0, 0, -1, 1]), wait=st.sampled_from([0, 0, 1]))
    def expire(self, which: int, shift: int, wait: int) -> None:
        if wait and self.free():
            self.now = self.free()[0].until
        over = [one for one in self.coupons if self.now >= one.until and one.status == "AVAILABLE"]
        coupon = over[which % len(over)] if over else self.pick(which)
        version = self.version(coupon, shift)
        expected = None
        if version != coupon.version:
            expected = "VERSION_CONFLICT"
        elif coupon.status != "AVAILABLE" or self.now < coupon.until:
            expected = "ILLEGAL_TRANSITION"
        if self.attempt(
            "expire", expected, lambda: expire(self.shop, coupon.id, expected_version=version, now=self.now)
        ):
            coupon.move("EXPIRE", "EXPIRED")

    @rule(
        passed=st.sampled_from(
            [timedelta(seconds=1), timedelta(minutes=7), timedelta(days=2), timedelta(days=9), VALID]
        )
    )
    def time_passes(self, passed: timedelta) -> None:
        self.now += passed

    @rule(which=st.integers(0, 5), again=st.booleans())
    def replay(self, which: int, again: bool) -> None:
        """The same key gives the first result again; with another request it is refused. Neither moves anything."""
        coupon = self.pick(which)
        if coupon.status != "AVAILABLE" or self.now >= coupon.until:
            return
        key = f"replay-{next(_orders)}"
        lease = self.take(coupon, key=key)
        order = lease.order_no
        if again:
            repeated = self.shop.lock(coupon.id, order, user_id=coupon.user, key=key, now=self.now)
            assert repeated.replayed
            assert (repeated.lock_id, repeated.lock_token) == (lease.lock_id, lease.lock_token)
        else:
            self.attempt(
                "lock",
                "IDEMPOTENCY_KEY_REUSED",
                lambda: self.shop.lock(coupon.id, "another", user_id=coupon.user, key=key, now=self.now),
            )

    # What holds after every step.

    @invariant()
    def the_tables_are_as_the_model_says(self) -> None:
        if not self.coupons:
            return
        type(self).steps += 1
        ids = [coupon.id for coupon in self.coupons]
        assert not broken_invariants(ids)
        rows = {
            row[0]: row[1:]
            for row in UserCoupon.objects.filter(pk__in=ids).values_list("id", "status", "state_version")
        }
        assert rows == {coupon.id: (coupon.status, coupon.version) for coupon in self.coupons}

    def teardown(self) -> None:
        """Every refusal has left exactly one row of evidence."""
        ids = [coupon.id for coupon in self.coupons]
        left = Counter(CouponRefusal.objects.filter(coupon_id__in=ids).values_list("coupon_id", flat=True))
        assert left == Counter({coupon_id: self.evidence[coupon_id] for coupon_id in ids if self.evidence[coupon_id]})


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_random_lives_of_coupons(transactional_db, now, part: int, record_property) -> None:
    examples = max(1, EXAMPLES // PARTS)

    class Part(CouponMachine):
        shop = make_shop(now, per_user_limit=3)
        accepted: ClassVar[Counter[str]] = Counter()
        refused: ClassVar[Counter[str]] = Counter()
        codes: ClassVar[Counter[str]] = Counter()
        steps = 0
        examples = 0

    run_state_machine_as_test(
        Part,
        settings=settings(
            max_examples=examples,
            stateful_step_count=18,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

    figures = {
        "examples": Part.examples,
        "steps": Part.steps,
        "average": round(Part.steps / Part.examples - 1, 1),  # the check after the beginning is no step
        "accepted": {name: Part.accepted[name] for name in COMMANDS},
        "refused": {name: Part.refused[name] for name in COMMANDS},
        "codes": dict(sorted(Part.codes.items())),
    }
    print(json.dumps(figures))
    record_property("coupon_machine", figures)
    folder = Path(django_settings.QUITS_VAR) / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"coupon-machine-{part}.json").write_text(json.dumps(figures, indent=1))
    assert Part.examples >= examples
    if examples >= 400:  # a share of: ≥ 15 steps on average, each command ≥ 200 times accepted and refused
        assert figures["average"] >= 15
        assert min(figures["accepted"].values()) >= 200 / PARTS
        assert min(figures["refused"].values()) >= 200 / PARTS
