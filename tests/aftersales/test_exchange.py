"""Exchange and reship: supplement, difference, sold out, and what becomes of the units."""

import pytest

from aftersales.actors import SYSTEM, By
from aftersales.commands.confirm_exchange import confirm_exchange
from aftersales.commands.confirm_replacement import confirm_replacement
from aftersales.commands.convert_to_refund import convert_to_refund
from aftersales.commands.expire_supplement import expire_supplement
from aftersales.commands.settle_supplement import settle_supplement
from aftersales.commands.ship_replacement import ship_replacement
from aftersales.drafts import Replacement, is_wholly_refunded
from aftersales.models import Actor, AfterSalesOrder, Exchange, Type
from kernel.errors import IllegalTransition, InvalidInput
from kernel.models import OutboxEvent
from ledgers.commands.adjust_stock import adjust_stock
from ledgers.models import StockItem
from orders.models import OrderLine
from payments.gateway import Channel, PaymentFact, PaymentState
from payments.models import Payment, RefundRequest
from tests.aftersales import build
from tests.aftersales.build import BUYER, MERCHANT, Line, a_key, a_paid_order

pytestmark = pytest.mark.django_db

DEARER = Replacement(sku="big", title="Big cup", unit_price_fen=12000)
CHEAPER = Replacement(sku="small", title="Small cup", unit_price_fen=5000)
EQUAL = Replacement(sku="blue", title="Blue cup", unit_price_fen=8000)


@pytest.fixture
def paid(now):
    """A cup of 100 with 20 off: 80 were paid for it."""
    made = a_paid_order(now, Line(10000, sku="cup"), coupon=2000, freight=600)
    made.ship(1)
    for sku in ("big", "small", "blue", "cup"):
        adjust_stock(
            merchant_id=made.merchant.pk, sku=sku, delta=3, business_key=f"open-{sku}", reference="test", now=now
        )
    return made


def received(paid, replacement: Replacement, *, qty: int = 1, reason: str = "wrong_size", **counts) -> str:
    number = paid.apply(1, qty=qty, type=Type.EXCHANGE, reason=reason, replacement=replacement).after_sales_no
    paid.approve(number)
    paid.send_back(number)
    confirm_exchange(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=3,
        dispositions=counts or {"sellable": qty},
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )
    return number


def ship(paid, number: str, *, version: int):
    return ship_replacement(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=version,
        carrier="SF",
        tracking_no="SF7",
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )


def confirm(paid, number: str):
    return confirm_replacement(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        user_id=BUYER,
        by=By(Actor.BUYER, BUYER),
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )


def sold_out(paid, number: str, *, version: int):
    return convert_to_refund(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        expected_version=version,
        reason="sold out",
        by=MERCHANT,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )


def pay(paid, number: str, *, amount_fen: int | None = None, trade_no: str = "4200001") -> str:
    payment = Payment.objects.get(order_no=number, kind="supplement")
    done = settle_supplement(
        payment_id=payment.pk,
        fact=PaymentFact(
            channel=Channel.WECHAT,
            state=PaymentState.SUCCESS,
            out_trade_no=payment.out_trade_no,
            trade_no=trade_no,
            amount_fen=payment.amount_fen if amount_fen is None else amount_fen,
            paid_at=paid.now,
        ),
        now=paid.now,
    )
    build.deliver(paid.now)
    return done.outcome


def pieces(sku: str) -> tuple[int, int]:
    item = StockItem.objects.get(sku=sku)
    return item.sellable, item.reserved


def test_r19_a_dearer_replacement_owes_the_supplement(paid):
    number = received(paid, DEARER)
    claim = paid.claim(number)
    assert (claim.status, claim.due_at is not None) == ("WAIT_BUYER_PAY", True)
    exchange = Exchange.objects.get()
    assert (exchange.credit_fen, exchange.supplement_fen, exchange.difference_fen) == (8000, 4000, 0)
    payment = Payment.objects.get(kind="supplement")
    assert (payment.out_trade_no, payment.amount_fen, payment.status) == (f"{number}P1", 4000, "CREATED")
    assert pieces("big") == (2, 1)
    assert pieces("cup") == (4, 0)


