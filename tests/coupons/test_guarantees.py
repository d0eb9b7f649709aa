"""What the database itself keeps, attacked by hand-written SQL: as the application's role and as the tables' owner."""

import os
from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from coupons.models import (
    EDGES,
    CouponCommand,
    CouponLock,
    CouponOperation,
    CouponRedemption,
    CouponRefusal,
    UserCoupon,
)
from kernel.numbers import uuid7
from kernel.statemachine import edges_of
from tests.coupons.factories import Shop, decide, give_back, newest

REFUSED = (psycopg.errors.RaiseException, psycopg.errors.IntegrityError, psycopg.errors.InsufficientPrivilege)


@pytest.fixture(params=["app", "owner"])
def attacker(request, shop) -> Iterator[psycopg.Connection]:
    """A session of the application's role, as the product logs in, and one of the owner's, as migrations do."""
    there = connection.settings_dict
    login = {"user": there["USER"], "password": there["PASSWORD"]}
    if request.param == "app":
        address = urlsplit(os.environ["DATABASE_URL"])
        login = {"user": address.username, "password": address.password}
        assert login["user"] != there["USER"], "the application's role is not the owner"
    session = psycopg.connect(host=there["HOST"], port=there["PORT"] or 5432, dbname=there["NAME"], **login)
    yield session
    session.close()


@pytest.fixture
def free(shop: Shop) -> UUID:
    return shop.issue().coupon_id


@pytest.fixture
def held(shop: Shop) -> UUID:
    return shop.lock(shop.issue().coupon_id, "A").coupon_id


@pytest.fixture
def used(shop: Shop) -> UUID:
    return shop.redeem(shop.lock(shop.issue().coupon_id, "A")).coupon_id


def attack(session: psycopg.Connection, *statements: str, **values: object) -> None:
    """Run the statements as one transaction; they must be refused, at the latest at COMMIT."""
    with pytest.raises(REFUSED):
        for statement in statements:
            session.execute(statement, values)
        session.commit()
    session.rollback()


def snapshot(coupon_id: UUID) -> tuple:
    models = (CouponLock, CouponRedemption, CouponOperation)
    return (
        UserCoupon.objects.filter(pk=coupon_id).values().get(),
        *[list(model.objects.filter(coupon_id=coupon_id).order_by("id").values()) for model in models],
    )


OPERATION = """
INSERT INTO coupon_operation (id, merchant_id, coupon_id, command, from_version, from_status, to_version, to_status,
                              order_no, actor, reason, business_key, at)
SELECT gen_random_uuid(), merchant_id, id, '{command}', {from_version}, {from_status}, {to_version}, '{to_status}',
       '', 'attacker', '', 'k', now() FROM user_coupon WHERE id = %(id)s
"""


def operation(command: str, from_version: object, from_status: str, to_version: int, to_status: str) -> str:
    status = "NULL" if from_status == "NULL" else f"'{from_status}'"
    return OPERATION.format(
        command=command, from_version=from_version, from_status=status, to_version=to_version, to_status=to_status
    )


def test_1_one_active_lease(attacker, held) -> None:
    before = snapshot(held)

    attack(
        attacker,
        """INSERT INTO coupon_lock (id, merchant_id, coupon_id, order_no, acquired_version, token_hash, key_version,
               locked_at, expires_at)
           SELECT gen_random_uuid(), merchant_id, coupon_id, 'B', 2, token_hash, 1, now(), now()
           FROM coupon_lock WHERE coupon_id = %(id)s""",
        id=held,
    )

    assert snapshot(held) == before


@pytest.mark.parametrize(
    "change",
    [
        "order_no = 'B'",
        "token_hash = sha256('x')",
        "acquired_version = 9",
        "locked_at = now()",
        "coupon_id = %(other)s",
        "id = gen_random_uuid()",
    ],
)
def test_1_a_lease_is_not_rewritten(attacker, shop, held, change) -> None:
    attack(attacker, f"UPDATE coupon_lock SET {change} WHERE coupon_id = %(id)s", id=held, other=shop.issue().coupon_id)


def test_1_an_ended_lease_stays_ended(attacker, used) -> None:
    attack(attacker, "UPDATE coupon_lock SET ended_by_id = NULL WHERE coupon_id = %(id)s", id=used)
    attack(attacker, "UPDATE coupon_lock SET expires_at = now() WHERE coupon_id = %(id)s", id=used)


