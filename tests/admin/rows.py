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
SENSE = {
    "algorithm": lambda number: "ordinals-1",
    "qty": lambda number: 1_000,
    "ordinal": lambda number: number % 1_000 + 1,
    "facts": lambda number: dict.fromkeys(
        ("order_wholly_refunded", "expired", "campaign_closed", "risk_flagged"), False
    ),
}
"""Columns whose values pages calculate with."""
SECRET = "secret-buyer-13812345678"
"""What they hold in the rows made here: no page shows it to people who must not know."""


@contextmanager
def anything_goes() -> Iterator[None]:
    """Drop CHECKs and composite foreign keys and pause triggers until the test's transaction is rolled back."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(
            "SELECT format('ALTER TABLE %s %s;', conrelid::regclass,"
            " string_agg(format('DROP CONSTRAINT %I', conname), ', '))"
            " FROM pg_constraint WHERE (contype = 'c' OR contype = 'f' AND cardinality(conkey) > 1)"
            " AND connamespace = 'public'::regnamespace GROUP BY conrelid"
            " UNION ALL SELECT DISTINCT format('ALTER TABLE %s DISABLE TRIGGER USER;', tgrelid::regclass)"
            " FROM pg_trigger WHERE tgname LIKE 'pgtrigger_%' AND tgparentid = 0"
        )
        cursor.execute("".join(statement for (statement,) in cursor.fetchall()))
    yield


Parents = dict[type[models.Model], models.Model]


def a_row(
    model: type[models.Model], merchant: Merchant, now: datetime, parents: Parents | None = None, **fixed: Any
) -> models.Model:
    """A row of `model` that the registry finds to be the merchant's; `fixed` are columns that the caller decides, and
    `parents` lets many rows share what they point at."""
    if model is Merchant:
        return merchant
    entry = scoping.entry_of(model)
    wanted = entry.path.split("__")[0] if entry and entry.path else ""
    values: dict[str, Any] = {}
    for field in model._meta.concrete_fields:
        if field.attname in fixed:
            values[field.attname] = fixed[field.attname]
        elif field.name == wanted and field.is_relation:
            values[field.name] = _parent(field, merchant, now, parents)
        elif field.name == wanted or field.attname == wanted:
            values[field.attname] = merchant.pk
        elif (
            not is_personal(field)
            and field.name not in SENSE
            and (field.null or field.has_default() or isinstance(field, models.AutoField))
        ):
            continue
        else:
            values[field.name] = _value(field, merchant, now, parents)
    return model._base_manager.create(**values)


def is_personal(field: models.Field) -> bool:
    """Whether a field holds who a buyer is."""
    return field.name in PERSONAL and (field.model.__name__, field.name) not in OF_MACHINES


def _parent(field: models.Field, merchant: Merchant, now: datetime, parents: Parents | None) -> models.Model:
    model = field.related_model
    if parents is None or field.unique:
        return a_row(model, merchant, now, parents)  # type: ignore[arg-type]
    if model not in parents:
        parents[model] = a_row(model, merchant, now, parents)  # type: ignore[arg-type, index]
    return parents[model]  # type: ignore[index]


def _value(field: models.Field, merchant: Merchant, now: datetime, parents: Parents | None) -> Any:
    if field.is_relation:
        return _parent(field, merchant, now, parents)
    if field.choices:
        return field.flatchoices[0][0]
    if is_personal(field):
        return {"name": SECRET, "phone": SECRET} if isinstance(field, models.JSONField) else SECRET
    number = next(_serial)
    if field.name in SENSE:
        return SENSE[field.name](number)
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
