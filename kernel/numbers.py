"""Identifiers: ids made before the row exists, numbers people read, tokens nobody can guess."""

import hashlib
import os
import secrets
import time
from typing import Literal
from uuid import UUID, SafeUUID

from django.db import connection

PREFIXES = {"order": "Q", "after_sales": "AS"}


_NOT_VERSION_AND_VARIANT = (1 << 128) - 1 - (0xF << 76) - (0x3 << 62)
_VERSION_7_AND_VARIANT = (0x7 << 76) + (0x2 << 62)


def uuid7() -> UUID:
    """A UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random. Made in the application so that rows of
    one statement can name each other, and ordered by time so that indexes grow at one end."""
    number = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    made = object.__new__(UUID)  # UUID's own constructor takes longer than everything else here
    object.__setattr__(made, "int", number & _NOT_VERSION_AND_VARIANT | _VERSION_7_AND_VARIANT)
    object.__setattr__(made, "is_safe", SafeUUID.unknown)
    return made


def next_number(kind: Literal["order", "after_sales"]) -> str:
    """The next business number of its kind: a prefix and 14 digits of a database sequence.

    Strictly rising in the order in which the database gives them out, on any number of processes and whatever
    their clocks say. Safe for channels (6 to 32 characters of [0-9A-Za-z]). It is no secret: what must not be
    guessed is a token.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT nextval('{kind}_number')")
        return f"{PREFIXES[kind]}{cursor.fetchone()[0]:014d}"


def new_token() -> str:
    """256 random bits, URL-safe (43 characters)."""
    return secrets.token_urlsafe(32)


def sha256(text: str) -> bytes:
    """The 32-byte digest under which a token is stored."""
    return hashlib.sha256(text.encode()).digest()
