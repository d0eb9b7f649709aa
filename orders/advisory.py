"""One user at a time: quotes and orders of the same user are made one after the other."""

from uuid import UUID

from django.db import connection

from coupons.commands.queue_wallet import wallet_key


def lock_user(*, merchant_id: UUID, user_id: str) -> None:
    """Wait for the other quote or order that this user is making now; held until the transaction ends.

    The serial key is the wallet's, so whoever queues before it for the coupons alone waits in the same queue.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
            [wallet_key(merchant_id=merchant_id, user_id=user_id)],
        )
