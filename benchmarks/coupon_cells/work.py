"""The cells of our own code, and of the same command as it is usually written in the ORM."""

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from time import monotonic, sleep
from uuid import UUID

from django.db import connections, transaction

from benchmarks.coupon_cells.rows import MERCHANT, NOW, coupon_id, lock_id, token, token_hash
from benchmarks.harness import FORK
from coupons.commands.lock_coupon import lock_coupon
from coupons.commands.queue_wallet import queue_wallet
from coupons.commands.redeem_coupon import redeem_coupon
from coupons.commands.release_coupon import release_coupon
from coupons.commands.release_leases import HeldLease, release_leases
from coupons.commands.renew_coupon import renew_coupon
from coupons.commands.scan_leases import Cursor, scan_leases
from coupons.models import CouponLock, CouponOperation, UserCoupon
from coupons.refusals import CouponRefused
from kernel.idempotency import BusinessKey
from kernel.models import IdempotencyKey, OutboxEvent
from kernel.numbers import uuid7

Operation = Callable[[int], object]
WARM = 20
"""Operations −1 … −20 warm a client up; they use the first coupons of its stretch."""
DIGEST = "a" * 64


def number_of(client: int, index: int, *, first: int, stride: int, step: int = 1) -> int:
    """The coupon of a client's operation: each client has a stretch of its own, walked in steps."""
    return first + client * stride + (WARM + index) * step


def lock(*, first: int, stride: int, step: int = 1) -> Callable[[int, int], Operation]:
    """lock_coupon, as the API and the quotes call it."""

    def prepare(client: int, clients: int) -> Operation:
        merchant = MERCHANT["id"]

        def operation(index: int) -> object:
            number = number_of(client, index, first=first, stride=stride, step=step)
            return lock_coupon(
                merchant_id=merchant,
                coupon_id=coupon_id(number),
                user_id=f"u{number}",
                order_no=f"O{number}",
                lease_seconds=300,
                key=BusinessKey(merchant, f"bench:{number}", DIGEST),
                now=NOW,
            )

        return operation

    return prepare


def redeem(*, first: int, stride: int, step: int = 1) -> Callable[[int, int], Operation]:
    """redeem_coupon, as the order coordinator calls it."""

    def prepare(client: int, clients: int) -> Operation:
        merchant = MERCHANT["id"]

        def operation(index: int) -> object:
            number = number_of(client, index, first=first, stride=stride, step=step)
            return redeem_coupon(
                merchant_id=merchant,
                coupon_id=coupon_id(number),
                order_no=f"O{number}",
                lock_token=token(number),
                expected_version=2,
                payment_no=f"P{number}",
                key=BusinessKey(merchant, f"bench:{number}", DIGEST),
                now=NOW,
            )

        return operation

    return prepare


def release(*, first: int, stride: int, step: int = 1) -> Callable[[int, int], Operation]:
    """release_coupon, as the order coordinator calls it."""
    return _under_lease(release_coupon, first=first, stride=stride, step=step)


def renew(*, first: int, stride: int, step: int = 1) -> Callable[[int, int], Operation]:
    """renew_coupon, as an order does that is being paid."""
    later = NOW + timedelta(minutes=30)
    return _under_lease(renew_coupon, first=first, stride=stride, step=step, expires_at=later)


def _under_lease(
    command: Callable[..., object], *, first: int, stride: int, step: int, **values: object
) -> Callable[[int, int], Operation]:
    def prepare(client: int, clients: int) -> Operation:
        merchant = MERCHANT["id"]

        def operation(index: int) -> object:
            number = number_of(client, index, first=first, stride=stride, step=step)
            return command(
                merchant_id=merchant,
                coupon_id=coupon_id(number),
                order_no=f"O{number}",
                lock_token=token(number),
                expected_version=2,
                key=BusinessKey(merchant, f"bench:{number}", DIGEST),
                now=NOW,
                **values,
            )

        return operation

    return prepare


COMMANDS = {"lock": lock, "renew": renew, "redeem": redeem, "release": release}


def as_django_does_by_itself() -> None:
    """The connection as a new project has it: bound in the client, nothing prepared."""
    options = connections["default"].settings_dict["OPTIONS"]
    options.pop("server_side_binding", None)
    options.pop("prepare_threshold", None)


