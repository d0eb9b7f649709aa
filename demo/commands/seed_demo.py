"""Fill an empty installation with two shops and what happened in them during a week."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from django.conf import settings

from aftersales.models import AfterSalesOrder
from demo.access import demo_password
from demo.accounts import ensure_account
from demo.catalogue import HOME, NUTS, PEOPLE
from demo.commands.found_shop import found_shop
from demo.shop import Shop, answering, in_the_past
from demo.stories import STORIES, Week
from kernel import idempotency
from kernel.clock import channel_day
from kernel.idempotency import business_key
from kernel.transactions import unit_of_work
from merchants.commands.create_staff import create_staff
from merchants.models import Staff
from orders.models import Order
from payments.simulator.client import SimulatorClient
from reconciliation.commands.reconcile_day import reconcile_day

FRONTS = (NUTS, HOME)
DAYS = 6
"""So many days before today are reconciled."""


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
    simulator = answering(simulator_url)
    began = now - timedelta(days=DAYS + 2)
    ids = {front.code: found_shop(front=front, now=began).merchant_id for front in FRONTS}
    _people(ids, now=began)
    for number, front in enumerate(FRONTS):
        for channel in front.channels:
            ensure_account(
                merchant_id=ids[front.code],
                channel=channel,
                number=number,
                name=front.name,
                state=state or settings.QUITS_VAR / "simulator",
                base_url=simulator_url or "http://127.0.0.1:9",
                now=began,
            )
    shops = {front.code: Shop(merchant_id=ids[front.code], code=front.code, simulator=simulator) for front in FRONTS}
    week = Week(yunwu=shops["yunwu"], muli=shops["muli"], now=now)
    fresh = _tell(week, simulator)
    return Seeded(orders=Order.objects.count(), claims=AfterSalesOrder.objects.count(), replayed=not fresh)


def _tell(week: Week, simulator: SimulatorClient | None) -> bool:
    untold = [tell for tell in STORIES if not _is_told(week.yunwu.merchant_id, tell.__name__)]
    if not untold:
        return False
    with in_the_past(simulator) if simulator is not None else nullcontext():
        for tell in untold:
            tell(week)
            _remember(week.yunwu.merchant_id, tell.__name__, now=week.now)
        if simulator is not None:
            today = channel_day(week.now)
            for back in range(DAYS, 0, -1):
                noon = week.day(back - 1, 13, 5)
                reconcile_day(on_date=today - timedelta(days=back), now=min(noon, week.now))
    return True


def _key(merchant_id: UUID, name: str) -> idempotency.BusinessKey:
    return business_key(merchant_id=merchant_id, key=f"demo:story:{name}")


def _is_told(merchant_id: UUID, name: str) -> bool:
    return idempotency.find(_key(merchant_id, name), Told) is not None


def _remember(merchant_id: UUID, name: str, *, now: datetime) -> None:
    with unit_of_work(now=now):
        idempotency.begin(_key(merchant_id, name), Told, now=now)
        idempotency.finish(_key(merchant_id, name), Told(name))


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