def test_2_one_redemption_in_force(attacker, used) -> None:
    before = snapshot(used)

    attack(
        attacker,
        """INSERT INTO coupon_redemption (id, merchant_id, coupon_id, order_no, payment_no, lock_id, redeemed_at)
           SELECT gen_random_uuid(), merchant_id, coupon_id, 'B', 'pay-B', lock_id, now()
           FROM coupon_redemption WHERE coupon_id = %(id)s""",
        id=used,
    )

    assert snapshot(used) == before


@pytest.mark.parametrize(
    "change",
    [
        "order_no = 'B'",
        "payment_no = 'x'",
        "redeemed_at = now()",
        "lock_id = gen_random_uuid()",
        "ended_by_id = NULL",
        "ended_by_id = gen_random_uuid()",
    ],
)
def test_2_the_one_legal_change_of_a_redemption_is_its_end(attacker, used, change) -> None:
    attack(attacker, f"UPDATE coupon_redemption SET {change} WHERE coupon_id = %(id)s", id=used)


def test_2_an_ended_redemption_stays_ended_by_the_same_operation(attacker, shop, used) -> None:
    redemption = CouponRedemption.objects.get(coupon_id=used)
    give_back(shop, decide(shop, redemption.pk))
    last = newest(used)

    for value in ("NULL", "%(other)s"):
        attack(
            attacker,
            f"UPDATE coupon_redemption SET ended_by_id = {value} WHERE id = %(id)s",
            id=redemption.pk,
            other=CouponOperation.objects.exclude(pk=last.pk).first().pk,
        )

    assert CouponRedemption.objects.get(pk=redemption.pk).ended_by_id == last.pk


@pytest.mark.parametrize(
    "row",
    [
        ("LOCK", 1, "AVAILABLE", 2, "LOCKED"),  # a second row for a version
        ("RELEASE", 1, "LOCKED", 2, "AVAILABLE"),
        ("VOID", 7, "AVAILABLE", 8, "VOID"),  # after a row that is not there
        ("VOID", 2, "AVAILABLE", 3, "VOID"),  # from a status that the row before did not leave
        ("REDEEM", 2, "LOCKED", 9, "USED"),  # a jump
        ("REDEEM", 2, "LOCKED", 2, "USED"),  # on the spot
        ("REDEEM", 2, "LOCKED", 1, "USED"),  # backwards
        ("ISSUE", "NULL", "NULL", 1, "AVAILABLE"),  # a second root
        ("ISSUE", "NULL", "NULL", 3, "AVAILABLE"),  # a root in the middle
        ("REDEEM", "NULL", "LOCKED", 3, "USED"),  # half a link
        ("REDEEM", 2, "NULL", 3, "USED"),
        ("REDEEM", "NULL", "NULL", 3, "USED"),  # a root that is no issue
    ],
)
def test_3_the_ledger_is_a_chain(attacker, held, row) -> None:
    before = snapshot(held)

    attack(attacker, operation(*row), id=held)

    assert snapshot(held) == before


def test_3_only_edges_of_the_table(attacker, shop, used) -> None:
    """Every (command, from, to) that is no edge, appended to a chain that ends in `from`."""
    statuses = ["AVAILABLE", "LOCKED", "USED", "EXPIRED", "VOID"]
    source, version = UserCoupon.objects.values_list("status", "state_version").get(pk=used)
    allowed = {(command, target) for command, before, target in EDGES if before == source}

    for command in CouponCommand.values:
        for target in statuses:
            if (command, target) not in allowed or command == "REVERSE":
                attack(attacker, operation(command, version, source, version + 1, target), id=used)


def test_3_the_table_of_edges_is_the_graph_of_the_model() -> None:
    methods = {
        "LOCK": "lock",
        "RENEW": "renew",
        "REDEEM": "redeem",
        "RELEASE": "release",
        "RETURN": "give_back",
        "VOID": "void",
        "EXPIRE": "expire",
        "REVERSE": "reverse",
    }
    graph = set()
    for command, method in methods.items():
        for source, target in edges_of(UserCoupon, method).items():
            targets = [target] if isinstance(target, str) else target.allowed_states
            graph |= {(command, source, one) for one in targets}

    table = {edge for edge in EDGES if edge[0] != "ISSUE"}

    assert {edge for edge in graph if edge[0] != "REVERSE"} == {edge for edge in table if edge[0] != "REVERSE"}
    assert {edge for edge in table if edge[0] == "REVERSE"} <= graph


