"""The demo's stories run through the real commands and leave books in which nothing is wrong."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from aftersales.models import AfterSalesOrder, ArbitrationCase, Exchange
from coupons.models import UserCoupon
from demo.access import get_demo_access
from demo.commands.seed_demo import seed_demo
from ledgers.models import CommissionAccount, PointsAccount
from merchants.models import Merchant
from orders.models import Order
from reconciliation.commands.run_reconciliation import run_reconciliation
from reconciliation.models import Finding

NOW = datetime(2026, 11, 30, 7, 0, tzinfo=UTC)


@pytest.fixture
def seeded(transactional_db, tmp_path):
    return seed_demo(now=NOW, state=tmp_path)


def test_an_order_and_a_claim_in_every_state(seeded, tmp_path) -> None:
    orders = Counter(Order.objects.values_list("status", flat=True))
    claims = Counter(AfterSalesOrder.objects.values_list("status", flat=True))
    assert set(orders) == {0, 10, 20, 30, 40, 50}
    assert {
        "WAIT_AUDIT",
        "WAIT_BUYER_RETURN",
        "WAIT_MERCHANT_RECEIVE",
        "REFUND_SUCCESS",
        "REFUND_FAILED",
        "REJECTED",
        "CANCELED",
        "COMPLETED",
    } <= set(claims)

    again = seed_demo(now=NOW + timedelta(hours=1), state=tmp_path)
    assert again.replayed and (again.orders, again.claims) == (seeded.orders, seeded.claims)
    assert Merchant.objects.count() == 2


def test_the_nut_and_tea_order(seeded) -> None:
    order = Order.objects.get(payable_fen=26000, lines__sku="TEA-250G", coupon_id__isnull=False)
    refunds = AfterSalesOrder.objects.filter(order=order).order_by("created_at")
    assert [claim.approved_total_fen for claim in refunds] == [17167, 8833]
    assert UserCoupon.objects.get(pk=order.coupon_id).status == "AVAILABLE"


def test_points_commissions_an_exchange_and_arbitration(seeded) -> None:
    assert PointsAccount.objects.get(user_id="u-sun").balance == 300 + 153 + 196
    assert dict(CommissionAccount.objects.values_list("beneficiary", "pending_fen")) == {"tuan-li": 590, "tuan-wu": 197}
    exchange = Exchange.objects.get()
    assert (exchange.credit_fen, exchange.difference_fen) == (7990, 1090)
    assert exchange.replacement_line is not None
    assert sorted(ArbitrationCase.objects.values_list("state", "awarded_goods_fen")) == [
        ("DECIDED", 3990),
        ("OPEN", None),
    ]
    paid = AfterSalesOrder.objects.filter(status="REFUND_SUCCESS", origin__in=["arbitration", "exchange"])
    assert sorted(claim.approved_total_fen for claim in paid) == [1090, 3990]


def test_nothing_is_wrong_in_these_books(seeded) -> None:
    for back in range(6, -1, -1):
        run_reconciliation(on_date=(NOW - timedelta(days=back)).date(), now=NOW)
    assert [(row.rule, row.key, row.ours, row.theirs) for row in Finding.objects.exclude(rule="BILL_MISSING")] == []


def test_who_may_log_in(seeded) -> None:
    access = get_demo_access()
    assert {person["role"] for person in access["admin"]} == {
        "merchant_owner",
        "merchant_staff",
        "customer_service",
        "operations",
        "finance",
        "auditor",
        "platform_admin",
    }
    assert [client["merchant"] for client in access["api_clients"]] == ["yunwu", "muli"]
    assert all(client["secret"] and client["key_id"] for client in access["api_clients"])
