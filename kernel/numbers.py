"""Identifiers: ids made before the row exists, numbers people read, tokens nobody can guess."""

import hashlib
import os
import secrets
import time
from typing import Literal
from uuid import UUID

from django.db import connection

PREFIXES = {"order": "Q", "after_sales": "AS"}


def uuid7() -> UUID:
    """A UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, then random. Made in the application so that rows of
    one statement can name each other, and ordered by time so that indexes grow at one end."""
    raw = bytearray((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
    raw[6] = (raw[6] & 0x0F) | 0x70
    raw[8] = (raw[8] & 0x3F) | 0x80
    return UUID(bytes=bytes(raw))


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
