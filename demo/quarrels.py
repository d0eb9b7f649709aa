"""What a demo shop does beyond a plain return: exchanges, arbitration, points and commissions."""

from __future__ import annotations

from datetime import datetime

from aftersales.actors import By
from aftersales.commands.add_statement import add_statement
from aftersales.commands.change_settings import change_settings
from aftersales.commands.confirm_exchange import confirm_exchange
from aftersales.commands.confirm_replacement import confirm_replacement
from aftersales.commands.decide_arbitration import decide_arbitration
from aftersales.commands.declare_order_commission import declare_order_commission
from aftersales.commands.open_arbitration import open_arbitration
from aftersales.commands.ship_replacement import ship_replacement
from aftersales.models import Actor, AfterSalesOrder, ArbitrationCase
from demo.shop import Shop
from ledgers.commands.adjust_points import adjust_points
from ledgers.commands.declare_commission import Share
from orders.models import Order


def earn(shop: Shop, *, points_per_yuan: int, now: datetime) -> None:
    """From now on completed orders earn points."""
    change_settings(
        merchant_id=shop.merchant_id,
        instant_refund_up_to_fen=None,
        carrier_silence_days=20,
        points_per_yuan=points_per_yuan,
        now=now,
    )


def give_points(shop: Shop, user_id: str, points: int, *, now: datetime) -> None:
    adjust_points(
        merchant_id=shop.merchant_id,
        user_id=user_id,
        delta=points,
        business_key=f"demo:{user_id}:{now:%Y%m%d}",
        reference="welcome",
        now=now,
    )


def recommend(shop: Shop, order: Order, *, line_no: int, rates: dict[str, int], now: datetime) -> None:
    """Who earns from a line, in basis points of its goods; the first is nearest to the buyer."""
    declare_order_commission(
        merchant_id=shop.merchant_id,
        order_no=order.order_no,
        shares=[
            Share(line_no=line_no, level=level, beneficiary=who, rate_bp=rate)
            for level, (who, rate) in enumerate(rates.items(), 1)
        ],
        key=shop.key("commissions"),
        now=now,
    )


def receive_for_exchange(shop: Shop, claim: AfterSalesOrder, *, now: datetime) -> AfterSalesOrder:
    confirm_exchange(
        merchant_id=shop.merchant_id,
        after_sales_no=claim.after_sales_no,
        expected_version=claim.version,
        dispositions={"sellable": claim.qty},
        by=By(Actor.MERCHANT, shop.staff),
        key=shop.key("exchange"),
        now=now,
    )
    shop.work_off(now=now)
    return shop.read_claim(claim.after_sales_no)


def send_replacement(shop: Shop, claim: AfterSalesOrder, *, now: datetime) -> AfterSalesOrder:
    ship_replacement(
        merchant_id=shop.merchant_id,
        after_sales_no=claim.after_sales_no,
        expected_version=claim.version,
        carrier="SF",
        tracking_no=f"SF{claim.after_sales_no}X",
        by=By(Actor.MERCHANT, shop.staff),
        key=shop.key("replacement"),
        now=now,
    )
    return shop.read_claim(claim.after_sales_no)


def accept_replacement(shop: Shop, claim: AfterSalesOrder, *, now: datetime) -> AfterSalesOrder | None:
    """The buyer has it. The claim that pays the difference, if the replacement is cheaper."""
    done = confirm_replacement(
        merchant_id=shop.merchant_id,
        after_sales_no=claim.after_sales_no,
        user_id=claim.user_id,
        by=By(Actor.BUYER, claim.user_id),
        key=shop.key("accept"),
        now=now,
    )
    shop.work_off(now=now)
    return shop.read_claim(done.difference_no) if done.difference_no else None


def call_the_platform(shop: Shop, claim: AfterSalesOrder, *, wish: str, answer: str, now: datetime) -> ArbitrationCase:
    """The buyer opens a case, says why, and the merchant answers."""
    opened = open_arbitration(
        merchant_id=shop.merchant_id,
        after_sales_no=claim.after_sales_no,
        user_id=claim.user_id,
        wish=wish,
        by=By(Actor.BUYER, claim.user_id),
        key=shop.key("case"),
        now=now,
    )
    add_statement(
        merchant_id=shop.merchant_id,
        case_id=opened.case_id,
        text=answer,
        by=By(Actor.MERCHANT, shop.staff),
        key=shop.key("statement"),
        now=now,
    )
    return ArbitrationCase.objects.get(pk=opened.case_id)


def decide(shop: Shop, case: ArbitrationCase, *, goods_fen: int, why: str, now: datetime) -> AfterSalesOrder:
    """The platform decides against the merchant; the claim that pays the award."""
    decided = decide_arbitration(
        case_id=case.pk,
        expected_version=case.version,
        goods_fen=goods_fen,
        freight_fen=0,
        responsible="merchant",
        decision=why,
        by=By(Actor.PLATFORM, shop.staff),
        key=shop.key("decision"),
        now=now,
    )
    shop.work_off(now=now)
    return shop.read_claim(decided.after_sales_no)
