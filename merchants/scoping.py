"""The one registry of who may see and do what in the back office.

Every model of the product is registered with the path that leads from it to its merchant, and every page with the
roles that open it and the roles behind each of its buttons. What is not registered is denied. The permission
matrix of the tests is generated from here, so a forgotten page or model fails the build.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest

from kernel.admin.reveal import name_for
from merchants import entrance
from merchants.commands.change_staff import confirm_own_password
from merchants.commands.enter_desk import leave_desk
from merchants.commands.record_action import record_action
from merchants.commands.save_filter import forget_filter, save_filter
from merchants.models import SavedFilter, Staff, StaffAction
from merchants.roles import MERCHANT, NOBODY, Role

M = TypeVar("M", bound=Model)
Person = AbstractBaseUser | AnonymousUser


@dataclass(frozen=True)
class Entry:
    """What the registry knows of one model or one page without a model."""

    name: str
    model: type[Model] | None
    path: str | None
    reason: str
    view: frozenset[Role]
    actions: Mapping[str, frozenset[Role]] = field(default_factory=dict)


_ENTRIES: dict[str, Entry] = {}


def register(
    model: type[Model],
    *,
    path: str | None = "merchant",
    reason: str = "",
    view: Iterable[Role] = NOBODY,
    actions: Mapping[str, Iterable[Role]] | None = None,
) -> None:
    """Register a model: the lookup `path` from a row to its merchant ("merchant", "order__merchant", …), the roles
    that see its list and page, the roles per button. `path=None` says that rows belong to no merchant, and
    `reason` says why; merchant roles then never see them."""
    if path is None and not reason:
        raise ValueError(f"{model.__name__}: a model without a path to its merchant needs a reason")
    _add(Entry(model._meta.label_lower, model, path, reason, frozenset(view), _frozen(actions)))


def register_page(name: str, *, view: Iterable[Role], actions: Mapping[str, Iterable[Role]] | None = None) -> None:
    """Register a page that shows no single model: a dashboard, a search, a replay."""
    _add(Entry(name, None, None, "page", frozenset(view), _frozen(actions)))


def _frozen(actions: Mapping[str, Iterable[Role]] | None) -> dict[str, frozenset[Role]]:
    return {name: frozenset(roles) for name, roles in (actions or {}).items()}


def _add(entry: Entry) -> None:
    if _ENTRIES.setdefault(entry.name, entry) is not entry:
        raise ValueError(f"{entry.name} is registered twice")


def entries() -> list[Entry]:
    """Everything registered, by name."""
    return sorted(_ENTRIES.values(), key=lambda entry: entry.name)


def entry_of(page: str | type[Model]) -> Entry | None:
    """The entry of a model, or of a page by its name."""
    return _ENTRIES.get(page if isinstance(page, str) else page._meta.label_lower)


def staff_of(user: Person) -> Staff | None:
    """The staff row behind a login, if it may work now: an active login, and an active merchant in merchant roles."""
    if not user.is_authenticated or not user.is_active:
        return None
    try:
        staff: Staff = user.staff  # type: ignore[attr-defined]
    except (ObjectDoesNotExist, AttributeError):
        return None
    if staff.merchant is not None and not staff.merchant.is_active:
        return None
    return staff


def may(user: Person, page: str | type[Model], action: str = "view") -> bool:
    """Whether the person's role opens the page, or presses this button on it."""
    staff, entry = staff_of(user), entry_of(page)
    if staff is None or entry is None:
        return False
    if action == "view":
        return staff.role in entry.view
    return staff.role in entry.actions.get(action, NOBODY)


def visible(user: Person, queryset: QuerySet[M]) -> QuerySet[M]:
    """The rows of a queryset that the person may see: all for the house, their own merchant's for merchant roles."""
    staff, entry = staff_of(user), entry_of(queryset.model)
    if staff is None or entry is None:
        return queryset.none()
    if staff.role not in MERCHANT:
        return queryset
    if entry.path is None or staff.merchant_id is None:
        return queryset.none()
    return queryset.filter(**{entry.path: staff.merchant_id})


def get_or_404(user: Person, queryset: QuerySet[M], **lookup: Any) -> M:
    """The one visible row of the lookup. Another merchant's row does not exist."""
    try:
        return visible(user, queryset).get(**lookup)
    except (ObjectDoesNotExist, ValueError) as error:
        raise Http404 from error


def require(user: Person, page: str | type[Model], action: str = "view") -> None:
    """Raises PermissionDenied unless the person may."""
    if not may(user, page, action):
        raise PermissionDenied


