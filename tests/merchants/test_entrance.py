"""Sessions that end, and the second factor before everything else."""

from datetime import timedelta

import pytest
import time_machine
from django.test import Client

from kernel import secrets
from merchants import one_time_codes
from merchants.commands.begin_second_factor import begin_second_factor
from merchants.commands.change_staff import change_staff, set_password
from merchants.commands.check_code import CodeRefused, CodesLocked, check_code
from merchants.commands.confirm_second_factor import confirm_second_factor
from merchants.commands.remove_second_factor import remove_second_factor
from merchants.models import RecoveryCode, SecondFactor, StaffAction, StaffSession
from merchants.roles import Role
from tests.merchants.factories import PASSWORD, a_merchant, a_person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _cheap_hashes(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def clock(now):
    with time_machine.travel(now, tick=False) as traveller:
        yield traveller


@pytest.fixture
def owner(now):
    return a_person(role=Role.MERCHANT_OWNER, merchant=a_merchant(now=now), now=now, username="owner")


@pytest.fixture
def finance(now):
    return a_person(role=Role.FINANCE, now=now, username="finance")


def entered(staff, password=PASSWORD) -> Client:
    client = Client()
    answer = client.post("/admin/login/", {"username": staff.user.username, "password": password, "next": "/admin/"})
    assert answer.status_code == 302, answer.content
    client.get("/admin/")
    return client


def code_of(staff, now) -> str:
    factor = SecondFactor.objects.get(staff=staff)
    return one_time_codes.code_at(secrets.decrypt(factor.secret_encrypted), one_time_codes.step_of(now))


def equipped(staff, now) -> list[str]:
    begun = begin_second_factor(staff_id=staff.pk, now=now - timedelta(minutes=5))
    earlier = now - timedelta(minutes=5)
    code = one_time_codes.code_at(begun.secret, one_time_codes.step_of(earlier))
    return confirm_second_factor(staff_id=staff.pk, code=code, now=earlier).recovery_codes


def test_a_login_is_written_down(owner):
    entered(owner)

    row = StaffSession.objects.get()
    assert (row.staff, row.address, row.ended_at) == (owner, "127.0.0.1", None)


def test_an_idle_session_ends(owner, clock, now, settings):
    client = entered(owner)
    clock.move_to(now + timedelta(seconds=settings.QUITS_SESSION_IDLE_SECONDS))
    assert client.get("/admin/").status_code == 200, "just in time, and seen again"

    clock.move_to(now + timedelta(seconds=2 * settings.QUITS_SESSION_IDLE_SECONDS + 1))
    answer = client.get("/admin/")

    assert answer.status_code == 302 and "/admin/login/" in answer["Location"]
    assert StaffSession.objects.get().ended_at is not None


def test_a_session_in_use_ends_after_eight_hours(owner, clock, now, settings):
    client = entered(owner)
    for minutes in range(30, 8 * 60 + 1, 30):
        clock.move_to(now + timedelta(minutes=minutes))
        assert client.get("/admin/").status_code == 200
    clock.move_to(now + timedelta(hours=8, seconds=1))

    assert client.get("/admin/").status_code == 302


def test_the_oldest_session_beyond_the_limit_ends(owner, settings, clock, now):
    settings.QUITS_SESSIONS_PER_PERSON = 2
    first = entered(owner)
    clock.move_to(now + timedelta(seconds=1))
    second = entered(owner)
    clock.move_to(now + timedelta(seconds=2))
    third = entered(owner)

    assert first.get("/admin/").status_code == 302
    assert second.get("/admin/").status_code == third.get("/admin/").status_code == 200
    assert StaffSession.objects.filter(ended_at__isnull=True).count() == 2


def test_logging_out_ends_the_session(owner):
    client = entered(owner)

    client.post("/admin/logout/")

    assert StaffSession.objects.get().ended_at is not None


def test_a_changed_role_ends_open_sessions(owner, now):
    client = entered(owner)

    change_staff(staff_id=owner.pk, role=Role.AUDITOR, merchant_id=None, now=now)

    assert client.get("/admin/").status_code == 302


def test_with_a_factor_the_password_alone_opens_nothing(owner, now):
    equipped(owner, now)
    client = entered(owner)

    for path in ("/admin/", "/admin/merchants/merchant/", "/admin/password_change/", "/admin/second-factor/set-up/"):
        answer = client.get(path)
        assert (answer.status_code, answer["Location"]) == (302, "/admin/second-factor/"), path

    assert client.post("/admin/second-factor/", {"code": "000000"}).status_code == 200
    assert client.get("/admin/").status_code == 302
    assert client.post("/admin/second-factor/", {"code": code_of(owner, now)}).status_code == 302
    assert client.get("/admin/").status_code == 200


def test_a_role_that_needs_a_factor_sets_it_up_first(finance, now, settings):
    settings.QUITS_SECOND_FACTOR_ROLES = frozenset({"finance", "operations"})
    client = entered(finance)
    assert client.get("/admin/")["Location"] == "/admin/second-factor/set-up/"

    client.post("/admin/second-factor/set-up/")
    shown = client.get("/admin/second-factor/set-up/").content.decode()
    assert "otpauth://totp/Quits%3Afinance" in shown
    answer = client.post("/admin/second-factor/set-up/", {"code": code_of(finance, now)})

    assert answer.content.decode().count("<code>") == 8
    assert client.get("/admin/").status_code == 200
    assert StaffAction.objects.get().action == "second_factor_set_up"
    secret = secrets.decrypt(SecondFactor.objects.get().secret_encrypted)
    assert secret not in SecondFactor.objects.get().secret_encrypted


def test_other_roles_may_go_without(owner, settings):
    settings.QUITS_SECOND_FACTOR_ROLES = frozenset({"finance"})

    assert entered(owner).get("/admin/").status_code == 200


def test_a_code_counts_once(owner, now):
    equipped(owner, now)
    code = code_of(owner, now)

    assert check_code(staff_id=owner.pk, code=code, now=now) is False
    with pytest.raises(CodeRefused):
        check_code(staff_id=owner.pk, code=code, now=now)


def test_a_recovery_code_counts_once(owner, now):
    codes = equipped(owner, now)

    assert check_code(staff_id=owner.pk, code=codes[0], now=now) is True
    with pytest.raises(CodeRefused):
        check_code(staff_id=owner.pk, code=codes[0], now=now)
    assert RecoveryCode.objects.filter(used_at__isnull=True).count() == 7


def test_five_wrong_codes_lock_for_a_quarter_of_an_hour(owner, now):
    equipped(owner, now)
    for _ in range(4):
        with pytest.raises(CodeRefused):
            check_code(staff_id=owner.pk, code="abcdef", now=now)
    with pytest.raises(CodesLocked):
        check_code(staff_id=owner.pk, code="abcdef", now=now)

    with pytest.raises(CodesLocked):
        check_code(staff_id=owner.pk, code=code_of(owner, now), now=now)
    later = now + timedelta(minutes=15)
    assert check_code(staff_id=owner.pk, code=code_of(owner, later), now=later) is False


def test_the_administrator_removes_a_lost_factor(owner, now):
    equipped(owner, now)
    client = entered(owner)
    admin = a_person(role=Role.PLATFORM_ADMIN, now=now, username="root")
    desk = entered(admin)

    assert desk.post(f"/admin/merchants/staff/{owner.pk}/do/remove_factor/", {"once": "c" * 32}).status_code == 302

    assert not SecondFactor.objects.exists() and not RecoveryCode.objects.exists()
    assert client.get("/admin/")["Location"].startswith("/admin/login/")
    assert entered(owner).get("/admin/").status_code == 200


def test_removing_what_is_not_there(owner, now):
    assert remove_second_factor(staff_id=owner.pk, now=now) is False


@pytest.mark.parametrize("code", ["é" * 6, "١٢٣٤٥٦", "一二三四五六", "\x00" * 6])
def test_a_code_of_odd_signs_is_a_wrong_code(owner, now, code):
    client = entered(owner)
    client.post("/admin/second-factor/set-up/")
    assert client.post("/admin/second-factor/set-up/", {"code": code}).context["form"].errors["code"]
    SecondFactor.objects.all().delete()

    equipped(owner, now)
    assert entered(owner).post("/admin/second-factor/", {"code": code}).context["form"].errors["code"]


def test_full_width_digits_and_a_recovery_code_in_capitals_let_in(owner, now):
    codes = equipped(owner, now)
    wide = "".join(chr(ord(digit) + 0xFEE0) for digit in code_of(owner, now))

    for typed in (wide, codes[0].upper().replace("-", " ")):
        assert entered(owner).post("/admin/second-factor/", {"code": typed}).status_code == 302


@pytest.mark.parametrize(
    ("name", "password"), [("n" * 256, "x"), ("名" * 4000, "x"), ("ﷺ" * 150, "x"), ("owner", "x" * 100_000)]
)
def test_a_login_of_any_length_is_a_wrong_login(owner, name, password):
    wrong = Client().post("/admin/login/", {"username": "nobody", "password": "x"})

    answer = Client().post("/admin/login/", {"username": name, "password": password})

    assert answer.status_code == 200
    assert answer.context["form"].errors == wrong.context["form"].errors


def test_nul_opens_no_login(owner):
    for name, password in (("ow\x00ner", PASSWORD), ("owner", "x\x00")):
        answer = Client().post("/admin/login/", {"username": name, "password": password})
        assert answer.status_code == 200 and answer.context["form"].errors


def test_a_login_leads_to_the_dashboard_wherever_it_was_meant_to_lead(owner):
    login = {"username": "owner", "password": PASSWORD, "next": "https://elsewhere.example/"}

    assert Client().post("/admin/login/", login)["Location"] == "/admin/"


def test_a_password_of_ones_own_is_another_one(owner, now):
    set_password(staff_id=owner.pk, password=PASSWORD, must_change=True, now=now)
    client = entered(owner)

    def change(fresh):
        sent = {"old_password": PASSWORD, "new_password1": fresh, "new_password2": fresh}
        return client.post("/admin/password_change/", sent, headers={"Accept-Language": "en"})

    refused = change(PASSWORD)
    owner.refresh_from_db()
    assert "new_password1" in refused.context["form"].errors and owner.must_change_password
    assert change("quite-another-1").status_code == 302
    owner.refresh_from_db()
    assert not owner.must_change_password
