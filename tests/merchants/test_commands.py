"""Merchants, staff, clients and keys: each command done, and refused without a trace."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import DatabaseError, IntegrityError, connection, transaction

from kernel.errors import InvalidInput, NotFound, VersionConflict
from merchants.commands.change_client import change_client
from merchants.commands.change_settings import change_settings
from merchants.commands.change_staff import LastPlatformAdmin, change_staff, set_password
from merchants.commands.create_client import ClientNameTaken, create_client
from merchants.commands.create_merchant import MerchantCodeTaken, create_merchant
from merchants.commands.create_staff import RoleNeedsMerchant, UsernameTaken, create_staff
from merchants.commands.revoke_key import revoke_key
from merchants.commands.rotate_key import MOST_KEYS, TooManyKeys, rotate_key
from merchants.commands.save_filter import MOST_PER_LIST, TooManyFilters, forget_filter, save_filter
from merchants.commands.switch_merchant import switch_merchant
from merchants.commands.unlock_login import unlock_login
from merchants.models import ApiClient, ApiKey, Merchant, SavedFilter, Staff, StaffAction
from merchants.roles import Role
from tests.merchants.factories import PASSWORD, a_client, a_merchant, a_person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _cheap_hashes(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def merchant(now):
    return a_merchant(now=now)


# Merchants.


def test_a_merchant_begins_with_the_defaults_of_the_design(merchant):
    assert (merchant.lease_seconds, merchant.payment_window_seconds) == (300, 1800)
    assert (merchant.return_window_days, merchant.audit_hours, merchant.freight_policy) == (15, 48, "by_amount")


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": "Tea House"},
        {"code": ""},
        {"name": ""},
        {"timezone": "Mars/Olympus"},
        {"lease_seconds": 29},
        {"audit_hours": 0},
        {"freight_policy": "by_weight"},
    ],
)
def test_a_merchant_out_of_bounds_is_not_made(wrong, now):
    with pytest.raises(InvalidInput):
        create_merchant(**{"code": "tea", "name": "茶", "now": now, **wrong})
    assert not Merchant.objects.exists()


def test_a_code_is_taken_once(merchant, now):
    with pytest.raises(MerchantCodeTaken):
        create_merchant(code=merchant.code, name="另一家", now=now)


def test_settings_change_together_or_not_at_all(merchant, now):
    done = change_settings(
        merchant_id=merchant.pk, changes={"audit_hours": 24, "freight_policy": "equal"}, expected_version=0, now=now
    )
    assert done.version == 1

    for changes, version, refusal in (
        ({"audit_hours": 12}, 0, VersionConflict),
        ({"audit_hours": 12, "lease_seconds": 1}, 1, InvalidInput),
        ({"code": "other"}, 1, InvalidInput),
        ({"is_active": False}, 1, InvalidInput),
    ):
        with pytest.raises(refusal):
            change_settings(merchant_id=merchant.pk, changes=changes, expected_version=version, now=now)
    merchant.refresh_from_db()
    assert (merchant.audit_hours, merchant.freight_policy, merchant.version) == (24, "equal", 1)
    with pytest.raises(NotFound):
        change_settings(merchant_id=uuid4(), changes={"audit_hours": 12}, expected_version=None, now=now)


def test_switching_an_unknown_merchant(now):
    with pytest.raises(NotFound):
        switch_merchant(merchant_id=uuid4(), is_active=False, now=now)


# Staff.


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"password": "short"}, InvalidInput),
        ({"password": "1234567890123"}, InvalidInput),
        ({"password": "password123456"}, InvalidInput),
        ({"username": "merchant-owner", "password": "merchant-owner"}, InvalidInput),
        ({"username": "with space"}, InvalidInput),
        ({"role": "king"}, InvalidInput),
        ({"role": Role.FINANCE}, RoleNeedsMerchant),
        ({"merchant_id": None}, RoleNeedsMerchant),
    ],
)
def test_a_login_that_is_not_made(merchant, now, changes, refusal):
    given = {
        "username": "lin",
        "password": PASSWORD,
        "role": Role.MERCHANT_OWNER,
        "merchant_id": merchant.pk,
        "now": now,
    }
    with pytest.raises(refusal):
        create_staff(**{**given, **changes})
    assert not User.objects.exists() and not Staff.objects.exists()


def test_a_login_is_taken_once(merchant, now):
    a_person(role=Role.AUDITOR, now=now, username="lin")
    with pytest.raises(UsernameTaken):
        a_person(role=Role.AUDITOR, now=now, username="lin")


def test_the_database_too_knows_which_roles_have_a_merchant(merchant, now):
    person = a_person(role=Role.MERCHANT_OWNER, merchant=merchant, now=now)
    for wrong in ({"merchant_id": None}, {"role": "finance"}, {"role": "king"}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Staff.objects.filter(pk=person.pk).update(**wrong)


def test_the_last_administrator_stays(now):
    one = a_person(role=Role.PLATFORM_ADMIN, now=now, username="one")
    for changes in ({"is_active": False}, {"role": Role.AUDITOR}):
        with pytest.raises(LastPlatformAdmin):
            change_staff(staff_id=one.pk, now=now, **changes)
    two = a_person(role=Role.PLATFORM_ADMIN, now=now, username="two")

    assert change_staff(staff_id=one.pk, is_active=False, now=now).is_active is False
    with pytest.raises(LastPlatformAdmin):
        change_staff(staff_id=two.pk, is_active=False, now=now)
    assert change_staff(staff_id=one.pk, is_active=True, now=now).is_active is True


@pytest.mark.django_db(transaction=True)
def test_two_administrators_who_remove_each_other(now):
    people = [a_person(role=Role.PLATFORM_ADMIN, now=now, username=name) for name in ("one", "two")]

    def remove(person):
        try:
            change_staff(staff_id=person.pk, is_active=False, now=now)
            return "done"
        except LastPlatformAdmin:
            return "last"
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        answers = sorted(pool.map(remove, people))

    assert answers == ["done", "last"]
    assert User.objects.filter(is_active=True).count() == 1


def test_staff_changes_that_are_refused(merchant, now):
    person = a_person(role=Role.MERCHANT_STAFF, merchant=merchant, now=now)
    with pytest.raises(NotFound):
        change_staff(staff_id=uuid4(), is_active=False, now=now)
    with pytest.raises(InvalidInput):
        change_staff(staff_id=person.pk, role="king", now=now)
    with pytest.raises(RoleNeedsMerchant):
        change_staff(staff_id=person.pk, role=Role.MERCHANT_OWNER, merchant_id=None, now=now)
    with pytest.raises(InvalidInput):
        set_password(staff_id=person.pk, password="123", must_change=True, now=now)
    with pytest.raises(NotFound):
        unlock_login(staff_id=uuid4(), now=now)
    person.refresh_from_db()
    assert person.role == Role.MERCHANT_STAFF and person.user.check_password(PASSWORD)


# Clients and keys.


@pytest.mark.parametrize(
    "wrong", [{"name": " "}, {"scopes": []}, {"scopes": ["everything"]}, {"requests_per_minute": 0}]
)
def test_a_client_that_is_not_made(merchant, now, wrong):
    with pytest.raises(InvalidInput):
        create_client(**{"merchant_id": merchant.pk, "name": "x", "scopes": ["read"], "now": now, **wrong})
    assert not ApiClient.objects.exists() and not ApiKey.objects.exists()


def test_clients_have_names_of_their_own(merchant, now):
    a_client(merchant=merchant, now=now)
    with pytest.raises(ClientNameTaken):
        a_client(merchant=merchant, now=now)
    a_client(merchant=a_merchant(code="nut-shop", name="坚果铺", now=now), now=now)
    with pytest.raises(NotFound):
        create_client(merchant_id=uuid4(), name="x", scopes=["read"], now=now)


def test_a_rotation_never_lengthens_a_key(merchant, now):
    first = a_client(merchant=merchant, now=now)
    rotate_key(client_id=first.client_id, overlap_seconds=60, now=now)
    rotate_key(client_id=first.client_id, overlap_seconds=3600, now=now)

    ends = dict(ApiKey.objects.values_list("key_id", "expires_at"))
    assert ends[first.key_id] == now + timedelta(seconds=60)
    assert sorted(end is None for end in ends.values()) == [False, False, True]


def test_keys_are_limited_and_known(merchant, now):
    client = a_client(merchant=merchant, now=now)
    for _ in range(MOST_KEYS - 1):
        rotate_key(client_id=client.client_id, overlap_seconds=3600, now=now)
    with pytest.raises(TooManyKeys):
        rotate_key(client_id=client.client_id, overlap_seconds=3600, now=now)
    with pytest.raises(InvalidInput):
        rotate_key(client_id=client.client_id, overlap_seconds=-1, now=now)
    with pytest.raises(NotFound):
        rotate_key(client_id=uuid4(), overlap_seconds=0, now=now)
    assert ApiKey.objects.count() == MOST_KEYS


def test_revoking_twice_says_the_same(merchant, now):
    key = a_client(merchant=merchant, now=now).key_id

    first = revoke_key(key_id=key, now=now)
    again = revoke_key(key_id=key, now=now + timedelta(hours=1))

    assert (again.revoked_at, first.replayed, again.replayed) == (first.revoked_at, False, True)
    with pytest.raises(NotFound):
        revoke_key(key_id="qk_unknown", now=now)


def test_client_changes_that_are_refused(merchant, now):
    client = a_client(merchant=merchant, now=now)
    for wrong in ({}, {"scopes": ["x"]}, {"requests_per_minute": 0}):
        with pytest.raises(InvalidInput):
            change_client(client_id=client.client_id, now=now, **wrong)
    with pytest.raises(NotFound):
        change_client(client_id=uuid4(), is_active=False, now=now)


# Saved filters and the trail.


def test_a_list_holds_a_dozen_filters(merchant, now):
    person = a_person(role=Role.MERCHANT_OWNER, merchant=merchant, now=now)
    kept = [
        save_filter(staff_id=person.pk, page="a.b", label=f"f{number}", query="x=1", now=now)
        for number in range(MOST_PER_LIST)
    ]
    with pytest.raises(TooManyFilters):
        save_filter(staff_id=person.pk, page="a.b", label="one more", query="x=1", now=now)
    save_filter(staff_id=person.pk, page="a.b", label="f0", query="x=2", now=now)
    save_filter(staff_id=person.pk, page="a.c", label="one more", query="x=1", now=now)

    assert SavedFilter.objects.get(page="a.b", label="f0").query == "x=2"
    assert forget_filter(staff_id=person.pk, filter_id=kept[0].filter_id, now=now) is True
    assert forget_filter(staff_id=person.pk, filter_id=kept[0].filter_id, now=now) is False


def test_the_trail_only_grows(merchant, now):
    StaffAction.objects.create(at=now, username="lin", role="auditor", action="x", merchant=merchant)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for sql in ("UPDATE staff_action SET action = 'y'", "DELETE FROM staff_action", "TRUNCATE staff_action"):
        with pytest.raises(DatabaseError, match="pgtrigger"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)


# From the command line.


def test_a_shop_is_set_up_from_the_command_line(capsys):
    out = StringIO()
    call_command("create_merchant", "tea-house", "清和茶铺", stdout=out)
    call_command("create_staff", "lin", "merchant_owner", "--merchant", "tea-house", "--generate", stdout=out)
    made = StringIO()
    call_command("create_client", "tea-house", "mini-program", "--scopes", "orders,read", stdout=made)
    first = json.loads(made.getvalue())
    rotated = StringIO()
    call_command("rotate_key", first["client_id"], "--overlap-seconds", "0", stdout=rotated)
    call_command("revoke_key", json.loads(rotated.getvalue())["key_id"], stdout=out)

    assert ApiClient.objects.get().scopes == ["orders", "read"]
    assert Staff.objects.get().must_change_password
    assert "first password" in out.getvalue()


@pytest.mark.parametrize(
    "arguments",
    [
        ["create_merchant", "Tea House", "x"],
        ["create_client", "nowhere", "x"],
        ["create_staff", "lin", "auditor", "--merchant", "nowhere", "--generate"],
        ["create_staff", "lin", "merchant_owner", "--generate"],
        ["rotate_key", str(uuid4())],
        ["revoke_key", "qk_unknown"],
    ],
)
def test_mistakes_on_the_command_line_are_said(arguments):
    with pytest.raises(CommandError):
        call_command(*arguments, stdout=StringIO())
