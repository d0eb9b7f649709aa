"""The cells of our own code, and of the same command as it is usually written in the ORM."""

from collections.abc import Callable
from datetime import timedelta

from django.db import connections, transaction

from benchmarks.coupon_cells.rows import MERCHANT, NOW, coupon_id, lock_id, token, token_hash
from coupons.commands.lock_coupon import lock_coupon
from coupons.commands.redeem_coupon import redeem_coupon
from coupons.commands.release_leases import HeldLease, release_leases
from coupons.commands.scan_leases import Cursor, scan_leases
from coupons.models import CouponLock, CouponOperation, UserCoupon
from kernel.idempotency import BusinessKey
from kernel.models import IdempotencyKey, OutboxEvent

Operation = Callable[[int], object]
WARM = 20
"""Operations −1 … −20 warm a client up; they use the first coupons of its stretch."""
DIGEST = "a" * 64


def number_of(client: int, index: int, *, first: int, stride: int) -> int:
    """The coupon of a client's operation."""
    return first + client * stride + WARM + index


def lock(*, first: int, stride: int) -> Callable[[int, int], Operation]:
    """lock_coupon, as the API and the quotes call it."""

    def prepare(client: int, clients: int) -> Operation:
        merchant = MERCHANT["id"]

        def operation(index: int) -> object:
            number = number_of(client, index, first=first, stride=stride)
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


def redeem(*, first: int, stride: int) -> Callable[[int, int], Operation]:
    """redeem_coupon, as the order coordinator calls it."""

    def prepare(client: int, clients: int) -> Operation:
        merchant = MERCHANT["id"]

        def operation(index: int) -> object:
            number = number_of(client, index, first=first, stride=stride)
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


def as_django_does_by_itself() -> None:
    """The connection as a new project has it: bound in the client, nothing prepared."""
    options = connections["default"].settings_dict["OPTIONS"]
    options.pop("server_side_binding", None)
    options.pop("prepare_threshold", None)


def usual_lock(*, first: int, stride: int) -> Callable[[int, int], Operation]:
    """The same rows written as one usually does: read for update, check, save, create, create, create."""

    def prepare(client: int, clients: int) -> Operation:
        as_django_does_by_itself()
        merchant = MERCHANT["id"]

        def operation(index: int) -> None:
            number = number_of(client, index, first=first, stride=stride)
            lease = lock_id(number)
            with transaction.atomic():
                if IdempotencyKey.objects.filter(merchant_id=merchant, key=f"bench:{number}").exists():
                    raise ValueError("used")
                coupon = UserCoupon.objects.select_for_update().get(pk=coupon_id(number), merchant_id=merchant)
                if coupon.status != "AVAILABLE" or coupon.user_id != f"u{number}" or coupon.valid_until <= NOW:
                    raise ValueError("refused")
                coupon.status, coupon.state_version = "LOCKED", coupon.state_version + 1
                coupon.locked_order_no, coupon.lock_id = f"O{number}", lease
                coupon.lock_token_hash = token_hash(number)
                coupon.lease_expires_at = NOW + timedelta(seconds=300)
                coupon.updated_at = NOW
                coupon.save(update_fields=CHANGED)
                _evidence(coupon, number, "LOCK", "AVAILABLE")
                CouponLock.objects.create(
                    id=lease,
                    merchant_id=merchant,
                    coupon=coupon,
                    order_no=f"O{number}",
                    acquired_version=2,
                    token_hash=coupon.lock_token_hash,
                    key_version=1,
                    locked_at=NOW,
                    expires_at=coupon.lease_expires_at,
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


def _evidence(coupon: UserCoupon, number: int, command: str, source: str) -> CouponOperation:
    written = CouponOperation.objects.create(
        merchant_id=coupon.merchant_id,
        coupon=coupon,
        command=command,
        from_version=coupon.state_version - 1,
        from_status=source,
        to_version=coupon.state_version,
        to_status=coupon.status,
        order_no=f"O{number}",
        lock_id=lock_id(number),
        lease_expires_at=coupon.lease_expires_at,
        actor="bench",
        business_key=f"bench:{number}",
        at=NOW,
    )
    IdempotencyKey.objects.create(
        merchant_id=coupon.merchant_id,
        key=f"bench:{number}",
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
            number = int(lease.order_no[1:])
            with transaction.atomic():
                coupon = UserCoupon.objects.select_for_update().get(pk=lease.coupon_id)
                if coupon.status != "LOCKED" or coupon.lock_id != lease.pk:
                    raise ValueError("moved on")
                coupon.status, coupon.state_version = "AVAILABLE", coupon.state_version + 1
                coupon.locked_order_no = coupon.lock_id = coupon.lock_token_hash = coupon.lease_expires_at = None
                coupon.updated_at = late
                coupon.save(update_fields=CHANGED)
                lease.ended_by = _evidence(coupon, number, "RELEASE", "LOCKED")
                lease.save(update_fields=["ended_by"])

        return operation

    return prepare
