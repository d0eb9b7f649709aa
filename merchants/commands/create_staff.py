"""A person who may enter the back office."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from kernel.errors import InvalidInput, Refusal, refuse_on_constraint
from kernel.transactions import unit_of_work
from merchants.models import Staff
from merchants.roles import MERCHANT, Role

LOGIN_LENGTH = 64
"""Histories keep this much of a login. Longer ones would be cut, and two people could look like one to four-eyes."""


class UsernameTaken(Refusal):
    code = "USERNAME_TAKEN"
    message = _("Another person has this login.")


class RoleNeedsMerchant(Refusal):
    code = "ROLE_NEEDS_MERCHANT"
    status = 422
    message = _("Merchant roles belong to one merchant; the other roles to none.")


refuse_on_constraint("auth_user_username_key", UsernameTaken)
refuse_on_constraint("staff_has_merchant_exactly_in_merchant_roles", RoleNeedsMerchant)


@dataclass(frozen=True)
class StaffCreated:
    staff_id: UUID
    username: str


def create_staff(
    *,
    username: str,
    password: str,
    role: str,
    merchant_id: UUID | None,
    now: datetime,
    must_change_password: bool = True,
) -> StaffCreated:
    """Create a login with its role. Raises InvalidInput (login, role, a weak password), UsernameTaken,
    RoleNeedsMerchant."""
    if role not in Role.values:
        raise InvalidInput(fields={"role": ["unknown role"]})
    if (role in MERCHANT) != (merchant_id is not None):
        raise RoleNeedsMerchant(role=role)
    if len(username.strip()) > LOGIN_LENGTH:
        raise InvalidInput(fields={"username": [_("At most 64 characters.")]})
    user = User(username=username.strip(), is_staff=True, is_active=True, date_joined=now)
    check_password(user, password)
    user.set_password(password)
    try:
        user.clean_fields(exclude=["password"])
    except ValidationError as error:
        raise InvalidInput(fields=error.message_dict) from error
    with unit_of_work(now=now):
        user.save(force_insert=True)
        staff = Staff.objects.create(
            user=user,
            role=role,
            merchant_id=merchant_id,
            must_change_password=must_change_password,
            created_at=now,
        )
    return StaffCreated(staff.pk, user.username)


def check_password(user: User, password: str) -> None:
    """The password policy of the settings, or InvalidInput with its words."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise InvalidInput(fields={"password": list(error.messages)}) from error
