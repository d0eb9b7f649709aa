"""The database's own guarantees, attacked by hand-written SQL: good manners are not needed for any of them."""

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from aftersales.models import AfterSalesOrder, AfterSalesUnit, edges_by_type
from tests.aftersales.build import Line, a_paid_order, nut_and_tea

pytestmark = pytest.mark.django_db


def sql(statement: str, *params) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.rowcount


def refused(statement: str, *params, match: str | None = None) -> None:
    """The statement, or the check of what was deferred until the end, is refused."""
    with pytest.raises(DatabaseError, match=match), transaction.atomic():
        assert sql(statement, *params) > 0, "the attack hit no row"
        sql("SET CONSTRAINTS ALL IMMEDIATE")


@pytest.fixture
def claim(now) -> AfterSalesOrder:
    paid = nut_and_tea(now)
    return paid.claim(paid.apply(2).after_sales_no)


ORDER = "UPDATE after_sales_order SET {} WHERE id = %s"


@pytest.mark.parametrize(
    "change",
    [
        "status = 'REFUNDING'",
        "status = 'REJECTED', finished_at = now(), due_at = NULL",
        "version = version + 2",
        "version = version - 1",
        "liability = 'buyer'",
        "hold = 'deducts'",
        "entitled_goods_fen = entitled_goods_fen + 1",
        "approved_goods_fen = 1, approved_freight_fen = 0",
    ],
)
def test_nothing_protected_moves_without_the_next_version(claim, change):
    refused(ORDER.format(change), claim.pk, match="changed without its version")


@pytest.mark.parametrize(
    "change",
    [
        "version = version + 1",
        "version = version + 1, status = 'REJECTED', finished_at = now(), due_at = NULL",
        "version = version + 1, liability = 'buyer'",
    ],
)
def test_a_version_without_its_log_line_does_not_commit(claim, change):
    refused(ORDER.format(change), claim.pk, match="after_sales_is_where_its_log_says")


@pytest.mark.parametrize(
    "change",
    [
        "applied_goods_fen = 1",
        "order_no = 'Q1'",
        "qty = 9",
        "user_id = 'u-2'",
        "type = 2",
    ],
)
def test_what_was_claimed_stays_what_was_claimed(claim, change):
    refused(ORDER.format(change), claim.pk)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("approved_goods_fen = entitled_goods_fen + 1, approved_freight_fen = 0", "approved_within_entitlement"),
        ("approved_goods_fen = -1, approved_freight_fen = 0", "approved_within_entitlement"),
        ("approved_goods_fen = 1", "approved_within_entitlement"),
        ("status = 'REFUNDING'", "refund_has_amount_and_time"),
        ("status = 'REJECTED', due_at = NULL", "final_has_time"),
        ("accepted_qty = 2", "at_most_what_was_claimed"),
    ],
)
def test_figures_that_make_no_sense(claim, change, name):
    refused(ORDER.format(f"version = version + 1, {change}"), claim.pk, match=name)


LOG = (
    "INSERT INTO after_sales_log (after_sales_id, type, command, from_version, from_status, to_version, to_status,"
    " actor_kind, actor_id, reason, evidence, created_at)"
    " VALUES (%s, {}, 'x', {}, {}, {}, {}, 'system', '', '', '{{}}', now())"
)


@pytest.mark.parametrize(
    "values",
    [
        ("1", "1", "'WAIT_AUDIT'", "2", "'COMPLETED'"),
        ("1", "1", "'WAIT_AUDIT'", "3", "'REJECTED'"),
        ("2", "1", "'WAIT_AUDIT'", "2", "'REFUNDING'"),
        ("4", "1", "'WAIT_AUDIT'", "2", "'REFUNDING'"),
        ("1", "NULL", "NULL", "2", "'REJECTED'"),
        ("1", "NULL", "NULL", "1", "'WAIT_AUDIT'"),
        ("1", "7", "'WAIT_AUDIT'", "8", "'REJECTED'"),
    ],
    ids=["no edge", "a gap", "another type's edge", "a reship's refund", "no beginning", "second root", "no chain"],
)
def test_the_log_is_a_chain_of_declared_edges(claim, values):
    refused(LOG.format(*values), claim.pk)


@pytest.mark.parametrize("table", ["after_sales_log", "inspection", "carrier_event", "arbitration_statement"])
def test_evidence_only_grows(claim, table):
    for statement in (f"TRUNCATE {table} CASCADE", f"DELETE FROM {table}", f"UPDATE {table} SET id = id"):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {table}")
            if not cursor.fetchone()[0] and not statement.startswith("TRUNCATE"):
                continue
        with pytest.raises(DatabaseError), transaction.atomic():
            sql(statement)


def test_a_claim_is_never_deleted(claim):
    refused("DELETE FROM after_sales_order WHERE id = %s", claim.pk)


