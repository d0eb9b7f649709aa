"""Who moved an order, as its status log says it."""

from dataclasses import dataclass

from orders.models import OrderStatusLog

Kind = OrderStatusLog.ActorKind


@dataclass(frozen=True, slots=True)
class Actor:
    """A kind and a name: a user id, a login, a channel, or a part of the system."""

    kind: str
    name: str = ""


SYSTEM = Actor(Kind.SYSTEM)


def user(user_id: str) -> Actor:
    """The buyer."""
    return Actor(Kind.USER, user_id)


def staff(username: str) -> Actor:
    """Somebody in the back office, or the merchant's own backend speaking for its staff."""
    return Actor(Kind.STAFF, username)


def channel(name: str) -> Actor:
    """A payment channel whose signed word moves the order."""
    return Actor(Kind.CHANNEL, name)
