"""Take back what a virtual line granted, for units that were refunded."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from kernel import outbox
from kernel.transactions import unit_of_work
from orders.models import Entitlement


@dataclass(frozen=True)
class EntitlementRevoked:
    """`ordinals` are the units this call took back; empty when nothing was granted or all of them were gone."""

    ordinals: list[int]
    replayed: bool = False


def revoke_entitlement(*, line_id: UUID, ordinals: Sequence[int], reference: str, now: datetime) -> EntitlementRevoked:
    """Joins the caller's transaction. Units that were taken back before, or never granted, are left out: told twice it
    changes nothing twice. Announces `entitlement.revoked`."""
    with unit_of_work(now=now):
        grant = Entitlement.objects.select_for_update().select_related("order").filter(line_id=line_id).first()
        if grant is None:
            return EntitlementRevoked([])
        taken = sorted(set(ordinals) & set(grant.ordinals) - set(grant.revoked_ordinals))
        if not taken:
            return EntitlementRevoked([], replayed=True)
        revoked = sorted({*grant.revoked_ordinals, *taken})
        Entitlement.objects.filter(pk=grant.pk).update(
            revoked_ordinals=revoked, revoked_at=now if len(revoked) == grant.qty else None
        )
        outbox.append(
            name="entitlement.revoked",
            merchant_id=grant.merchant_id,
            subject=grant.order.order_no,
            payload={
                "order_no": grant.order.order_no,
                "entitlement_id": str(grant.pk),
                "sku": grant.sku,
                "ordinals": taken,
                "reference": reference,
            },
            now=now,
        )
        return EntitlementRevoked(taken)
