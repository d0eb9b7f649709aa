"""Fill an empty installation with two shops and what happened in them during a week."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings

from aftersales.models import AfterSalesOrder
from coupons.commands.create_policy import create_policy, publish_policy
from coupons.commands.create_template import create_template
from coupons.models import CouponTemplate, ReturnPolicy
from demo.access import CLIENT_NAME, demo_password
from demo.accounts import ensure_wechat_account
from demo.catalogue import HOME, NUTS, PEOPLE, ShopFront
from demo.shop import Shop, SimulatorHand
from demo.stories import STORIES, Week
from kernel import idempotency
from kernel.clock import channel_day
from kernel.idempotency import business_key
from kernel.transactions import unit_of_work
from ledgers.commands.adjust_stock import adjust_stock
from ledgers.models import StockItem
from merchants.commands.create_client import create_client
from merchants.commands.create_merchant import create_merchant
from merchants.commands.create_staff import create_staff
from merchants.models import ApiClient, Merchant, Scope, Staff
from orders.models import Order
from reconciliation.commands.reconcile_day import reconcile_day

FRONTS = (NUTS, HOME)
DAYS = 6
"""So many days before today are reconciled."""

RULES = {"on_full_refund": "RETURN"}


@dataclass(frozen=True)
class Told:
    """A story that has been told, so that a seed that was killed goes on where it stopped."""

    name: str
    replayed: bool = False


@dataclass(frozen=True)
class Seeded:
    orders: int
    claims: int
    replayed: bool = False


def seed_demo(*, now: datetime, simulator_url: str = "", state: Path | None = None) -> Seeded:
    """Merchants, people, an API client each, coupons, stock, and the stories; each part once, whoever asks again.

    With a simulator that answers, payments and refunds travel the real wire and the days are reconciled with its
    bills; without one the channel's word is put into the commands' hands and no day is reconciled.
    """
    hand = SimulatorHand(simulator_url) if simulator_url else None
    if hand is not None and not hand.answers():
        hand = None
    began = now - timedelta(days=DAYS + 2)
    ids = {front.code: _found(front, now=began) for front in FRONTS}
    _people(ids, now=began)
    for index, front in enumerate(FRONTS):
        ensure_wechat_account(
            merchant_id=ids[front.code],
            index=index,
            name=front.name,
            state=state or settings.QUITS_VAR / "simulator",
            base_url=simulator_url or "http://127.0.0.1:9",
            now=began,
        )
    shops = {front.code: Shop(merchant_id=ids[front.code], code=front.code, simulator=hand) for front in FRONTS}
    week = Week(yunwu=shops["yunwu"], muli=shops["muli"], now=now)
    fresh = _tell(week, hand)
    return Seeded(orders=Order.objects.count(), claims=AfterSalesOrder.objects.count(), replayed=not fresh)


def _tell(week: Week, hand: SimulatorHand | None) -> bool:
    untold = [tell for tell in STORIES if not _is_told(week.yunwu.merchant_id, tell.__name__)]
    if not untold:
        return False
    with hand.in_the_past() if hand is not None else nullcontext():
        for tell in untold:
            tell(week)
            _remember(week.yunwu.merchant_id, tell.__name__, now=week.now)
        if hand is not None:
            today = channel_day(week.now)
            for back in range(DAYS, 0, -1):
                morning = week.day(back - 1, 10, 5)
                reconcile_day(on_date=today - timedelta(days=back), now=min(morning, week.now))
    return True


def _key(merchant_id: UUID, name: str) -> idempotency.BusinessKey:
    return business_key(merchant_id=merchant_id, key=f"demo:story:{name}")


def _is_told(merchant_id: UUID, name: str) -> bool:
    return idempotency.find(_key(merchant_id, name), Told) is not None


def _remember(merchant_id: UUID, name: str, *, now: datetime) -> None:
    with unit_of_work(now=now):
        idempotency.begin(_key(merchant_id, name), Told, now=now)
        idempotency.finish(_key(merchant_id, name), Told(name))


def _found(front: ShopFront, *, now: datetime) -> UUID:
    """The merchant with its client, policy, coupons and stock."""
    merchant = Merchant.objects.filter(code=front.code).first()
    merchant_id = (
        merchant.pk
        if merchant is not None
        else create_merchant(code=front.code, name=front.name, now=now, **front.settings).merchant_id
    )
    if not ApiClient.objects.filter(merchant_id=merchant_id, name=CLIENT_NAME).exists():
        create_client(merchant_id=merchant_id, name=CLIENT_NAME, scopes=list(Scope.values), now=now)
    if not ReturnPolicy.objects.filter(merchant_id=merchant_id, code="standard").exists():
        policy = create_policy(merchant_id=merchant_id, code="standard", rules=RULES, now=now, actor="demo")
        publish_policy(merchant_id=merchant_id, policy_id=policy.policy_id, now=now)
    for coupon in front.coupons:
        if not CouponTemplate.objects.filter(merchant_id=merchant_id, code=coupon["code"]).exists():
            create_template(merchant_id=merchant_id, policy_code="standard", now=now, actor="demo", **coupon)
    for goods in front.goods.values():
        if goods.stock and not StockItem.objects.filter(merchant_id=merchant_id, sku=goods.sku).exists():
            adjust_stock(
                merchant_id=merchant_id,
                sku=goods.sku,
                title=goods.title,
                delta=goods.stock,
                business_key=f"opening:{goods.sku}",
                reference="opening",
                now=now,
            )
    return merchant_id


def _people(ids: dict[str, UUID], *, now: datetime) -> None:
    known = set(Staff.objects.values_list("user__username", flat=True))
    for role, username, code in PEOPLE:
        if username not in known:
            create_staff(
                username=username,
                password=demo_password(username),
                role=role,
                merchant_id=ids[code] if code else None,
                must_change_password=False,
                now=now,
            )