def test_r19_an_equal_one_owes_nothing_and_a_cheaper_one_gives_the_difference(paid, now):
    number = received(paid, EQUAL)
    exchange = Exchange.objects.get()
    assert (paid.claim(number).status, exchange.supplement_fen, exchange.difference_fen) == ("WAIT_MERCHANT_SHIP", 0, 0)
    other = a_paid_order(now, Line(10000, sku="cup"), coupon=2000, merchant=paid.merchant)
    other.ship(1)
    cheaper = received(other, CHEAPER)
    exchange = Exchange.objects.get(after_sales__after_sales_no=cheaper)
    assert (exchange.supplement_fen, exchange.difference_fen) == (0, 3000)


def test_the_whole_way_with_a_supplement(paid):
    number = received(paid, DEARER)
    with pytest.raises(IllegalTransition):
        ship(paid, number, version=4)
    assert pay(paid, number) == "paid"
    assert pay(paid, number) == "paid"
    claim = paid.claim(number)
    assert (claim.status, claim.version) == ("WAIT_MERCHANT_SHIP", 5)
    assert ship(paid, number, version=5).status == "WAIT_BUYER_CONFIRM"
    assert pieces("big") == (2, 0)
    done = confirm(paid, number)
    assert (done.status, done.line_no, done.difference_no) == ("COMPLETED", 2, "")
    old, new = paid.line(1), paid.line(2)
    assert (old.refunded_ordinals, old.held_ordinals) == ([1], [])
    assert (new.net_fen, new.freight_share_fen, new.shipped_qty, new.signed_at) == (12000, 600, 1, paid.now)
    assert not is_wholly_refunded(list(OrderLine.objects.all()))


def test_a_return_of_the_replacement_goes_back_to_both_payments(paid):
    number = received(paid, DEARER)
    pay(paid, number)
    ship(paid, number, version=5)
    confirm(paid, number)
    second = paid.returned(2, reason="quality")
    done = paid.confirm(second)
    assert (done.goods_fen, done.freight_fen) == (12000, 600)
    parts = RefundRequest.objects.order_by("owner_no").values_list("owner_no", "payment__kind", "amount_fen")
    assert list(parts) == [(second, "order", 8600), (f"{second}_1", "supplement", 4000)]
    paid.channel_says(f"{second}-0")
    assert paid.claim(second).status == "REFUNDING"
    paid.channel_says(f"{second}_1-0")
    assert paid.claim(second).status == "REFUND_SUCCESS"
    assert is_wholly_refunded(list(OrderLine.objects.all()))


def test_the_difference_is_a_linked_claim(paid):
    number = received(paid, CHEAPER)
    ship(paid, number, version=4)
    done = confirm(paid, number)
    linked = paid.claim(done.difference_no)
    assert (linked.parent.after_sales_no, linked.type, linked.hold) == (number, Type.PRICE_PROTECTION, "tops_up")
    assert (linked.status, linked.approved_goods_fen, linked.approved_freight_fen) == ("REFUNDING", 3000, 0)
    paid.channel_says(f"{done.difference_no}-0")
    assert paid.claim(done.difference_no).status == "REFUND_SUCCESS"
    assert paid.line(2).net_fen == 5000
    again = paid.returned(2, reason="quality")
    paid.confirm(again)
    paid.channel_says(f"{again}-0")
    paid.payment.refresh_from_db()
    assert paid.payment.refunded_fen == 3000 + 5000 + 600 == paid.order.payable_fen


def test_sold_out_turns_into_a_refund_and_the_supplement_goes_back(paid):
    number = received(paid, DEARER)
    pay(paid, number)
    done = sold_out(paid, number, version=5)
    assert (done.status, done.goods_fen) == ("REFUNDING", 8000)
    assert pieces("big") == (3, 0)
    assert list(RefundRequest.objects.order_by("amount_fen").values_list("owner_kind", "owner_no", "amount_fen")) == [
        ("order_payment", "4200001", 4000),
        ("after_sales", number, 8000),
    ]
    paid.channel_says(f"{number}-0")
    assert paid.claim(number).status == "REFUND_SUCCESS"
    assert pieces("cup") == (4, 0)


