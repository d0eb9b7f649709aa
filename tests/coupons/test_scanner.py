"""The scanner: overdue leases and ended validities, in pages, each row with its own proof and evidence."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from coupons import facts, tasks
from coupons.commands.expire_coupons import expire_coupons
from coupons.commands.release_leases import HeldLease, release_leases
from coupons.commands.scan_leases import scan_leases
from coupons.facts import LeaseVerdict
from coupons.models import CouponLock, CouponOperation, UserCoupon
from kernel.models import IdempotencyKey, OutboxEvent
from tests.coupons.factories import Shop, expire, make_shop, race, refusals, state, written

OVERDUE = timedelta(minutes=10)
LATER = timedelta(days=40)


class Facts:
    """Orders whose verdict a test sets."""

    def __init__(self, **verdicts: LeaseVerdict) -> None:
        self.verdicts, self.asked = verdicts, []

    def lease_verdicts(self, *, merchant_id, order_nos, now):
        self.asked.append((merchant_id, set(order_nos)))
        return {order: self.verdicts[order] for order in order_nos if order in self.verdicts}

    def moments(self, *, merchant_id, order_nos):
        return []


@pytest.fixture(autouse=True)
def orders(monkeypatch) -> Facts:
    registered = Facts()
    monkeypatch.setattr(facts, "_registered", [registered])
    return registered


def held(lease) -> HeldLease:
    row = CouponLock.objects.get(pk=lease.lock_id)
    return HeldLease(row.merchant_id, row.coupon_id, row.pk, bytes(row.token_hash), row.order_no, lease.state_version)


def scan(shop: Shop, **values: Any):
    return scan_leases(**{"now": shop.now + OVERDUE, **values})


def test_only_leases_past_their_time(shop: Shop) -> None:
    due = shop.lock(shop.issue().coupon_id, "A")
    young = shop.lock(shop.issue().coupon_id, "B", lease_seconds=3600)
    renewed = shop.lock(shop.issue().coupon_id, "C")
    shop.renew(renewed)

    done = scan(shop)

    assert (done.looked_at, done.released, done.next) == (1, 1, None)
    assert state(due.coupon_id) == ("AVAILABLE", 3)
    assert state(young.coupon_id) == ("LOCKED", 2)
    assert state(renewed.coupon_id) == ("LOCKED", 3)


def test_a_coupon_whose_validity_is_over_goes_to_expired(shop: Shop) -> None:
    lease = shop.lock(shop.issue().coupon_id, "A")

    scan(shop, now=shop.now + LATER)

    assert state(lease.coupon_id) == ("EXPIRED", 3)


def test_the_batch_leaves_what_the_single_command_leaves(shop: Shop) -> None:
    """Row by row the same evidence: ledger, end of lease, key with result, event."""

    def evidence(coupon_id, key: str) -> tuple:
        operation = CouponOperation.objects.filter(coupon_id=coupon_id).order_by("-to_version").values().first()
        event = OutboxEvent.objects.filter(subject=str(coupon_id), name="coupon.released").values().get()
        stored = IdempotencyKey.objects.filter(key=key).values().get()
        coupon = UserCoupon.objects.filter(pk=coupon_id).values().get()
        lease = CouponLock.objects.get(coupon_id=coupon_id)
        assert lease.ended_by_id == operation["id"]
        own = {str(value) for value in (coupon_id, lease.pk)}
        varying = ("id", "coupon_id", "business_key", "actor", "reason", "lock_id", "subject", "key", "request_hash")

        def plain(row: dict) -> dict:
            kept = {name: value for name, value in row.items() if name not in varying}
            return {name: "own" if str(value) in own else value for name, value in kept.items()}

        return (
            plain(operation),
            plain({**event, "payload": None}),
            plain(event["payload"]),
            plain({**stored, "result": None}),
            plain(stored["result"]),
            plain(coupon),
        )

    single, batch = (shop.lock(shop.issue().coupon_id, "A") for _ in range(2))

    shop.release(single, key="one", now=shop.now + OVERDUE)
    release_leases(leases=[held(batch)], now=shop.now + OVERDUE)

    key = held(batch).key().key
    assert evidence(single.coupon_id, "one") == evidence(batch.coupon_id, key)


def test_each_row_proves_lease_token_and_version(shop: Shop) -> None:
    right, moved, renewed, ended = (shop.lock(shop.issue().coupon_id, order) for order in "ABCD")
    before = [held(lease) for lease in (right, moved, renewed, ended)]
    shop.release(moved)
    newer = shop.lock(moved.coupon_id, "B")
    shop.renew(renewed)
    shop.redeem(ended)
    wrong_token = HeldLease(**{**vars(held(newer)), "token_hash": b"\0" * 32, "state_version": 4})

    done = release_leases(leases=[*before, wrong_token], now=shop.now + OVERDUE)

    assert done.coupon_ids == [right.coupon_id]
    assert state(moved.coupon_id) == ("LOCKED", 4)
    assert state(renewed.coupon_id) == ("LOCKED", 3)
    assert state(ended.coupon_id) == ("USED", 3)
    assert refusals() == []


def test_orders_are_asked_first(shop: Shop, orders: Facts) -> None:
    paid, alive, ended, quote = (shop.lock(shop.issue().coupon_id, order) for order in ("P", "L", "E", "Q"))
    orders.verdicts = {"P": LeaseVerdict.COORDINATE, "L": LeaseVerdict.WAIT, "E": LeaseVerdict.RELEASE}

    done = scan(shop)

    assert orders.asked == [(shop.merchant_id, {"P", "L", "E", "Q"})]
    assert (done.released, done.waiting, done.coordinated) == (2, 1, 1)
    assert [state(lease.coupon_id)[0] for lease in (paid, alive, ended, quote)] == [
        "LOCKED",
        "LOCKED",
        "AVAILABLE",
        "AVAILABLE",
    ]
    event = OutboxEvent.objects.get(name="coupon.lease_overdue")
    assert (event.subject, event.payload["lock_id"]) == ("P", str(paid.lock_id))


def test_the_coordinator_is_told_at_intervals_not_at_every_scan(shop: Shop, orders: Facts) -> None:
    shop.lock(shop.issue().coupon_id, "P")
    orders.verdicts = {"P": LeaseVerdict.COORDINATE}

    told = [scan(shop, now=shop.now + OVERDUE + timedelta(minutes=minute)).coordinated for minute in (0, 1, 5, 11, 12)]

    assert told == [1, 0, 0, 1, 0]
    assert OutboxEvent.objects.filter(name="coupon.lease_overdue").count() == 2


def test_merchants_are_asked_apart(shop: Shop, now, orders: Facts) -> None:
    other = make_shop(now)
    shop.lock(shop.issue().coupon_id, "A")
    other.lock(other.issue().coupon_id, "A")

    assert scan(shop).released == 2
    assert sorted(orders.asked) == sorted([(shop.merchant_id, {"A"}), (other.merchant_id, {"A"})])


def test_pages_by_key(shop: Shop, orders: Facts) -> None:
    leases = [shop.lock(shop.issue().coupon_id, f"O{number}", lease_seconds=60) for number in range(7)]
    orders.verdicts = {"O0": LeaseVerdict.WAIT, "O3": LeaseVerdict.WAIT}

    first = scan(shop, limit=3)
    second = scan(shop, limit=3, after=first.next)
    third = scan(shop, limit=3, after=second.next)

    assert [(page.looked_at, page.next is None) for page in (first, second, third)] == [
        (3, False),
        (3, False),
        (1, True),
    ]
    assert sum(page.released for page in (first, second, third)) == 5
    assert sorted(state(lease.coupon_id)[0] for lease in leases) == ["AVAILABLE"] * 5 + ["LOCKED"] * 2


def test_shards_share_the_work_without_a_rest(shop: Shop) -> None:
    for number in range(12):
        shop.lock(shop.issue().coupon_id, f"O{number}")

    done = [scan(shop, shard=shard, shards=3).released for shard in range(3)]

    assert sum(done) == 12
    assert max(done) < 12


def test_twice_changes_nothing_twice(shop: Shop) -> None:
    for number in range(3):
        shop.lock(shop.issue().coupon_id, f"O{number}")
    scan(shop)
    before = written()

    assert scan(shop).looked_at == 0
    assert written() == before


def test_on_two_machines_at_once(shop: Shop) -> None:
    for number in range(20):
        shop.lock(shop.issue().coupon_id, f"O{number}")

    done = race([partial(scan, shop) for _ in range(4)])

    assert sum(page.released for page in done) == 20
    assert CouponOperation.objects.filter(command="RELEASE").count() == 20


def test_against_renew_and_redeem_at_once(shop: Shop) -> None:
    """C26: whoever is first wins; the other meets a new version, and the invariants hold (the fixture looks)."""
    for _round in range(4):
        leases = [shop.lock(shop.issue().coupon_id, f"O{number}") for number in range(4)]
        late = shop.now + OVERDUE
        commands = [
            partial(scan, shop),
            partial(shop.renew, leases[0], now=late, expires_at=late + OVERDUE),
            partial(shop.redeem, leases[1], now=late),
            partial(shop.release, leases[2], now=late),
        ]

        results = race(commands)

        for refused in (result for result in results if isinstance(result, Exception)):
            assert refused.code == "VERSION_CONFLICT"


def test_one_taken_key_does_not_stop_the_page(shop: Shop, now) -> None:
    """C27: the page falls back to single commands; the bad row is refused with evidence, the rest proceed."""
    leases = [shop.lock(shop.issue().coupon_id, f"O{number}") for number in range(4)]
    taken = held(leases[1]).key()
    IdempotencyKey.objects.create(
        merchant_id=shop.merchant_id, key=taken.key, request_hash="of another request", result={}, created_at=now
    )

    done = scan(shop)

    assert done.released == 3
    assert state(leases[1].coupon_id) == ("LOCKED", 2)
    assert [(command, code) for command, code, *_rest in refusals()] == [("RELEASE", "IDEMPOTENCY_KEY_REUSED")]


def test_the_validity_pass(shop: Shop) -> None:
    free, held_one, used = (shop.issue().coupon_id for _ in range(3))
    shop.lock(held_one, "A")
    shop.redeem(shop.lock(used, "B"))
    end = UserCoupon.objects.get(pk=free).valid_until

    early = expire_coupons(now=end - timedelta(seconds=1), since=shop.now)
    done = expire_coupons(now=end, since=shop.now)
    again = expire_coupons(now=end, since=shop.now)

    assert (early.expired, done.expired, again.expired) == (0, 1, 0)
    assert state(free) == ("EXPIRED", 2)
    assert state(held_one) == ("LOCKED", 2)
    assert state(used) == ("USED", 3)
    operation = CouponOperation.objects.get(command="EXPIRE")
    assert (operation.from_version, operation.from_status, operation.actor) == (1, "AVAILABLE", "system:scanner")


def test_the_validity_pass_in_pages_and_at_once(shop: Shop) -> None:
    for _ in range(9):
        shop.issue()
    late = shop.now + LATER

    first = expire_coupons(now=late, since=shop.now, limit=4)
    assert (first.expired, first.next is not None) == (4, True)
    race([partial(expire_coupons, now=late, since=shop.now) for _ in range(3)])

    assert set(UserCoupon.objects.values_list("status", "state_version")) == {("EXPIRED", 2)}


def test_one_taken_key_does_not_stop_the_validity_pass(shop: Shop, now) -> None:
    ids = [shop.issue().coupon_id for _ in range(3)]
    IdempotencyKey.objects.create(
        merchant_id=shop.merchant_id,
        key=f"coupon:{ids[0]}:expire:v1",
        request_hash="of another request",
        result={},
        created_at=now,
    )

    assert expire_coupons(now=shop.now + LATER, since=shop.now).expired == 2
    assert state(ids[0]) == ("AVAILABLE", 1)
    assert len(refusals()) == 1


def test_expired_by_the_pass_or_by_the_command_is_the_same(shop: Shop) -> None:
    single, batch = (shop.issue().coupon_id for _ in range(2))
    late = shop.now + LATER
    expire(shop, single, now=late)
    expire_coupons(now=late, since=shop.now)

    rows = CouponOperation.objects.filter(command="EXPIRE").values_list(
        "from_version", "from_status", "to_version", "to_status", "order_no", "lock_id", "at"
    )
    assert rows[0] == rows[1]
    assert state(single) == state(batch)


def test_the_beat_entries(shop: Shop, monkeypatch) -> None:
    times: list[datetime] = []
    monkeypatch.setattr(tasks, "PAGE", 2)
    monkeypatch.setattr(tasks.clock, "now", lambda: times[0])
    for number in range(5):
        shop.lock(shop.issue().coupon_id, f"O{number}")
    times.append(shop.now + OVERDUE)

    assert tasks.release_overdue_leases() == 5
    assert tasks.expire_overdue_coupons() == 0
    times[0] = UserCoupon.objects.first().valid_until + timedelta(hours=1)
    assert tasks.expire_overdue_coupons() == 5
    times[0] += timedelta(days=30)
    shop.issue()
    assert tasks.expire_overdue_coupons() == 0, "it looks at the last days only"
    assert tasks.expire_all_overdue_coupons() == 1


def test_the_rate_is_kept(monkeypatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(tasks.time, "sleep", slept.append)
    pages = iter([(500, 1), (500, 2), (100, None)])

    class Page:
        def __init__(self, looked_at: int, following: int | None) -> None:
            self.looked_at, self.next = looked_at, following

    assert len(tasks.walk(lambda _cursor: Page(*next(pages)), rate=1000)) == 3
    assert slept == pytest.approx([0.5, 0.5], abs=0.05)


def test_a_run_has_an_end(monkeypatch) -> None:
    class Page:
        looked_at, next = 0, 1

    assert len(tasks.walk(lambda _cursor: Page())) == tasks.PAGES
