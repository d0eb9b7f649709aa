"""Why a coupon command says no: typed, with the possible next step, and evidence that outlives the rollback."""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.db import IntegrityError
from django.utils.translation import gettext_lazy as _

from coupons.commands.record_refusal import record_refusal
from coupons.models import CouponCommand, CouponLock, CouponRedemption, CouponStatus, UserCoupon
from kernel.errors import Refusal
from kernel.idempotency import BusinessKey
from kernel.transactions import constraint_of


@dataclass(frozen=True)
class Attempt:
    """What a command asked for, as its evidence will tell it. Holds no token."""

    command: CouponCommand
    key: BusinessKey
    coupon_id: UUID | None
    actor: str
    order_no: str = ""
    expected_version: int | None = None


class CouponRefused(Refusal):
    """A coupon command was refused and changed nothing."""

    next_actions: ClassVar[tuple[str, ...]] = ("read_coupon",)

    def __init__(
        self, attempt: Attempt, coupon: UserCoupon | None = None, *, token_matched: bool | None = None, **data: Any
    ) -> None:
        self.attempt = attempt
        self.coupon = coupon
        self.token_matched = token_matched
        facts: dict[str, Any] = {"command": attempt.command.value.lower(), "next_actions": self.what_next()}
        if attempt.coupon_id is not None:
            facts["coupon_id"] = str(attempt.coupon_id)
        if coupon is not None:
            facts |= {"status": coupon.status, "state_version": coupon.state_version}
        if attempt.expected_version is not None:
            facts["expected_version"] = attempt.expected_version
        super().__init__(**facts, **data)

    def what_next(self) -> list[str]:
        """What the caller may do now, as words of the API; the most sensible first."""
        if self.coupon is None:
            return list(self.next_actions)
        return [*self.next_actions, *_possible(self.coupon, self.attempt.order_no)]

    def leave_evidence(self, *, now: datetime) -> None:
        attempt = self.attempt
        record_refusal(
            merchant_id=attempt.key.merchant_id,
            coupon_id=attempt.coupon_id,
            command=attempt.command,
            code=self.code,
            business_key=attempt.key.key,
            request_hash=attempt.key.request_hash,
            order_no=attempt.order_no,
            expected_version=attempt.expected_version,
            coupon=self.coupon,
            token_matched=self.token_matched,
            actor=attempt.actor,
            now=now,
        )


def _possible(coupon: UserCoupon, order_no: str) -> Iterable[str]:
    if coupon.status == CouponStatus.AVAILABLE:
        return ("lock",)
    if coupon.status == CouponStatus.LOCKED and coupon.locked_order_no == order_no:
        return ("renew", "redeem", "release")
    return ("choose_another_coupon",)


class CouponNotFound(CouponRefused):
    code = "NOT_FOUND"
    status = 404
    message = _("There is no such coupon.")
    next_actions = ("list_coupons",)


class TokenMismatch(CouponRefused):
    code = "TOKEN_MISMATCH"
    message = _("The lease token is not the one that holds this coupon now.")
    next_actions = ("read_coupon", "coordinate_order")


class VersionConflict(CouponRefused):
    code = "VERSION_CONFLICT"
    message = _("The coupon has moved on since the version you expected.")
    next_actions = ("read_coupon", "coordinate_order")


class NotOwner(CouponRefused):
    code = "NOT_OWNER"
    message = _("The coupon belongs to another user or is held by another order.")
    next_actions = ("choose_another_coupon",)

    def what_next(self) -> list[str]:
        return list(self.next_actions)


class IllegalTransition(CouponRefused):
    code = "ILLEGAL_TRANSITION"
    message = _("The coupon's present state does not allow this.")


class CouponExpired(CouponRefused):
    code = "COUPON_EXPIRED"
    message = _("The coupon's validity is over.")
    next_actions = ("choose_another_coupon",)

    def what_next(self) -> list[str]:
        return list(self.next_actions)


