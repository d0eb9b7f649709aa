"""Typed refusals: a stable code, a message for people, data for programs, an HTTP status for the edge."""

from datetime import datetime
from typing import Any, ClassVar

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


class Refusal(Exception):
    """A command said no and wrote nothing. Subclasses live beside the command that raises them.

    `data` goes to the caller (problem+json "data"), so it never holds a secret.
    """

    code: ClassVar[str] = "REFUSED"
    status: ClassVar[int] = 409
    message: ClassVar[str | Promise] = _("The request was refused.")

    def __init__(self, **data: Any) -> None:
        super().__init__(self.code)
        self.data = data

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def leave_evidence(self, *, now: datetime) -> None:
        """Write the row that proves this refusal. Called after the rollback, in a transaction of its own."""


class NotFound(Refusal):
    code = "NOT_FOUND"
    status = 404
    message = _("There is no such object.")


class InvalidInput(Refusal):
    code = "INVALID_INPUT"
    status = 400
    message = _("The request is not valid.")


class PermissionRefused(Refusal):
    code = "PERMISSION_DENIED"
    status = 403
    message = _("You may not do this.")


class IllegalTransition(Refusal):
    code = "ILLEGAL_TRANSITION"
    message = _("This is not possible in the present state.")


class VersionConflict(Refusal):
    code = "VERSION_CONFLICT"
    message = _("Someone else changed this a moment ago. Reload and look again.")


class IdempotencyKeyReused(Refusal):
    code = "IDEMPOTENCY_KEY_REUSED"
    status = 422
    message = _("This idempotency key was used for another request.")


class StillInProgress(Refusal):
    code = "STILL_IN_PROGRESS"
    message = _("A request with the same idempotency key is still in progress.")


class ServiceAway(Refusal):
    code = "SERVICE_AWAY"
    status = 503
    message = _("A service this request needs is away. Try again shortly.")


_BY_CONSTRAINT: dict[str, type[Refusal]] = {}


def refuse_on_constraint(name: str, refusal: type[Refusal]) -> None:
    """Let a violation of the named database constraint leave a command as this refusal instead of a crash."""
    if _BY_CONSTRAINT.setdefault(name, refusal) is not refusal:
        raise ValueError(f"constraint {name} already refuses as {_BY_CONSTRAINT[name].__name__}")


def refusal_for_constraint(name: str | None) -> type[Refusal] | None:
    """The refusal registered for a constraint's name, if any."""
    return _BY_CONSTRAINT.get(name or "")
