"""What the frame asks about people. The answers live one floor up, in merchants.scoping."""

from datetime import datetime
from typing import Any, Literal, Protocol, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db.models import Model, QuerySet
from django.http import HttpRequest

M = TypeVar("M", bound=Model)
Person = AbstractBaseUser | AnonymousUser


class AccessPolicy(Protocol):
    """Who may come in, see what, press what; and where it is written down."""

    def admits(self, user: Person) -> bool: ...
    def may(self, user: Person, page: str | type[Model], action: str = "view") -> bool: ...
    def visible(self, user: Person, queryset: QuerySet[M]) -> QuerySet[M]: ...
    def merchant_id_of(self, row: Model) -> UUID | None: ...
    def merchant_of(self, user: Person) -> UUID | None: ...
    def role_of(self, user: Person) -> str: ...
    def personal_of(self, user: Person) -> str: ...
    def zone_of(self, user: Person) -> ZoneInfo: ...
    def headline_of(self, user: Person) -> str: ...
    def duty(self, request: HttpRequest, *, now: datetime) -> str: ...
    def left(self, request: HttpRequest, *, now: datetime) -> None: ...
    def password_changed(self, request: HttpRequest, *, now: datetime) -> None: ...
    def filters_of(self, user: Person, page: str) -> list[tuple[str, str, str]]: ...
    def save_filter(self, user: Person, *, page: str, label: str, query: str, now: datetime) -> None: ...
    def forget_filter(self, user: Person, *, filter_id: UUID, now: datetime) -> None: ...
    def last_change(self, row: Model) -> tuple[str, datetime] | None: ...
    def record(
        self,
        request: HttpRequest,
        *,
        action: str,
        subject: Model | None,
        subject_type: str = "",
        outcome: str = "done",
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
        detail: dict[str, Any] | None = None,
        now: datetime,
    ) -> None: ...


class DenyAll:
    """The policy until a real one is plugged in: nobody, nothing."""

    def admits(self, user: Person) -> bool:
        return False

    def may(self, user: Person, page: str | type[Model], action: str = "view") -> bool:
        return False

    def visible(self, user: Person, queryset: QuerySet[M]) -> QuerySet[M]:
        return queryset.none()

    def merchant_id_of(self, row: Model) -> UUID | None:
        return None

    def merchant_of(self, user: Person) -> UUID | None:
        return None

    def role_of(self, user: Person) -> str:
        return ""

    def personal_of(self, user: Person) -> Literal["hidden"]:
        return "hidden"

    def zone_of(self, user: Person) -> ZoneInfo:
        return ZoneInfo("Asia/Shanghai")

    def headline_of(self, user: Person) -> str:
        return ""

    def duty(self, request: HttpRequest, *, now: datetime) -> str:
        return ""

    def left(self, request: HttpRequest, *, now: datetime) -> None:
        return None

    def password_changed(self, request: HttpRequest, *, now: datetime) -> None:
        raise PermissionError("no access policy is plugged in")

    def filters_of(self, user: Person, page: str) -> list[tuple[str, str, str]]:
        return []

    def save_filter(self, user: Person, *, page: str, label: str, query: str, now: datetime) -> None:
        raise PermissionError("no access policy is plugged in")

    def forget_filter(self, user: Person, *, filter_id: UUID, now: datetime) -> None:
        raise PermissionError("no access policy is plugged in")

    def last_change(self, row: Model) -> None:
        return None

    def record(self, request: HttpRequest, **facts: Any) -> None:
        raise PermissionError("no access policy is plugged in")
