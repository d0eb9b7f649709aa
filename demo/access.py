"""Who may log in to the demo, and where it is: the content of demo.json."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from django.conf import settings

from kernel import secrets
from merchants.models import ApiKey, Staff

CLIENT_NAME = "mini-program"


def demo_password(username: str) -> str:
    """A password that only this installation has, and that can be said again: derived from its secret key."""
    digest = hmac.digest(settings.SECRET_KEY.encode(), b"quits.demo-password:" + username.encode(), hashlib.sha256)
    return base64.b32encode(digest[:10]).decode().lower()


def get_demo_access() -> dict[str, Any]:
    """Addresses, logins and API keys of the demo, as written into demo.json."""
    people = Staff.objects.select_related("user").order_by("id")
    keys = (
        ApiKey.objects.filter(client__name=CLIENT_NAME, revoked_at=None)
        .select_related("client__merchant")
        .order_by("id")
    )
    return {
        "base_url": settings.QUITS_BASE_URL,
        "admin": [
            {
                "role": person.role,
                "username": person.user.get_username(),
                "password": demo_password(person.user.get_username()),
            }
            for person in people
        ],
        "api_clients": [
            {
                "merchant": key.client.merchant.code,
                "key_id": key.key_id,
                "secret": secrets.decrypt(key.secret_encrypted),
            }
            for key in keys
        ],
        "simulator": {"base_url": settings.QUITS_SIMULATOR_URL},
    }


def demo_file_text() -> str:
    return json.dumps(get_demo_access(), ensure_ascii=False, indent=2) + "\n"
