"""Merchants, staff and clients made by the real commands."""

from datetime import datetime
from uuid import UUID

from merchants.commands.create_client import KeyIssued, create_client
from merchants.commands.create_merchant import create_merchant
from merchants.commands.create_staff import create_staff
from merchants.models import Merchant, Scope, Staff
from merchants.roles import MERCHANT, Role

PASSWORD = "correct horse 7 battery"


def a_merchant(*, now: datetime, code: str = "tea-house", name: str = "清和茶铺", **settings) -> Merchant:
    return Merchant.objects.get(pk=create_merchant(code=code, name=name, now=now, **settings).merchant_id)


def a_client(
    *,
    merchant: Merchant,
    now: datetime,
    name: str = "mini-program",
    scopes: list[str] | None = None,
    requests_per_minute: int = 30_000,
) -> KeyIssued:
    return create_client(
        merchant_id=merchant.pk,
        name=name,
        scopes=list(Scope.values) if scopes is None else scopes,
        requests_per_minute=requests_per_minute,
        now=now,
    )


def a_person(
    *,
    role: Role | str,
    now: datetime,
    merchant: Merchant | None = None,
    username: str = "",
    must_change_password: bool = False,
) -> Staff:
    merchant_id: UUID | None = merchant.pk if merchant and role in MERCHANT else None
    made = create_staff(
        username=username or f"{role}-{merchant.code if merchant_id and merchant else 'house'}",
        password=PASSWORD,
        role=role,
        merchant_id=merchant_id,
        must_change_password=must_change_password,
        now=now,
    )
    return Staff.objects.select_related("user", "merchant").get(pk=made.staff_id)