class NotYetValid(CouponRefused):
    code = "NOT_YET_VALID"
    message = _("The coupon is not valid yet.")
    next_actions = ("wait", "choose_another_coupon")

    def what_next(self) -> list[str]:
        return list(self.next_actions)


class AlreadyRedeemed(CouponRefused):
    code = "ALREADY_REDEEMED"
    message = _("The coupon has been used.")


class LimitReached(CouponRefused):
    code = "LIMIT_REACHED"
    status = 422
    message = _("No more of these coupons can be issued.")
    next_actions = ("choose_another_template",)


class NotIssuable(CouponRefused):
    code = "NOT_ISSUABLE"
    status = 422
    message = _("Coupons of this kind are not issued now.")
    next_actions = ("choose_another_template",)


class KeyReused(CouponRefused):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    message = _("This idempotency key was used for another request.")
    next_actions = ("use_new_key",)

    def what_next(self) -> list[str]:
        return list(self.next_actions)


def key_reused(error: IntegrityError) -> bool:
    """Whether a statement failed because its business key already belongs to another request."""
    return constraint_of(error) == "idempotency_key_is_used_once"


def read_coupon(attempt: Attempt) -> UserCoupon:
    """The coupon of an attempt, inside its merchant. Raises CouponNotFound."""
    coupon = None
    if attempt.coupon_id is not None:
        coupon = UserCoupon.objects.filter(pk=attempt.coupon_id, merchant_id=attempt.key.merchant_id).first()
    if coupon is None:
        raise CouponNotFound(attempt)
    return coupon


def refusal_of_lease(attempt: Attempt, coupon: UserCoupon, *, token_hash: bytes) -> CouponRefused | None:
    """Why a command that acts under a lease (renew, redeem, release) did not move this coupon.

    Ownership is told before version, version before state, so that an old token is always TOKEN_MISMATCH or
    VERSION_CONFLICT. None: nothing stands against it (someone else moved in between), so try again.
    """
    matched = token_matches(coupon, token_hash)
    stale = attempt.expected_version != coupon.state_version
    if matched is False:
        return TokenMismatch(attempt, coupon, token_matched=False)
    if coupon.status == CouponStatus.LOCKED and coupon.locked_order_no != attempt.order_no:
        return NotOwner(attempt, coupon, token_matched=matched)
    if stale:
        return VersionConflict(attempt, coupon, token_matched=matched)
    if coupon.status == CouponStatus.USED:
        return AlreadyRedeemed(attempt, coupon, token_matched=matched)
    if coupon.status != CouponStatus.LOCKED:
        return IllegalTransition(attempt, coupon, token_matched=matched)
    return None


def token_matches(coupon: UserCoupon, token_hash: bytes) -> bool | None:
    """Whether a token is the one of the lease in force, or of the lease that the coupon was used under.

    None: the coupon is under no lease, so there is nothing a token could match.
    """
    if coupon.status == CouponStatus.LOCKED:
        known = coupon.lock_token_hash
    elif coupon.status == CouponStatus.USED:
        known = (
            CouponLock.objects.filter(
                pk__in=CouponRedemption.objects.filter(coupon=coupon, ended_by=None).values("lock_id")
            )
            .values_list("token_hash", flat=True)
            .first()
        )
    else:
        known = None
    return None if known is None else hmac.compare_digest(bytes(known), token_hash)


def refusal_of_version(attempt: Attempt, coupon: UserCoupon, *, sources: Iterable[str]) -> CouponRefused | None:
    """Why a command that acts without a lease did not move this coupon; None: try again."""
    if attempt.expected_version != coupon.state_version:
        return VersionConflict(attempt, coupon)
    if coupon.status not in sources:
        return IllegalTransition(attempt, coupon)
    return None


def message_of(code: str) -> str:
    """What a refusal says to people, by its code."""
    return next((str(kind.message) for kind in CouponRefused.__subclasses__() if kind.code == code), code)
