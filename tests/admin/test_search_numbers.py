"""Whatever number a person holds in their hands, the search finds what it belongs to; nobody else's, though."""

import pytest
from django.test import Client

from merchants.roles import Role
from payments.models import ChannelNotify, Payment, RefundRequest
from tests.admin.test_guards import clerk
from tests.merchants.factories import a_merchant, a_person
from tests.payments.factories import a_paid_payment, a_refund, a_shop, attempt_of, request_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def shop(now):
    return a_shop(now)


def listed(client: Client, model: str, term: str) -> int:
    answer = client.get(f"/admin/payments/{model}/", {"q": term})
    assert answer.status_code == 200
    return len(answer.context["cl"].result_list)


def opened(client: Client, term: str) -> str:
    """Where the one search box leads."""
    return client.get("/admin/find/", {"q": term}).get("Location", "")


def test_every_number_of_a_payment_and_its_refund(shop, now) -> None:
    payment = a_paid_payment(shop)
    a_paid_payment(shop)
    refund = a_refund(shop, payment, 500)
    anna = clerk("anna", Role.FINANCE, now)

    for number in (payment.out_trade_no, payment.trade_no, payment.order_no):
        assert listed(anna, "payment", number) == 1
    for number in (payment.out_trade_no, payment.trade_no):
        assert opened(anna, number) == f"/admin/payments/payment/{payment.pk}/change/"
    sent = attempt_of(refund)
    for number in (sent.number, request_of(refund).owner_no, payment.order_no):
        assert listed(anna, "refundrequest", number) == 1
    assert opened(anna, sent.number) == f"/admin/payments/refundrequest/{sent.request_id}/change/"
    assert listed(anna, "payment", "there-is-none") == listed(anna, "refundrequest", "there-is-none") == 0
    assert listed(anna, "refundrequest", f"{request_of(refund).owner_no}-7") == 0


@pytest.mark.parametrize("way", ["offline", "balance"])
def test_a_refund_that_went_another_way(shop, now, way: str) -> None:
    refund = request_of(a_refund(shop, a_paid_payment(shop), 500))
    number = f"{refund.owner_no}-{way}"
    RefundRequest.objects.filter(pk=refund.pk).update(
        status="SUCCEEDED", refund_no=number, succeeded_at=now, recorded_at=now
    )
    anna = clerk("anna", Role.FINANCE, now)

    assert listed(anna, "refundrequest", number) == 1
    assert opened(anna, number) == f"/admin/payments/refundrequest/{refund.pk}/change/"


def test_a_callback_by_its_numbers_and_a_refused_one_by_where_it_came_from(shop, now) -> None:
    payment = a_paid_payment(shop)
    heard = {"channel": "wechat", "kind": "payment", "body": b"{}", "body_size": 2, "received_at": now}
    ChannelNotify.objects.create(
        **heard,
        verdict="VERIFIED",
        merchant=shop.merchant,
        account_id=shop.account_id,
        notify_no="EV-1",
        out_trade_no=payment.out_trade_no,
        trade_no=payment.trade_no,
        address="203.0.113.7",
    )
    ChannelNotify.objects.create(**heard, verdict="FORGED", address="198.51.100.9")
    anna = clerk("anna", Role.FINANCE, now)

    for number in ("EV-1", payment.out_trade_no, payment.trade_no, payment.order_no, "198.51.100.9"):
        assert listed(anna, "channelnotify", number) == 1
    assert listed(anna, "channelnotify", "203.0.113.7") == 0  # the channel's own address names nothing


def test_another_merchants_numbers_find_nothing(shop, now) -> None:
    payment = a_paid_payment(shop)
    refund = a_refund(shop, payment, 500)
    stranger = a_merchant(now=now, code="other")
    client = Client(headers={"accept-language": "en"})
    client.force_login(
        a_person(role=Role.MERCHANT_OWNER, merchant=stranger, now=now, username="bo").user,
        backend="django.contrib.auth.backends.ModelBackend",
    )

    for number in (payment.out_trade_no, payment.trade_no, attempt_of(refund).number, request_of(refund).owner_no):
        assert listed(client, "payment", number) == listed(client, "refundrequest", number) == 0
        assert opened(client, number) == ""
    assert Payment.objects.count() == 1
