"""A queue before one user's coupons: for wallets so busy that commands would keep colliding."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from django.db import OperationalError, connection
from django.utils.translation import gettext_lazy as _

from kernel.errors import Refusal
from kernel.transactions import unit_of_work

WAIT_MILLISECONDS = 2000


class WalletBusy(Refusal):
    """The queue before this wallet did not move on within two seconds."""

    code = "WALLET_BUSY"
    message = _("Many commands for this user's coupons are waiting. Try again shortly.")


def wallet_key(*, merchant_id: UUID, user_id: str) -> str:
    """The serial key of one user's coupons. Quotes and orders queue by it too, so there is one queue per wallet."""
    return f"wallet:{merchant_id}:{user_id}"


@contextmanager
def queue_wallet(*, merchant_id: UUID, user_id: str, now: datetime) -> Iterator[None]:
    """A unit of work that is alone with the wallet: others that queue for it wait until this one ends.

    What is read inside (which coupons are free, at which version) is still true when the commands that follow carry
    it, so they do not collide. It is a courtesy and nothing leans on it: whoever does not queue is kept in order by
    the conditional update alone. Joins the caller's transaction, if any; taken before any coupon's row. Raises
    WalletBusy.
    """
    with unit_of_work(now=now):
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{WAIT_MILLISECONDS}ms"])
                cursor.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
                    [wallet_key(merchant_id=merchant_id, user_id=user_id)],
                )
                cursor.execute("SELECT set_config('lock_timeout', '0', true)")
        except OperationalError as error:
            if getattr(error.__cause__, "sqlstate", None) == "55P03":
                raise WalletBusy(retry_after_seconds=1) from error
            raise
        yield