def lock_as_usual(
    *, merchant_id: UUID, coupon_id: UUID, user_id: str, order_no: str, lease_seconds: int, key: str
) -> UserCoupon:
    """The same rows written as one usually does: read for update, check, save, create, create, create."""
    if IdempotencyKey.objects.filter(merchant_id=merchant_id, key=key).exists():
        raise ValueError("used")
    coupon = UserCoupon.objects.select_for_update().get(pk=coupon_id, merchant_id=merchant_id)
    if coupon.status != "AVAILABLE" or coupon.user_id != user_id or coupon.valid_until <= NOW:
        raise ValueError("refused")
    coupon.status, coupon.state_version = "LOCKED", coupon.state_version + 1
    coupon.locked_order_no, coupon.lock_id = order_no, uuid7()
    coupon.lock_token_hash = hashlib.sha256(coupon.lock_id.bytes).digest()
    coupon.lease_expires_at = NOW + timedelta(seconds=lease_seconds)
    coupon.updated_at = NOW
    coupon.save(update_fields=CHANGED)
    _evidence(coupon, order_no, "LOCK", "AVAILABLE", key)
    CouponLock.objects.create(
        id=coupon.lock_id,
        merchant_id=merchant_id,
        coupon=coupon,
        order_no=order_no,
        acquired_version=coupon.state_version,
        token_hash=coupon.lock_token_hash,
        key_version=1,
        locked_at=NOW,
        expires_at=coupon.lease_expires_at,
    )
    return coupon


def usual_lock(*, first: int, stride: int) -> Callable[[int, int], Operation]:
    """lock_as_usual in a transaction, on a connection as a new project has it."""

    def prepare(client: int, clients: int) -> Operation:
        as_django_does_by_itself()
        merchant = MERCHANT["id"]

        def operation(index: int) -> None:
            number = number_of(client, index, first=first, stride=stride)
            with transaction.atomic():
                lock_as_usual(
                    merchant_id=merchant,
                    coupon_id=coupon_id(number),
                    user_id=f"u{number}",
                    order_no=f"O{number}",
                    lease_seconds=300,
                    key=f"bench:{number}",
                )

        return operation

    return prepare


CHANGED = [
    "status",
    "state_version",
    "locked_order_no",
    "lock_id",
    "lock_token_hash",
    "lease_expires_at",
    "updated_at",
]


def _evidence(coupon: UserCoupon, order_no: str, command: str, source: str, key: str) -> CouponOperation:
    written = CouponOperation.objects.create(
        merchant_id=coupon.merchant_id,
        coupon=coupon,
        command=command,
        from_version=coupon.state_version - 1,
        from_status=source,
        to_version=coupon.state_version,
        to_status=coupon.status,
        order_no=order_no,
        lock_id=coupon.lock_id,
        lease_expires_at=coupon.lease_expires_at,
        actor="bench",
        business_key=key,
        at=NOW,
    )
    IdempotencyKey.objects.create(
        merchant_id=coupon.merchant_id,
        key=key,
        request_hash=DIGEST,
        result={"coupon_id": str(coupon.pk), "state_version": coupon.state_version, "status": coupon.status},
        created_at=NOW,
    )
    OutboxEvent.objects.create(
        name=f"coupon.{command.lower()}",
        merchant_id=coupon.merchant_id,
        subject=str(coupon.pk),
        payload={"coupon_id": str(coupon.pk), "state_version": coupon.state_version},
        created_at=NOW,
        available_at=NOW,
    )
    return written


def release_batches(*, first: int, stride: int, size: int) -> Callable[[int, int], Operation]:
    """release_leases, `size` leases a statement."""

    def prepare(client: int, clients: int) -> Operation:
        merchant = MERCHANT["id"]

        def operation(index: int) -> None:
            start = first + client * stride + (index + 1) * size
            held = [
                HeldLease(merchant, coupon_id(n), lock_id(n), token_hash(n), f"O{n}", 2)
                for n in range(start, start + size)
            ]
            done = release_leases(leases=held, now=NOW + timedelta(hours=1))
            if len(done.coupon_ids) != size:
                raise RuntimeError(f"{len(done.coupon_ids)} of {size} released")

        return operation

    return prepare


