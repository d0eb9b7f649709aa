"""What the dashboard, the navigation and the search show: registered by the apps, filtered by role on reading."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import Model, QuerySet
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.http import urlencode

from kernel.admin.policy import AccessPolicy, Person

M = TypeVar("M", bound=Model)
Text = str | Promise

CAP = 1000
"""Counts on the dashboard stop here ("1000+"), so that a million waiting rows cost no more than a thousand."""


@dataclass(frozen=True)
class Scope:
    """The eyes of one person at one moment: what queries of the dashboard may look at."""

    user: Person
    policy: AccessPolicy
    now: datetime
    zone: ZoneInfo
    merchant_id: UUID | None

    def of(self, model: type[M]) -> QuerySet[M]:
        """The rows of a model that this person may see."""
        return self.policy.visible(self.user, model._default_manager.all())

    @property
    def role(self) -> str:
        return self.policy.role_of(self.user)

    @property
    def today_start(self) -> datetime:
        """Midnight of today in the person's zone."""
        return self.now.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)


@dataclass(frozen=True)
class Link:
    """Where a figure leads: a URL name and the filters of the list behind it."""

    url: str
    params: tuple[tuple[str, str], ...] = ()

    def resolve(self) -> str:
        path = reverse(self.url)
        return f"{path}?{urlencode(self.params)}" if self.params else path


@dataclass(frozen=True)
class Waiting:
    name: str
    label: Text
    query: Callable[[Scope], int]
    link: Link
    page: str | type[Model]
    action: str
    icon: str
    hint: Text
    order: int


@dataclass(frozen=True)
class Figure:
    name: str
    label: Text
    query: Callable[[Scope], int]
    link: Link | None
    page: str | type[Model]
    format: Literal["count", "money", "permille"]
    order: int


@dataclass(frozen=True)
class NavigationItem:
    name: str
    group: Text
    label: Text
    link: Link
    page: str | type[Model]
    icon: str
    order: int


class Hit(NamedTuple):
    """One answer of the search box."""

    title: str
    hint: str
    url: str


@dataclass(frozen=True)
class Search:
    name: str
    find: Callable[[Scope, str], Iterable[Hit]]
    page: str | type[Model]


_WAITING: dict[str, Waiting] = {}
_FIGURES: dict[str, Figure] = {}
_NAVIGATION: dict[str, NavigationItem] = {}
_SEARCHES: dict[str, Search] = {}


def capped(queryset: QuerySet[Any], cap: int = CAP) -> int:
    """Count up to cap + 1 rows and no further. More than the cap is shown as "cap+"."""
    return queryset.order_by()[: cap + 1].count()


def register_waiting(
    name: str,
    label: Text,
    query: Callable[[Scope], int],
    url: str,
    *,
    page: str | type[Model],
    action: str = "view",
    params: dict[str, str] | None = None,
    icon: str = "pending_actions",
    hint: Text = "",
    order: int = 100,
) -> None:
    """Something that waits for whoever may press `action` on `page`: how many, and the list behind it."""
    link = Link(url, tuple((params or {}).items()))
    _WAITING[name] = Waiting(name, label, query, link, page, action, icon, hint, order)


def register_figure(
    name: str,
    label: Text,
    query: Callable[[Scope], int],
    *,
    page: str | type[Model],
    url: str = "",
    params: dict[str, str] | None = None,
    format: Literal["count", "money", "permille"] = "count",
    order: int = 100,
) -> None:
    """A figure of today for whoever may view `page`."""
    link = Link(url, tuple((params or {}).items())) if url else None
    _FIGURES[name] = Figure(name, label, query, link, page, format, order)


def register_navigation(
    name: str,
    *,
    group: Text,
    label: Text,
    url: str,
    page: str | type[Model],
    icon: str = "list",
    params: dict[str, str] | None = None,
    order: int = 100,
) -> None:
    """A line of the sidebar for whoever may view `page`. Groups stand in the order of their lowest item."""
    _NAVIGATION[name] = NavigationItem(name, group, label, Link(url, tuple((params or {}).items())), page, icon, order)


def register_search(name: str, find: Callable[[Scope, str], Iterable[Hit]], *, page: str | type[Model]) -> None:
    """A kind of object that the search box finds, for whoever may view `page`."""
    _SEARCHES[name] = Search(name, find, page)


def waiting_for(scope: Scope) -> list[Waiting]:
    """What may wait for this person, in order."""
    mine = [item for item in _WAITING.values() if scope.policy.may(scope.user, item.page, item.action)]
    return sorted(mine, key=lambda item: (item.order, item.name))


def figures_for(scope: Scope) -> list[Figure]:
    """Today's figures for this person, in order."""
    mine = [item for item in _FIGURES.values() if scope.policy.may(scope.user, item.page)]
    return sorted(mine, key=lambda item: (item.order, item.name))


def navigation_for(policy: AccessPolicy, user: Person) -> list[tuple[Text, list[NavigationItem]]]:
    """The sidebar of this person: groups with their items."""
    mine = [item for item in _NAVIGATION.values() if policy.may(user, item.page)]
    mine.sort(key=lambda item: (item.order, item.name))
    groups: dict[str, tuple[Text, list[NavigationItem]]] = {}
    for item in mine:
        groups.setdefault(str(item.group), (item.group, []))[1].append(item)
    return list(groups.values())


def place_of(page: str | type[Model]) -> Text:
    """What the sidebar calls a page, or "" when it is not there."""
    return next((item.label for item in _NAVIGATION.values() if item.page == page), "")


def search(scope: Scope, term: str, limit: int = 20) -> list[Hit]:
    """Everything this person may see that answers to the term."""
    hits: list[Hit] = []
    for item in sorted(_SEARCHES.values(), key=lambda item: item.name):
        if scope.policy.may(scope.user, item.page):
            hits.extend(item.find(scope, term))
    return hits[:limit]
