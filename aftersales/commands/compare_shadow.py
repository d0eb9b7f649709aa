"""Run the second algorithm beside the live one and keep what differs. Only the live one has effect."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import connection

from aftersales.algorithms import ALGORITHMS
from aftersales.amounts import goods_entitlement
from aftersales.drafts import Draft, frozen_line
from aftersales.models import AfterSalesSettings, ShadowDifference
from kernel import clock
from kernel.transactions import unit_of_work


@dataclass(frozen=True)
class ShadowCompared:
    calculations: int
    differences: int


def compare_shadow(
    *, settings: AfterSalesSettings, order_no: str, drafts: Iterable[Draft], step: str, now: datetime
) -> ShadowCompared:
    """One count per calculation, one row per difference. Joins the caller's transaction; nothing when it is off."""
    shadow = settings.shadow_algorithm
    if not shadow or shadow not in ALGORITHMS:
        return ShadowCompared(0, 0)
    calculations, differing = 0, []
    for draft in drafts:
        calculations += 1
        live = draft.entitlement
        second = goods_entitlement(
            line=replace(frozen_line(draft.line), algorithm=shadow),
            ordinals=[unit.ordinal for unit in live.units],
            freight_refundable=live.freight_fen > 0,
            earlier_fen={unit.ordinal: min(unit.earlier_fen, draft.line.net_fen) for unit in live.units},
            strict=False,
        )
        if second.total_fen != live.total_fen:
            differing.append((draft, second.total_fen))
    with unit_of_work(now=now):
        _count(settings, live=settings.algorithm, calculations=calculations, differences=len(differing), now=now)
        ShadowDifference.objects.bulk_create(
            ShadowDifference(
                merchant_id=settings.merchant_id,
                order_no=order_no,
                line_no=draft.line.line_no,
                step=step,
                live=settings.algorithm,
                shadow=shadow,
                ordinals=[unit.ordinal for unit in draft.entitlement.units],
                live_fen=draft.entitlement.total_fen,
                shadow_fen=fen,
                inputs={
                    "net_fen": draft.line.net_fen,
                    "freight_share_fen": draft.line.freight_share_fen,
                    "qty": draft.line.qty,
                },
                created_at=now,
            )
            for draft, fen in differing
        )
    return ShadowCompared(calculations, len(differing))


def _count(settings: AfterSalesSettings, *, live: str, calculations: int, differences: int, now: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO shadow_day AS d (merchant_id, live, shadow, on_date, calculations, differences)
            VALUES (%s, %s, %s, %s, %s, %s)
            ON CONFLICT (merchant_id, live, shadow, on_date) DO UPDATE
                SET calculations = d.calculations + excluded.calculations,
                    differences = d.differences + excluded.differences
            """,
            [settings.merchant_id, live, settings.shadow_algorithm, clock.channel_day(now), calculations, differences],
        )