def scan(*, page: int) -> Callable[[int, int], Operation]:
    """The scanner's pages over overdue leases."""

    def prepare(client: int, clients: int) -> Operation:
        cursor: list[Cursor | None] = [None]

        def operation(index: int) -> None:
            done = scan_leases(now=NOW + timedelta(hours=1), after=cursor[0], limit=page)
            if done.released != page:
                raise RuntimeError(f"{done} instead of {page}")
            cursor[0] = done.next

        return operation

    return prepare


def scan_by_rows() -> Callable[[int, int], Operation]:
    """The same as one usually writes it: a loop over the due rows, each read, checked and saved."""

    def prepare(client: int, clients: int) -> Operation:
        as_django_does_by_itself()
        late = NOW + timedelta(hours=1)
        due = CouponLock.objects.filter(ended_by=None, expires_at__lte=late).order_by("expires_at", "id").iterator()

        def operation(index: int) -> None:
            lease = next(due)
            with transaction.atomic():
                coupon = UserCoupon.objects.select_for_update().get(pk=lease.coupon_id)
                if coupon.status != "LOCKED" or coupon.lock_id != lease.pk:
                    raise ValueError("moved on")
                coupon.status, coupon.state_version = "AVAILABLE", coupon.state_version + 1
                coupon.locked_order_no = coupon.lock_id = coupon.lock_token_hash = coupon.lease_expires_at = None
                coupon.updated_at = late
                coupon.save(update_fields=CHANGED)
                lease.ended_by = _evidence(coupon, lease.order_no, "RELEASE", "LOCKED", f"row:{lease.pk}")
                lease.save(update_fields=["ended_by"])

        return operation

    return prepare


def lock_beside_scanner(*, first: int, stride: int, page: int, rate: int) -> Callable[[int, int], Operation]:
    """Locks while a throttled scanner works through overdue leases in a process of its own."""

    def prepare(client: int, clients: int) -> Operation:
        if client == 0:
            scanner = FORK.Process(target=_scan_for_ever, args=(page, rate), daemon=True)
            scanner.start()
        return lock(first=first, stride=stride)(client, clients)

    return prepare


def _scan_for_ever(page: int, rate: int) -> None:
    """Pages at the beat task's rate until the client that started it ends."""
    connections.close_all()
    cursor: Cursor | None = None
    while True:
        started = monotonic()
        done = scan_leases(now=NOW + timedelta(hours=1), after=cursor, limit=page)
        cursor = done.next
        sleep(max(0.0, page / rate - (monotonic() - started)))


def take_from_one_wallet(*, user_id: str, queued: bool) -> Callable[[int, int], Operation]:
    """Checkouts of one user's coupons: look which one is free, take it, give it back; again until it works.

    Every refusal leaves its row, so the collisions can be counted afterwards.
    """

    def prepare(client: int, clients: int) -> Operation:
        merchant = MERCHANT["id"]

        def operation(index: int) -> None:
            order = f"W{client}-{index}"
            for attempt in range(1_000):
                key = BusinessKey(merchant, f"{order}-{attempt}", DIGEST)
                place = queue_wallet(merchant_id=merchant, user_id=user_id, now=NOW) if queued else nullcontext()
                try:
                    with place:
                        free = UserCoupon.objects.filter(merchant_id=merchant, user_id=user_id, status="AVAILABLE")
                        coupon = free.only("state_version").order_by("id")[0]
                        lease = lock_coupon(
                            merchant_id=merchant,
                            coupon_id=coupon.pk,
                            user_id=user_id,
                            order_no=order,
                            lease_seconds=300,
                            expected_version=coupon.state_version,
                            key=key,
                            now=NOW,
                        )
                except CouponRefused:
                    continue
                release_coupon(
                    merchant_id=merchant,
                    coupon_id=lease.coupon_id,
                    order_no=order,
                    lock_token=lease.lock_token,
                    expected_version=lease.state_version,
                    key=BusinessKey(merchant, f"{order}-back", DIGEST),
                    now=NOW,
                )
                return
            raise RuntimeError("no coupon after 1,000 tries")

        return operation

    return prepare
