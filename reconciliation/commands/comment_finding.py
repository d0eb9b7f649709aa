"""Say something about a finding."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext_lazy as _

from kernel.errors import NotFound, Refusal
from kernel.transactions import unit_of_work
from reconciliation.models import Finding, FindingComment


class NothingSaid(Refusal):
    code = "NOTHING_SAID"
    status = 400
    message = _("Write a text.")


@dataclass(frozen=True)
class Commented:
    comment_id: int
    replayed: bool = False


def comment_finding(*, finding_id: uuid.UUID, author_id: int, text: str, now: datetime) -> Commented:
    """Append a comment; the finding itself does not change. Raises NothingSaid, NotFound."""
    if not text.strip():
        raise NothingSaid
    with unit_of_work(now=now):
        if not Finding.objects.filter(pk=finding_id).exists():
            raise NotFound
        comment = FindingComment.objects.create(
            finding_id=finding_id, kind="comment", author_id=author_id, text=text.strip(), created_at=now
        )
    return Commented(comment_id=comment.pk)
