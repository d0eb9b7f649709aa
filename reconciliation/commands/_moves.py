"""The one move that all commands on a finding share: edge + version + what was said, in one statement."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kernel.errors import IllegalTransition, NotFound, VersionConflict
from kernel.statemachine import Edge, Insert, New, P, Sql, advance, edges_of
from reconciliation.models import Finding, FindingComment


@dataclass(frozen=True)
class FindingMoved:
    finding_id: uuid.UUID
    state: str
    version: int
    replayed: bool = False


Edges = Mapping[str, Edge]


def finding_edges(transition: str, *, says: str, changes: Mapping[str, Any] | None = None) -> Edges:
    """The edges of one transition of the finding's graph, by source; each leaves a comment of kind `says`.

    Parameters of the compiled edges: expected_version, author_id, text, data, now, and what `changes` uses.
    """
    return {
        source: _edge(transition, source=source, says=says, changes=changes or {})
        for source in edges_of(Finding, transition)
    }


def _edge(transition: str, *, source: str, says: str, changes: Mapping[str, Any]) -> Edge:
    return Edge(
        Finding,
        transition,
        source=source,
        guards={"version": P("expected_version")},
        changes={**changes, "version": Sql("t.version + 1")},
        writes=[
            Insert(
                FindingComment,
                {
                    "finding_id": New("id"),
                    "kind": says,
                    "author_id": P("author_id"),
                    "text": P("text"),
                    "data": P("data"),
                    "created_at": P("now"),
                },
            )
        ],
        returning=["state", "version"],
    )


def move_finding(
    edges: Edges,
    *,
    finding_id: uuid.UUID,
    expected_version: int,
    author_id: int | None,
    text: str,
    now: datetime,
    data: Mapping[str, Any] | None = None,
    **changes: Any,
) -> FindingMoved:
    """Make the move, or say why not. Joins the caller's transaction.

    Raises NotFound, VersionConflict (someone else was faster), IllegalTransition.
    """
    found = Finding.objects.filter(pk=finding_id).values("state", "version").first()
    if found is None:
        raise NotFound
    if found["version"] != expected_version:
        raise VersionConflict(expected=expected_version, actual=found["version"])
    if found["state"] not in edges:
        raise IllegalTransition(state=found["state"])
    row = advance(
        edges[found["state"]],
        pk=finding_id,
        params={
            "expected_version": expected_version,
            "author_id": author_id,
            "text": text,
            "data": dict(data or {}),
            "now": now,
            **changes,
        },
    )
    if row is None:
        actual = Finding.objects.values_list("version", flat=True).get(pk=finding_id)
        raise VersionConflict(expected=expected_version, actual=actual)
    return FindingMoved(finding_id=finding_id, state=row["state"], version=row["version"])