def merchant_id_of(row: Model) -> UUID | None:
    """The merchant a row belongs to, by the registered path."""
    entry = entry_of(type(row))
    if entry is None or entry.path is None:
        return None
    value: Any = row
    for step in entry.path.split("__"):
        if value is None:
            return None
        value = getattr(value, step)
    return value.pk if isinstance(value, Model) else value


class Policy:
    """The registry as the admin site of the kernel asks for it (kernel.admin.policy.AccessPolicy)."""

    def admits(self, user: Person) -> bool:
        return staff_of(user) is not None

    def may(self, user: Person, page: str | type[Model], action: str = "view") -> bool:
        return may(user, page, action)

    def visible(self, user: Person, queryset: QuerySet[M]) -> QuerySet[M]:
        return visible(user, queryset)

    def merchant_id_of(self, row: Model) -> UUID | None:
        return merchant_id_of(row)

    def merchant_of(self, user: Person) -> UUID | None:
        staff = staff_of(user)
        return staff.merchant_id if staff else None

    def role_of(self, user: Person) -> str:
        staff = staff_of(user)
        return staff.role if staff else ""

    def personal_of(self, user: Person) -> str:
        """How personal data is shown: merchants see their own buyers, finance and the platform never, the rest
        see a mask that a logged reveal lifts."""
        role = self.role_of(user)
        if role in MERCHANT:
            return "plain"
        if role in {Role.CUSTOMER_SERVICE, Role.OPERATIONS, Role.AUDITOR}:
            return "masked"
        return "hidden"

    def zone_of(self, user: Person) -> ZoneInfo:
        staff = staff_of(user)
        if staff is not None and staff.merchant is not None:
            return ZoneInfo(staff.merchant.timezone)
        return ZoneInfo(settings.TIME_ZONE)

    def headline_of(self, user: Person) -> str:
        """What stands under the product's name: the merchant, or the role."""
        staff = staff_of(user)
        if staff is None:
            return ""
        return str(staff.merchant.name if staff.merchant else Role(staff.role).label)

    def duty(self, request: HttpRequest, *, now: datetime) -> str:
        return entrance.duty(request, staff_of(request.user), now=now)

    def left(self, request: HttpRequest, *, now: datetime) -> None:
        leave_desk(session_key=request.session.session_key or "", now=now)

    def password_changed(self, request: HttpRequest, *, now: datetime) -> None:
        staff = staff_of(request.user)
        if staff is not None:
            confirm_own_password(staff_id=staff.pk, now=now)
            self.record(request, action="password_changed", subject=staff, now=now)

    def filters_of(self, user: Person, page: str) -> list[tuple[str, str, str]]:
        """(id, name, query) of the lists that the person keeps."""
        staff = staff_of(user)
        rows = SavedFilter.objects.filter(staff=staff, page=page) if staff else SavedFilter.objects.none()
        return [(str(row.pk), row.label, row.query) for row in rows]

    def save_filter(self, user: Person, *, page: str, label: str, query: str, now: datetime) -> None:
        staff = staff_of(user)
        if staff is not None:
            save_filter(staff_id=staff.pk, page=page, label=label, query=query, now=now)

    def forget_filter(self, user: Person, *, filter_id: UUID, now: datetime) -> None:
        staff = staff_of(user)
        if staff is not None:
            forget_filter(staff_id=staff.pk, filter_id=filter_id, now=now)

    def last_change(self, row: Model) -> tuple[str, datetime] | None:
        """Who of the staff did something to this row last, and when."""
        done = StaffAction.objects.filter(
            subject_type=row._meta.label_lower, subject_id=str(row.pk), outcome="done"
        ).exclude(action__in=["reveal", "export"])
        return done.order_by("-id").values_list("username", "at").first()

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
    ) -> None:
        """Write down who did what, when, from where, before and after."""
        staff = staff_of(request.user)
        if staff is None:
            return
        record_action(
            staff=staff,
            action=action,
            subject_type=subject_type or (subject._meta.label_lower if subject is not None else ""),
            subject_id=str(subject.pk) if subject is not None else "",
            subject_label=name_for(subject, "masked") if subject is not None else "",
            merchant_id=merchant_id_of(subject) if subject is not None else None,
            outcome=outcome,
            before=before or {},
            after=after or {},
            detail=detail or {},
            address=entrance.address_of(request),
            user_agent=request.META.get("HTTP_USER_AGENT", ""),
            now=now,
        )
