"""A person's role, their access, and their password."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.utils.translation import gettext_lazy as _

from kernel.errors import InvalidInput, NotFound, Refusal
from kernel.transactions import unit_of_work
from merchants.commands.create_staff import RoleNeedsMerchant, check_password
from merchants.commands.enter_desk import end_all_sessions
from merchants.models import Staff
from merchants.roles import MERCHANT, Role


class LastPlatformAdmin(Refusal):
    code = "LAST_PLATFORM_ADMIN"
    message = _("This is the last platform administrator; make another one first.")


@dataclass(frozen=True)
class StaffChanged:
    staff_id: UUID
    role: str
    is_active: bool


def change_staff(
    *,
    staff_id: UUID,
    now: datetime,
    role: str | None = None,
    merchant_id: UUID | None = None,
    is_active: bool | None = None,
) -> StaffChanged:
    """Change a role (with its merchant) or switch a login off and on; every open session of the person ends.

    Raises NotFound, InvalidInput, RoleNeedsMerchant, LastPlatformAdmin.
    """
    if role is not None and role not in Role.values:
        raise InvalidInput(fields={"role": ["unknown role"]})
    leaves = (role is not None and role != Role.PLATFORM_ADMIN) or is_active is False
    with unit_of_work(now=now):
        others = _other_administrators(staff_id) if leaves else []
        staff = _locked(staff_id)
        if leaves and staff.role == Role.PLATFORM_ADMIN and not others:
            raise LastPlatformAdmin()
        if role is not None:
            if (role in MERCHANT) != (merchant_id is not None):
                raise RoleNeedsMerchant(role=role)
            Staff.objects.filter(pk=staff_id).update(role=role, merchant_id=merchant_id)
        if is_active is not None:
            User.objects.filter(pk=staff.user_id).update(is_active=is_active)
        end_all_sessions(staff_id=staff_id, now=now)
    changed = Staff.objects.select_related("user").get(pk=staff_id)
    return StaffChanged(staff_id, changed.role, changed.user.is_active)


def set_password(*, staff_id: UUID, password: str, must_change: bool, now: datetime) -> StaffChanged:
    """Give a login a new password; every session of the person ends. Raises NotFound, InvalidInput."""
    with unit_of_work(now=now):
        staff = _locked(staff_id)
        check_password(staff.user, password)
        staff.user.set_password(password)
        staff.user.save(update_fields=["password"])
        Staff.objects.filter(pk=staff_id).update(must_change_password=must_change)
        end_all_sessions(staff_id=staff_id, now=now)
    return StaffChanged(staff_id, staff.role, staff.user.is_active)


def confirm_own_password(*, staff_id: UUID, now: datetime) -> None:
    """The person has chosen a password of their own."""
    with unit_of_work(now=now):
        Staff.objects.filter(pk=staff_id).update(must_change_password=False)


def _locked(staff_id: UUID) -> Staff:
    staff = (
        Staff.objects.select_for_update(no_key=True, of=("self",)).select_related("user").filter(pk=staff_id).first()
    )
    if staff is None:
        raise NotFound()
    return staff


def _other_administrators(staff_id: UUID) -> list[Staff]:
    """All active platform administrators but one, locked in the order of their ids, and before anybody else: two
    of them who remove each other at the same time wait for each other in one direction only. The logins are locked
    too: only a locked row is looked at again after the wait, and it is the login that says who is active."""
    administrators = (
        Staff.objects.select_related("user")
        .select_for_update(no_key=True, of=("self", "user"))
        .filter(role=Role.PLATFORM_ADMIN, user__is_active=True)
    )
    return [row for row in administrators.order_by("pk") if row.pk != staff_id]
