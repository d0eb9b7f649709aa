"""Secrets at rest: Fernet under the keys of the environment. The first key encrypts, all of them decrypt."""

from functools import lru_cache

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings


@lru_cache(maxsize=4)
def _keyring(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def encrypt(text: str) -> str:
    """Encrypt a secret for storage."""
    return _keyring(tuple(settings.QUITS_FIELD_KEYS)).encrypt(text.encode()).decode()


def decrypt(token: str) -> str:
    """Read a stored secret. Raises cryptography.fernet.InvalidToken when no key of the ring fits."""
    return _keyring(tuple(settings.QUITS_FIELD_KEYS)).decrypt(token.encode()).decode()


def rotate(token: str) -> str:
    """Encrypt a stored secret anew under the first key."""
    return _keyring(tuple(settings.QUITS_FIELD_KEYS)).rotate(token.encode()).decode()
