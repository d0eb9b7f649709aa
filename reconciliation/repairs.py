"""Repairs: ordinary commands of the other apps, called with the finding's id as their business key.

A repair never edits a row itself. It may talk to a channel, so it runs outside any transaction; it may be
called again after a crash, and then changes nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kernel.idempotency import BusinessKey, business_key
from reconciliation.models import Finding


@dataclass(frozen=True, kw_only=True)
class Repair:
    """`run(finding, now)` returns what it did, for the finding's history."""

    name: str
    title: Any
    run: Callable[[Finding, datetime], dict[str, Any]]


_REPAIRS: dict[str, Repair] = {}


def register(*, name: str, title: Any) -> Callable[[Callable[[Finding, datetime], dict[str, Any]]], Any]:
    """Register the decorated function as the repair `name`, which rules refer to."""

    def decorate(run: Callable[[Finding, datetime], dict[str, Any]]) -> Any:
        if name in _REPAIRS:
            raise ValueError(f"repair {name} is registered twice")
        _REPAIRS[name] = Repair(name=name, title=title, run=run)
        return run

    return decorate


def repair_named(name: str) -> Repair | None:
    return _REPAIRS.get(name)


def key_of(finding: Finding, **parts: Any) -> BusinessKey:
    """The business key of a repair: the finding, and which of its lives (it may be opened again)."""
    assert finding.merchant_id is not None
    return business_key(merchant_id=finding.merchant_id, key=f"finding:{finding.pk}:{finding.times_opened}", **parts)