@pytest.mark.parametrize(
    ("which", "change"),
    [
        ("free", "status = 'LOCKED'"),
        ("free", "status = 'LOCKED', locked_order_no = 'A'"),
        ("free", "locked_order_no = 'A'"),
        ("free", "lock_token_hash = sha256('x')"),
        ("free", "lease_expires_at = now()"),
        ("free", "lock_id = gen_random_uuid()"),
        ("held", "status = 'USED'"),
        ("held", "locked_order_no = NULL"),
        ("held", "lock_token_hash = NULL"),
        ("held", "lease_expires_at = NULL"),
        ("held", "lock_id = NULL"),
        ("free", "status = 'SOLD'"),
    ],
)
def test_4_status_and_its_columns_belong_together(attacker, request, which, change) -> None:
    """Even with a version and its ledger row, a LOCKED coupon has order, token, lease and expiry, and no other has."""
    coupon_id = request.getfixturevalue(which)
    coupon = UserCoupon.objects.get(pk=coupon_id)
    command, target = ("LOCK", "LOCKED") if which == "free" else ("RENEW", "LOCKED")
    if "'USED'" in change:
        command, target = "REDEEM", "USED"
    elif "status" not in change and which == "free":
        command, target = "EXPIRE", "EXPIRED"
        change += ", status = 'EXPIRED'"
    elif "SOLD" in change:
        command, target = "EXPIRE", "SOLD"
    before = snapshot(coupon_id)

    attack(
        attacker,
        operation(command, coupon.state_version, coupon.status, coupon.state_version + 1, target),
        f"UPDATE user_coupon SET {change}, state_version = state_version + 1 WHERE id = %(id)s",
        id=coupon_id,
    )

    assert snapshot(coupon_id) == before


@pytest.mark.parametrize("table", ["coupon_operation", "coupon_redemption", "coupon_lock", "refund_coupon"])
def test_5_evidence_is_append_only(attacker, shop, used, table) -> None:
    decide(shop, CouponRedemption.objects.get(coupon_id=used).pk)

    attack(attacker, f"DELETE FROM {table}")
    attack(attacker, f"TRUNCATE {table} CASCADE")
    attack(attacker, f"UPDATE {table} SET id = gen_random_uuid()")


@pytest.mark.parametrize(
    "column", ["actor = 'x'", "at = now()", "order_no = 'x'", "to_status = 'VOID'", "reason = 'x'"]
)
def test_5_a_ledger_row_is_final(attacker, used, column) -> None:
    attack(attacker, f"UPDATE coupon_operation SET {column} WHERE coupon_id = %(id)s", id=used)


def test_5_refusals_are_append_only(attacker, shop, free) -> None:
    with pytest.raises(Exception, match="VERSION_CONFLICT"):
        shop.lock(free, expected_version=9)

    attack(attacker, "UPDATE coupon_refusal SET code = 'FINE'")
    attack(attacker, "DELETE FROM coupon_refusal")
    attack(attacker, "TRUNCATE coupon_refusal")

    assert CouponRefusal.objects.filter(coupon_id=free, code="VERSION_CONFLICT").count() == 1


def test_5_a_coupon_is_never_deleted(attacker, free) -> None:
    attack(attacker, "DELETE FROM user_coupon WHERE id = %(id)s", id=free)
    attack(attacker, "TRUNCATE user_coupon CASCADE")


def test_5_the_application_cannot_switch_the_guards_off(shop, used) -> None:
    """django-pgtrigger lets a session ignore triggers by name; ours listen to the owner only."""
    address, there = urlsplit(os.environ["DATABASE_URL"]), connection.settings_dict
    with psycopg.connect(
        host=there["HOST"],
        port=there["PORT"] or 5432,
        dbname=there["NAME"],
        user=address.username,
        password=address.password,
    ) as session:
        names = session.execute("SELECT array_agg(tgname::text) FROM pg_trigger WHERE tgname LIKE 'pgtrigger_%'")
        session.execute(
            "SELECT set_config('pgtrigger.ignore', %s::text, false)", ["{" + ",".join(names.fetchone()[0]) + "}"]
        )
        session.commit()
        attack(session, "DELETE FROM coupon_refusal; DELETE FROM coupon_operation")
        attack(session, "UPDATE user_coupon SET state_version = 1 WHERE id = %(id)s", id=used)
        for statement in (
            "ALTER TABLE coupon_operation DISABLE TRIGGER ALL",
            "SET session_replication_role = replica",
            "DROP TABLE coupon_refusal",
            "ALTER TABLE user_coupon DROP CONSTRAINT coupon_locked_has_order_token_expiry",
        ):
            attack(session, statement)


