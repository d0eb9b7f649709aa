"""The connection to PostgreSQL: one per thread, kept between requests, looked at before each.

Django's own check asks the server at every request. A server that ended (restart, failover, kill -9) has closed the
socket, and that can be seen without asking.
"""

import select

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, but `is_usable` asks the server only when the socket has something to say."""

    def is_usable(self) -> bool:
        """Whether an idle connection is still one. Nobody speaks on it unasked, except to say that it ends."""
        if self.connection is None or self.connection.closed:
            return False
        waiting = select.poll()
        waiting.register(self.connection.fileno(), select.POLLIN)
        return not waiting.poll(0) or super().is_usable()