def test_sold_out_on_receipt_refunds_at_once(paid, now):
    adjust_stock(merchant_id=paid.merchant.pk, sku="blue", delta=-3, business_key="gone", reference="test", now=now)
    number = received(paid, EQUAL, reason="quality")
    claim = paid.claim(number)
    assert (claim.status, claim.approved_goods_fen, claim.approved_freight_fen) == ("REFUNDING", 8000, 600)
    assert [row.to_status for row in claim.log.order_by("to_version")][-2:] == ["WAIT_MERCHANT_SHIP", "REFUNDING"]


def test_a_supplement_nobody_paid_becomes_a_refund(paid):
    number = received(paid, DEARER)
    assert expire_supplement(merchant_id=paid.merchant.pk, after_sales_no=number, now=paid.now).outcome == "refunding"
    assert paid.claim(number).status == "REFUNDING"
    assert Payment.objects.get(kind="supplement").status == "CLOSED"


def test_a_supplement_that_comes_too_late_goes_back_once(paid):
    number = received(paid, DEARER)
    expire_supplement(merchant_id=paid.merchant.pk, after_sales_no=number, now=paid.now)
    for _ in range(2):
        assert pay(paid, number) == "paid"
    assert RefundRequest.objects.filter(owner_kind="order_payment", owner_no="4200001", amount_fen=4000).count() == 1
    assert paid.claim(number).status == "REFUNDING"


def test_another_amount_moves_nothing(paid):
    number = received(paid, DEARER)
    assert pay(paid, number, amount_fen=3999) == "amount_differs"
    assert paid.claim(number).status == "WAIT_BUYER_PAY"
    assert OutboxEvent.objects.filter(name="after_sales.anomaly").count() == 1


def test_only_what_arrived_is_exchanged(now):
    paid = a_paid_order(now, Line(10000, qty=3, sku="cup"))
    paid.ship(1)
    number = received(paid, Replacement(sku="blue", title="Blue", unit_price_fen=10000), qty=3, sellable=2, missing=1)
    ship(paid, number, version=4)
    confirm(paid, number)
    assert (paid.line(1).refunded_ordinals, paid.line(2).qty) == ([1, 2], 2)
    assert paid.apply(1, type=2).ordinals == [3]


def test_an_exchange_names_its_replacement_and_nothing_else_does(paid):
    with pytest.raises(InvalidInput):
        paid.apply(1, type=Type.EXCHANGE, reason="wrong_size")
    with pytest.raises(InvalidInput):
        paid.apply(1, type=Type.RETURN, replacement=EQUAL)
    assert not AfterSalesOrder.objects.exists()


def test_a_reship_moves_pieces_and_no_money_and_frees_its_units(paid):
    number = paid.apply(1, type=Type.RESHIP, reason="not_received").after_sales_no
    assert paid.approve(number).status == "WAIT_MERCHANT_SHIP"
    assert pieces("cup") == (2, 1)
    ship(paid, number, version=2)
    assert pieces("cup") == (2, 0)
    done = confirm(paid, number)
    assert (done.status, done.line_no) == ("COMPLETED", None)
    assert not RefundRequest.objects.exists()
    assert paid.line(1).refunded_ordinals == []
    assert paid.apply(1, type=2).ordinals == [1]


def test_while_it_is_reshipped_nobody_else_claims_the_unit(paid):
    from aftersales.drafts import NoSuchUnits

    paid.apply(1, type=Type.RESHIP, reason="not_received")
    with pytest.raises(NoSuchUnits):
        paid.apply(1, type=2)


def test_the_timer_confirms_as_well(paid):
    number = received(paid, EQUAL)
    ship(paid, number, version=4)
    done = confirm_replacement(
        merchant_id=paid.merchant.pk,
        after_sales_no=number,
        user_id=None,
        by=SYSTEM,
        key=a_key(paid.merchant.pk),
        now=paid.now,
    )
    assert done.status == "COMPLETED"