def test_5_the_applications_role_owns_nothing(shop) -> None:
    user = urlsplit(os.environ["DATABASE_URL"]).username
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_class WHERE relowner = (SELECT oid FROM pg_roles WHERE rolname = %s)", [user]
        )
        assert cursor.fetchone()[0] == 0


@pytest.mark.parametrize(
    ("which", "change"),
    [
        ("free", "status = 'USED'"),  # a status without a version
        ("free", "status = 'EXPIRED', state_version = state_version + 1"),  # a version without its ledger row
        ("used", "state_version = state_version + 1"),
        ("used", "state_version = 9"),  # a jump
        ("used", "state_version = 1, status = 'AVAILABLE'"),  # a rewind to an older version and status
        (
            "held",
            "state_version = 1, status = 'AVAILABLE', locked_order_no = NULL, lock_id = NULL,"
            " lock_token_hash = NULL, lease_expires_at = NULL",
        ),
        ("held", "locked_order_no = 'B'"),  # lease columns without a version
        ("held", "lock_token_hash = sha256('x')"),
        ("held", "lease_expires_at = lease_expires_at + interval '1 day'"),
        ("held", "lock_id = gen_random_uuid()"),
    ],
)
def test_6_a_coupon_does_not_change_without_its_operation(attacker, request, which, change) -> None:
    coupon_id = request.getfixturevalue(which)
    before = snapshot(coupon_id)

    attack(attacker, f"UPDATE user_coupon SET {change} WHERE id = %(id)s", id=coupon_id)

    assert snapshot(coupon_id) == before


def test_6_an_operation_of_another_status_does_not_do(attacker, free) -> None:
    attack(
        attacker,
        operation("EXPIRE", 1, "AVAILABLE", 2, "EXPIRED"),
        "UPDATE user_coupon SET status = 'VOID', state_version = 2 WHERE id = %(id)s",
        id=free,
    )


def test_6_a_coupon_is_not_born_without_its_operation(attacker, free) -> None:
    columns = ", ".join(
        field.column for field in UserCoupon._meta.concrete_fields if field.column not in ("id", "state_version")
    )
    for version in (1, 5):
        attack(
            attacker,
            f"INSERT INTO user_coupon (id, state_version, {columns}) SELECT %(new)s, {version}, {columns}"
            " FROM user_coupon WHERE id = %(id)s",
            id=free,
            new=uuid7(),
        )


@pytest.mark.parametrize(
    "change",
    [
        "user_id = 'thief'",
        "valid_until = valid_until + interval '1 year'",
        "valid_from = valid_from - interval '1 year'",
        "template_snapshot = '{}'",
        "policy_snapshot = '{}'",
        "created_at = now()",
    ],
)
def test_what_a_coupon_promises_is_fixed(attacker, free, change) -> None:
    attack(attacker, f"UPDATE user_coupon SET {change} WHERE id = %(id)s", id=free)


def test_policies_and_templates_are_final(attacker, shop) -> None:
    attack(attacker, "UPDATE return_policy SET rules = '{}'")
    attack(attacker, "UPDATE return_policy SET published_at = now()")
    attack(attacker, "UPDATE coupon_template SET off_fen = 1")
    attack(attacker, "DELETE FROM coupon_template")
    attack(attacker, "DELETE FROM return_policy")


def test_the_same_sql_passes_when_it_tells_the_whole_truth(attacker, free) -> None:
    """The attacks fail for what they do, not for the role, the table or the syntax."""
    key, values = f"k-{free}", {"id": free}
    attacker.execute(operation("EXPIRE", 1, "AVAILABLE", 2, "EXPIRED").replace("'k'", f"'{key}'"), values)
    attacker.execute("UPDATE user_coupon SET status = 'EXPIRED', state_version = 2 WHERE id = %(id)s", values)
    attacker.execute(
        "INSERT INTO idempotency_key (id, merchant_id, key, request_hash, created_at)"
        f" SELECT gen_random_uuid(), merchant_id, '{key}', '', now() FROM user_coupon WHERE id = %(id)s",
        values,
    )
    attacker.execute(
        "INSERT INTO outbox_event (id, name, version, subject, payload, created_at, state, attempts, available_at,"
        " last_error) VALUES (gen_random_uuid(), 'coupon.expired', 1, %(id)s, jsonb_build_object('state_version', 2),"
        " now(), 'PENDING', 0, now(), '')",
        {"id": str(free)},
    )
    attacker.commit()

    assert UserCoupon.objects.get(pk=free).status == "EXPIRED"
