"""How every after-sales command moves the order: one edge, one log line, one event, in one statement."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from aftersales.actors import By
from aftersales.models import Actor, AfterSalesLog, AfterSalesOrder, Status
from kernel.errors import IllegalTransition, Refusal, VersionConflict
from kernel.statemachine import Carry, Edge, Emit, Insert, New, P, Sql, Touch, advance, edges_of


class InArbitration(IllegalTransition):
    code = "IN_ARBITRATION"
    message = _("Arbitration is open; nobody audits, cancels or rejects meanwhile.")


def declare(
    method: str,
    *,
    source: Status | None = None,
    event: str,
    changes: Mapping[str, Any] | None = None,
    guards: Mapping[str, Any] | None = None,
    writes: Sequence[Insert | Touch | Carry] = (),
    during_dispute: bool = False,
    by_number: bool = False,
    returning: Sequence[str] = (),
    evidence: Any = P("evidence"),  # noqa: B008 (frozen)
) -> Edge:
    """An edge of the after-sales order, guarded by merchant, version and the types its FSM declaration names.

    The log line and the event belong to it and cannot be forgotten. `move` binds the parameters. `by_number`: the
    row is found by merchant and after-sales number.
    """
    start = source or _only_source(method)
    target = edges_of(AfterSalesOrder, method)[str(start)]
    types = sorted(getattr(AfterSalesOrder, method)._django_fsm.transitions[start].custom["types"])
    final = {"finished_at": P("now")} if target in Status.final() else {}
    return Edge(
        AfterSalesOrder,
        method,
        source=source,
        guards={
            "version": P("expected_version"),
            "merchant_id": P("merchant_id"),
            **({"after_sales_no": P("after_sales_no")} if by_number else {}),
            "types": Sql(f"t.type IN ({', '.join(str(int(kind)) for kind in types)})"),
            **({} if during_dispute else {"is_disputed": False}),
            **(guards or {}),
        },
        changes={
            "version": Sql("t.version + 1"),
            "updated_at": P("now"),
            "due_at": None if final else P("due_at"),
            "due_left_seconds": None,
            **final,
            **(changes or {}),
        },
        writes=[
            Insert(
                AfterSalesLog,
                {
                    "after_sales": New("id"),
                    "type": New("type"),
                    "command": method,
                    "from_version": Sql("u.version - 1"),
                    "from_status": str(start),
                    "to_version": New("version"),
                    "to_status": New("status"),
                    "actor_kind": P("actor_kind"),
                    "actor_id": P("actor_id"),
                    "reason": P("reason"),
                    "evidence": evidence,
                    "created_at": P("now"),
                },
            ),
            *writes,
        ],
        emit=Emit(
            event,
            subject=New("after_sales_no"),
            payload={
                "after_sales_no": New("after_sales_no"),
                "order_no": New("order_no"),
                "type": New("type"),
                "status": New("status"),
                "version": New("version"),
            },
        ),
        returning=["status", "version", *returning],
        found_by_guards=by_number,
    )


def move(
    edge: Edge,
    claim: AfterSalesOrder,
    *,
    expected_version: int,
    by: By,
    now: datetime,
    due_at: datetime | None = None,
    reason: str = "",
    evidence: dict[str, Any] | None = None,
    **params: Any,
) -> int:
    """Make the move and return the new version, or say why not (and write nothing).

    Raises VersionConflict, IllegalTransition or InArbitration.
    """
    row = advance(
        edge,
        pk=claim.pk,
        params={
            "merchant_id": claim.merchant_id,
            "expected_version": expected_version,
            "due_at": due_at,
            "actor_kind": by.kind,
            "actor_id": by.id,
            "reason": reason,
            "evidence": evidence or {},
            "now": now,
            **params,
        },
    )
    if row is None:
        raise why_not(claim.pk, expected_version=expected_version)
    return int(row["version"])


class ChangedMeanwhile(VersionConflict):
    """Says who was there first, for people who look at a page that is no longer true."""

    def __init__(self, **data: Any) -> None:
        super().__init__(**data)
        if data.get("changed_by"):
            self.message = _("Changed by %(who)s a moment ago. Reload and look again.") % {"who": data["changed_by"]}  # type: ignore[misc, assignment]


@contextmanager
def blaming_the_state(edge: Edge, claim_id: UUID, *, expected_version: int) -> Iterator[None]:
    """The line's guards come first in the order of locks. When one refuses although the claim could not have moved
    anyway (somebody else was there), that is what the caller has to hear.
    """
    try:
        yield
    except Refusal as refusal:
        now_is = AfterSalesOrder.objects.get(pk=claim_id)
        if now_is.version != expected_version or now_is.status != _source_of(edge) or now_is.is_disputed:
            raise why_not(claim_id, expected_version=expected_version) from refusal
        raise


def _source_of(edge: Edge) -> Status:
    return edge.source or _only_source(edge.method)


def _only_source(method: str) -> Status:
    (source,) = edges_of(AfterSalesOrder, method)
    return Status(source)


def why_not(claim_id: UUID, *, expected_version: int) -> IllegalTransition | VersionConflict:
    """The refusal that fits the row as it is now, with who changed it last."""
    now_is = AfterSalesOrder.objects.get(pk=claim_id)
    data = {
        "after_sales_no": now_is.after_sales_no,
        "status": now_is.status,
        "version": now_is.version,
    }
    if now_is.version != expected_version:
        since = now_is.log.filter(to_version__gt=expected_version).order_by("-to_version").first()
        return ChangedMeanwhile(**data, expected_version=expected_version, changed_by=_name_of(since))
    if now_is.is_disputed:
        return InArbitration(**data)
    return IllegalTransition(**data)


def _name_of(line: AfterSalesLog | None) -> str:
    """A colleague by name; a buyer only as what they are, because not everybody may read who it is."""
    if line is None:
        return ""
    known = line.actor_id if line.actor_kind != Actor.BUYER else ""
    return known or str(line.get_actor_kind_display())
