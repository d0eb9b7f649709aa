"""Passwords and keys of the house: made once, kept in var/secrets.json for its owner only."""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from house.layout import Trouble, write_atomically


@dataclass(frozen=True)
class Keys:
    """`house_id` marks our processes. Field keys are Fernet keys, lease keys `number:hex`, comma separated."""

    house_id: str
    postgres_password: str
    owner_password: str
    app_password: str
    valkey_password: str
    secret_key: str
    field_keys: str
    lease_keys: str


def keys_of(var: Path) -> Keys:
    """Read them, or make them when this var directory has none. Missing ones are added, none is changed."""
    path = var / "secrets.json"
    kept: dict[str, str] = {}
    if path.exists():
        try:
            kept = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise Trouble(f"{path} cannot be read ({error}): restore it, or start over with bin/up --fresh") from error
    fresh = Keys(
        house_id=secrets.token_hex(16),
        postgres_password=secrets.token_hex(24),
        owner_password=secrets.token_hex(24),
        app_password=secrets.token_hex(24),
        valkey_password=secrets.token_hex(24),
        secret_key=secrets.token_urlsafe(50),
        field_keys=base64.urlsafe_b64encode(os.urandom(32)).decode(),
        lease_keys=f"1:{secrets.token_hex(32)}",
    )
    keys = Keys(**{field.name: kept.get(field.name) or getattr(fresh, field.name) for field in fields(Keys)})
    if asdict(keys) != kept:
        write_atomically(path, json.dumps(asdict(keys), indent=2) + "\n")
    path.chmod(0o600)
    return keys
