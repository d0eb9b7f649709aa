"""Return policies: a draft version is written, looked at, published; a published version never changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Max

from coupons.models import ReturnPolicy
from coupons.return_policy import complete_rules
from kernel.errors import IllegalTransition, NotFound, VersionConflict, refuse_on_constraint
from kernel.transactions import unit_of_work

refuse_on_constraint("return_policy_version_is_one_row", VersionConflict)


@dataclass(frozen=True)
class PolicyVersion:
    """One version of a return policy."""

    policy_id: UUID
    code: str
    version: int
    published: bool


def create_policy(
    *, merchant_id: UUID, code: str, rules: Mapping[str, Any], now: datetime, actor: str = "system"
) -> PolicyVersion:
    """The next version of a policy, as a draft. Raises InvalidInput for rules that say nothing known."""
    complete = complete_rules(rules)
    with unit_of_work(now=now):
        last = ReturnPolicy.objects.filter(merchant_id=merchant_id, code=code).aggregate(last=Max("version"))["last"]
        policy = ReturnPolicy.objects.create(
            merchant_id=merchant_id,
            code=code,
            version=(last or 0) + 1,
            rules=complete,
            created_by=actor,
            created_at=now,
        )
    return PolicyVersion(policy.pk, code, policy.version, published=False)


def publish_policy(*, merchant_id: UUID, policy_id: UUID, now: datetime) -> PolicyVersion:
    """A draft becomes the version that coupons issued from now on carry; no earlier decision changes.

    Raises NotFound, and IllegalTransition when it is published already or a later version is.
    """
    with unit_of_work(now=now):
        policy = ReturnPolicy.objects.filter(pk=policy_id, merchant_id=merchant_id).first()
        if policy is None:
            raise NotFound()
        later = ReturnPolicy.objects.filter(
            merchant_id=merchant_id, code=policy.code, version__gt=policy.version, published_at__isnull=False
        )
        changed = 0
        if not later.exists():
            drafts = ReturnPolicy.objects.filter(pk=policy_id, published_at=None)
            changed = drafts.update(published_at=now)
        if not changed:
            raise IllegalTransition(version=policy.version)
    return PolicyVersion(policy.pk, policy.code, policy.version, published=True)


def get_published(*, merchant_id: UUID, code: str) -> ReturnPolicy | None:
    """The policy version in force for coupons issued now."""
    return (
        ReturnPolicy.objects.filter(merchant_id=merchant_id, code=code, published_at__isnull=False)
        .order_by("-version")
        .first()
    )
