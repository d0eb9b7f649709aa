"""The anomaly queue: take one, resolve one, and let time resolve what it has settled."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from kernel.errors import IllegalTransition, InvalidInput, NotFound
from kernel.statemachine import Edge, P, advance
from kernel.transactions import unit_of_work
from orders.models import Anomaly, Order

ASSIGN = {
    source: Edge(Anomaly, "assign", source=source, changes={"owner": P("owner")}, returning=["state"])
    for source in (Anomaly.State.OPEN, Anomaly.State.ASSIGNED)
}
RESOLVE = {
    source: Edge(
        Anomaly,
        "resolve",
        source=source,
        changes={"resolution": P("resolution"), "resolved_at": P("now")},
        returning=["state"],
    )
    for source in (Anomaly.State.OPEN, Anomaly.State.ASSIGNED)
}


class ResolutionMissing(InvalidInput):
    code = "RESOLUTION_MISSING"
    message = _("Say how it was resolved.")


@dataclass(frozen=True)
class AnomalyMoved:
    anomaly_id: UUID
    state: str
    replayed: bool = False


def assign_anomaly(*, anomaly_id: UUID, owner_id: int, now: datetime) -> AnomalyMoved:
    """OPEN or ASSIGNED → ASSIGNED to this login. Raises NotFound, IllegalTransition (resolved)."""
    return _move(ASSIGN, anomaly_id, {"owner": owner_id}, now=now)


def resolve_anomaly(*, anomaly_id: UUID, resolution: str, now: datetime) -> AnomalyMoved:
    """OPEN or ASSIGNED → RESOLVED, with how. Resolved already → replay. Raises NotFound, ResolutionMissing."""
    if not resolution.strip():
        raise ResolutionMissing()
    known = Anomaly.objects.filter(id=anomaly_id, state=Anomaly.State.RESOLVED).first()
    if known is not None:
        return AnomalyMoved(anomaly_id, known.state, replayed=True)
    return _move(RESOLVE, anomaly_id, {"resolution": resolution.strip()[:300], "now": now}, now=now)


def resolve_decided(*, order: Order, kind: str, how: str, now: datetime) -> int:
    """Time settled it (the channel answered, the delivery worked): the open anomalies of this kind are over.

    What a person has taken stays with that person. Returns how many were resolved."""
    waiting = Anomaly.objects.filter(order=order, kind=kind, state=Anomaly.State.OPEN).values_list("id", flat=True)
    resolved = 0
    for anomaly_id in list(waiting):
        with unit_of_work(now=now):
            params = {"resolution": how[:300], "now": now}
            resolved += advance(RESOLVE[Anomaly.State.OPEN], pk=anomaly_id, params=params) is not None
    return resolved


def _move(
    edges: dict[Anomaly.State, Edge], anomaly_id: UUID, params: dict[str, object], *, now: datetime
) -> AnomalyMoved:
    with unit_of_work(now=now):
        for edge in edges.values():
            moved = advance(edge, pk=anomaly_id, params=params)
            if moved is not None:
                return AnomalyMoved(anomaly_id, moved["state"])
        anomaly = Anomaly.objects.filter(id=anomaly_id).first()
        if anomaly is None:
            raise NotFound(anomaly_id=str(anomaly_id))
        raise IllegalTransition(anomaly_id=str(anomaly_id), state=anomaly.state)
