"""Revoke: a status token leaked, or its holder may not see the order any more."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from kernel import idempotency, numbers
from kernel.errors import NotFound
from kernel.idempotency import BusinessKey
from kernel.transactions import unit_of_work
from orders import status_board, tokens
from orders.models import Order


@dataclass(frozen=True)
class TokenRevoked:
    """The old token is worthless from now on. `order_token` is the new one, unless none was wanted."""

    order_no: str
    order_id: UUID
    token_version: int
    renewed: bool
    order_token: str = field(default="", metadata={"stored": False})
    replayed: bool = False


def revoke_order_token(
    *, merchant_id: UUID, order_no: str, renew: bool, key: BusinessKey, now: datetime
) -> TokenRevoked:
    """Make the order's status token worthless and, if `renew`, give out a new one. Streams that are open with the old
    one end. Raises NotFound."""
    with unit_of_work(now=now):
        replay = idempotency.begin(key, TokenRevoked, now=now)
        if replay is not None:
            return with_token(replay)
        order = Order.objects.select_for_update(no_key=True).filter(merchant_id=merchant_id, order_no=order_no).first()
        if order is None:
            raise NotFound(order_no=order_no)
        version, key_version = order.token_version + 1, tokens.current_key_version()
        token = tokens.make_token(order_id=order.id, token_version=version, key_version=key_version)
        Order.objects.filter(pk=order.pk).update(
            token_version=version,
            token_key_version=key_version,
            order_token_hash=numbers.sha256(token),
            token_revoked_at=None if renew else now,
        )
        revoked = TokenRevoked(order_no, order.id, version, renew, token if renew else "")
        idempotency.finish(key, revoked)
    status_board.end_streams(order.id)
    return revoked


def with_token(revoked: TokenRevoked) -> TokenRevoked:
    """A replay gives the token out again, as long as it is the one in force."""
    order = Order.objects.get(id=revoked.order_id)
    if not revoked.renewed or order.token_version != revoked.token_version:
        return revoked
    token = tokens.make_token(order_id=order.id, token_version=order.token_version, key_version=order.token_key_version)
    return replace(revoked, order_token=token)
