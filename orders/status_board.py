"""The status of an order as its client sees it: a cache for pollers, a channel for streams. Valkey is a carrier: the
database is the truth, and answers by itself when Valkey is away.

A cached status is written by the relay after the commit, never lowers a version (compare-and-set in a script), and
a poll believes it only at the version that the database has.
"""

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from kernel import numbers, valkey
from orders.models import Order

LIFETIME_SECONDS = {
    Order.Status.PENDING: 30,
    Order.Status.PAID: 60,
    Order.Status.DELIVERED: 600,
    Order.Status.COMPLETED: 3600,
    Order.Status.CLOSED: 600,
    Order.Status.CANCELLED: 3600,
}
NAMES = {status.value: status.name for status in Order.Status}
TERMINAL = frozenset(status.value for status in Order.TERMINAL)

PUT_IF_NEWER = """
local held = redis.call('GET', KEYS[1])
if held and cjson.decode(held)['version'] >= tonumber(ARGV[2]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[3])
return 1
"""

REVOKED = '{"revoked":true}'
"""What goes out instead of a frame when the token of an order was revoked."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class StatusFrame:
    """What a client may know of its order by the token alone: no personal data, no amounts of others."""

    order_no: str
    status: int
    status_name: str
    version: int
    payable_fen: int
    pay_expires_at: str
    terminal: bool

    def to_json(self) -> str:
        """The frame as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))


def frame_of(order: Order) -> StatusFrame:
    """The frame of an order as it was read."""
    return StatusFrame(
        order_no=order.order_no,
        status=order.status,
        status_name=NAMES[order.status],
        version=order.version,
        payable_fen=order.payable_fen,
        pay_expires_at=order.pay_expires_at.isoformat(),
        terminal=order.status in TERMINAL,
    )


def cache_key(order_id: UUID) -> str:
    return f"quits:order-status:{order_id}"


def channel_of(order_id: UUID | str) -> str:
    """The pub/sub channel on which an order's frames go out; "*" for the pattern of all of them."""
    return f"quits:order-events:{order_id}"


def publish(order_id: UUID, *, now: datetime) -> None:
    """Put the present status into the cache and out to the streams. Raises nothing when Valkey is away: pollers read
    the database, and a stream's client polls."""
    frame = frame_of(Order.objects.get(id=order_id))
    text = frame.to_json()
    try:
        client = valkey.client()
        life = LIFETIME_SECONDS[Order.Status(frame.status)]
        client.eval(PUT_IF_NEWER, 1, cache_key(order_id), text, frame.version, life)
        client.publish(channel_of(order_id), text)
    except valkey.Away as error:
        log.warning("status.valkey_away", error=str(error))


def end_streams(order_id: UUID) -> None:
    """Tell the streams of an order that their token is no longer good."""
    try:
        valkey.client().publish(channel_of(order_id), REVOKED)
    except valkey.Away as error:
        log.warning("status.valkey_away", error=str(error))


def find_by_token(token: str) -> tuple[UUID, int] | None:
    """(order id, version) of a token that was not revoked; None for any other."""
    return (
        Order.objects.filter(order_token_hash=numbers.sha256(token), token_revoked_at=None)
        .values_list("id", "version")
        .first()
    )


def read_status(token: str) -> dict[str, Any] | None:
    """A poll: the cached frame when it is of the very version the database has, else the database's own."""
    found = find_by_token(token)
    if found is None:
        return None
    order_id, version = found
    cached = _cached(order_id)
    if cached is not None and cached["version"] == version:
        return cached
    frame = frame_of(Order.objects.get(id=order_id))
    return asdict(frame)


def _cached(order_id: UUID) -> dict[str, Any] | None:
    try:
        text = valkey.client().get(cache_key(order_id))
    except valkey.Away:
        return None
    return json.loads(text) if isinstance(text, bytes | str) else None