def test_one_live_claim_per_unit_whatever_writes(now):
    paid = a_paid_order(now, Line(1000, qty=2))
    first = paid.claim(paid.apply(1).after_sales_no)
    second = paid.claim(paid.apply(1).after_sales_no)
    refused(
        "UPDATE after_sales_unit SET ordinal = 1 WHERE after_sales_id = %s",
        second.pk,
        match="unit_has_one_live_claim",
    )
    assert first.units.get().ordinal == 1


def test_a_unit_pays_at_most_what_is_left_of_it(claim):
    change = "UPDATE after_sales_unit SET goods_fen = worth_fen + 1 WHERE after_sales_id = %s"
    refused(change, claim.pk, match="at_most_what_is_left")


def test_line_and_payment_hold_their_own_limits(claim):
    line = "UPDATE order_line SET goods_committed_fen = net_fen + 1 WHERE id = %s"
    refused(line, claim.line_id, match="goods_refunds_within_net")
    refused(
        "UPDATE payment SET refund_committed_fen = amount_fen + 1 WHERE order_no = %s",
        claim.order_no,
        match="refunds_committed_within_paid",
    )


def test_a_rollback_is_asked_for_once_per_system(now):
    paid = nut_and_tea(now)
    number = paid.apply(2).after_sales_no
    paid.approve(number)
    paid.channel_says(f"{number}-0")
    refused(
        "INSERT INTO after_sales_rollback (id, merchant_id, after_sales_id, system, state, event_id, result,"
        " requested_at) SELECT gen_random_uuid(), merchant_id, after_sales_id, system, 'PENDING', event_id, '{}', now()"
        " FROM after_sales_rollback LIMIT 1",
        match="once_per_system",
    )
    refused("UPDATE after_sales_rollback SET done_at = NULL", match="rollback_done_has_time")


def test_every_edge_of_every_type_is_the_documents():
    """The table of aftersales.md, and the one edge beside it by which arbitration ends an open claim."""
    by_arbitration = {
        (kind, status, "CANCELED")
        for kind, statuses in {
            2: ["WAIT_MERCHANT_RECEIVE"],
            3: ["WAIT_MERCHANT_RECEIVE", "WAIT_BUYER_PAY", "WAIT_MERCHANT_SHIP", "WAIT_BUYER_CONFIRM"],
            4: ["WAIT_MERCHANT_SHIP", "WAIT_BUYER_CONFIRM"],
        }.items()
        for status in statuses
    }
    refund = {
        ("REFUNDING", "REFUND_SUCCESS"),
        ("REFUNDING", "REFUND_FAILED"),
        ("REFUND_FAILED", "REFUNDING"),
        ("REFUND_FAILED", "REFUND_SUCCESS"),
        ("REFUND_FAILED", "REJECTED"),
    }
    audit = {("WAIT_AUDIT", "REJECTED"), ("WAIT_AUDIT", "CANCELED")}
    back = {
        ("WAIT_AUDIT", "WAIT_BUYER_RETURN"),
        ("WAIT_BUYER_RETURN", "WAIT_MERCHANT_RECEIVE"),
        ("WAIT_BUYER_RETURN", "CANCELED"),
        ("WAIT_MERCHANT_RECEIVE", "REJECTED"),
    }
    away = {("WAIT_MERCHANT_SHIP", "WAIT_BUYER_CONFIRM"), ("WAIT_BUYER_CONFIRM", "COMPLETED")}
    wanted = {
        1: audit | refund | {("WAIT_AUDIT", "REFUNDING")},
        2: audit | back | refund | {("WAIT_MERCHANT_RECEIVE", "REFUNDING")},
        3: audit
        | back
        | away
        | refund
        | {
            ("WAIT_MERCHANT_RECEIVE", "WAIT_BUYER_PAY"),
            ("WAIT_MERCHANT_RECEIVE", "WAIT_MERCHANT_SHIP"),
            ("WAIT_BUYER_PAY", "WAIT_MERCHANT_SHIP"),
            ("WAIT_BUYER_PAY", "REFUNDING"),
            ("WAIT_MERCHANT_SHIP", "REFUNDING"),
        },
        4: audit | away | {("WAIT_AUDIT", "WAIT_MERCHANT_SHIP")},
        5: audit | refund | {("WAIT_AUDIT", "REFUNDING")},
    }
    declared = edges_by_type() - by_arbitration
    assert declared == {(kind, source, target) for kind, edges in wanted.items() for source, target in edges}


def test_units_are_what_they_were(claim):
    assert AfterSalesUnit.objects.filter(after_sales=claim).count() == 1
    with pytest.raises(IntegrityError), transaction.atomic():
        sql("UPDATE after_sales_unit SET live = false WHERE after_sales_id = %s", claim.pk)
