"""The connection to Valkey (or any server of the Redis protocol). It is a carrier, never the truth."""

from functools import lru_cache

import redis
from django.conf import settings

Away = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.BusyLoadingError,
    OSError,
)
"""What is raised when the server cannot be reached."""


@lru_cache(maxsize=4)
def _client_for(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1, health_check_interval=15)


def client() -> redis.Redis:
    """The shared client: pooled, with timeouts of seconds."""
    return _client_for(settings.REDIS_URL)
