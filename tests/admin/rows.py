"""One row of any model for a merchant, whatever the model: so that no page escapes the permission matrix.

The row only has to exist and to belong to its merchant. CHECKs, composite keys and triggers are lifted for the
transaction of the test (see `anything_goes`); foreign keys are followed.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import connection, models

from merchants import scoping
from merchants.models import Merchant

_serial = count(1)

PERSONAL = {"user_id", "beneficiary", "address", "phone", "receiver", "payer_ref", "openid", "buyer", "buyer_id"}
"""Fields that hold who a buyer is, by their names."""
OF_MACHINES = {("StaffAction", "address"), ("StaffSession", "address"), ("ChannelNotify", "address")}
"""Where `address` is one of the network."""
SECRET = "secret-buyer-13812345678"
"""What they hold in the rows made here: no page shows it to people who must not know."""


@contextmanager
def anything_goes() -> Iterator[None]:
    """Drop CHECKs and composite foreign keys and pause triggers until the test's transaction is rolled back."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "SELECT conrelid::regclass::text, conname FROM pg_constraint"
            " WHERE (contype = 'c' OR contype = 'f' AND cardinality(conkey) > 1)"
            " AND connamespace = 'public'::regnamespace"
        )
        for table, name in cursor.fetchall():
            cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
        cursor.execute(
            "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE 'pgtrigger_%' AND tgparentid = 0"
        )
        for (table,) in cursor.fetchall():
            cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    yield


def a_row(model: type[models.Model], merchant: Merchant, now: datetime) -> models.Model:
    """A row of `model` that the registry finds to be the merchant's."""
    if model is Merchant:
        return merchant
    entry = scoping.entry_of(model)
    wanted = entry.path.split("__")[0] if entry and entry.path else ""
    values: dict[str, Any] = {}
    for field in model._meta.concrete_fields:
        if field.name == wanted and field.is_relation:
            values[field.name] = a_row(field.related_model, merchant, now)  # type: ignore[arg-type]
        elif field.name == wanted or field.attname == wanted:
            values[field.attname] = merchant.pk
        elif not is_personal(field) and (field.null or field.has_default() or isinstance(field, models.AutoField)):
            continue
        else:
            values[field.name] = _value(field, merchant, now)
    return model._base_manager.create(**values)


def is_personal(field: models.Field) -> bool:
    """Whether a field holds who a buyer is."""
    return field.name in PERSONAL and (field.model.__name__, field.name) not in OF_MACHINES


def _value(field: models.Field, merchant: Merchant, now: datetime) -> Any:
    if field.is_relation:
        return a_row(field.related_model, merchant, now)  # type: ignore[arg-type]
    if field.choices:
        return field.flatchoices[0][0]
    if is_personal(field):
        return {"name": SECRET, "phone": SECRET} if isinstance(field, models.JSONField) else SECRET
    number = next(_serial)
    makers: list[tuple[type, Any]] = [
        (ArrayField, list),
        (models.UUIDField, uuid.uuid4),
        (models.DateTimeField, lambda: now),
        (models.DateField, now.date),
        (models.BooleanField, lambda: False),
        (models.JSONField, dict),
        (models.BinaryField, lambda: number.to_bytes(32, "big")),
        (models.IntegerField, lambda: number),
        (models.TextField, lambda: f"text {number}"),
    ]
    for kind, make in makers:
        if isinstance(field, kind):
            return make()
    return f"x{number}"[: field.max_length or None]
