"""Rows for every page of the back office: a story told by the real commands, then copied by SQL to any number.

Copy number g of a row keeps what the real one says and changes what has to be its own: keys, numbers, moments (the
last copy is the newest, the first a year old) and the columns that people filter by, so that every filter finds
something and most rows are as the story ended. A page whose model the story does not touch gets a row of its own
kind. Keys and checks are dropped in this database only, which nobody writes to later.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.apps import apps
from django.db import connection, models, transaction

from demo.catalogue import NUTS, user_id
from demo.commands.found_shop import found_shop
from demo.shop import Shop
from kernel import clock
from payments.commands.save_account import save_account

MERCHANTS = 40
OF_N = {
    "aftersales.AfterSalesOrder": 1.0,
    "orders.Order": 1.0,
    "orders.OrderLine": 1.0,
    "payments.Payment": 1.0,
    "payments.RefundRequest": 1.0,
    "payments.RefundAttempt": 1.0,
    "coupons.UserCoupon": 1.0,
    "aftersales.AfterSalesLog": 0.2,
    "aftersales.AfterSalesUnit": 0.2,
    "coupons.CouponLock": 0.2,
    "coupons.CouponOperation": 0.2,
    "kernel.InboxMessage": 0.5,
    "kernel.OutboxEvent": 0.2,
    "ledgers.JournalEntry": 0.5,
    "ledgers.JournalLine": 0.2,
    "ledgers.StockEntry": 0.5,
    "orders.OrderStatusLog": 0.2,
    "orders.Quote": 1.0,
    "payments.ChannelNotify": 0.5,
    "coupons.CouponRefusal": 0.3,
    "coupons.RefundCoupon": 0.3,
    "merchants.StaffAction": 0.3,
    "ledgers.PointsAccount": 0.1,
    "ledgers.CommissionAccount": 0.1,
    "aftersales.RiskReview": 0.05,
    "orders.Anomaly": 0.05,
    "reconciliation.Finding": 0.05,
    "aftersales.ArbitrationCase": 0.02,
    "ledgers.SalesDay": 0.02,
    "ledgers.StockItem": 0.02,
    "payments.ChannelBill": 0.02,
}
"""How many rows of a table stand beside N after-sales orders. A page that is not named has a tenth."""
FIXED = {
    "aftersales.AfterSalesSettings": MERCHANTS,
    "aftersales.RiskRule": 20,
    "coupons.Campaign": 300,
    "coupons.CouponTemplate": 300,
    "coupons.ReturnPolicy": 80,
    "merchants.ApiClient": MERCHANTS,
    "merchants.Merchant": MERCHANTS,
    "merchants.Staff": 200,
    "payments.ChannelAccount": 2 * MERCHANTS,
    "reconciliation.ReconciliationRun": 365,
}
"""What does not grow with the sales: the same in both sizes."""
NUMBERS = {
    "order_no": "'Q2026' || lpad(g::text, 10, '0')",
    "out_trade_no": "'Q2026' || lpad(g::text, 10, '0') || 'P1'",
    "after_sales_no": "'AS26' || lpad(g::text, 10, '0')",
    "owner_no": "'AS26' || lpad(g::text, 10, '0')",
    "cause_no": "'AS26' || lpad(g::text, 10, '0')",
    "refund_no": "'AS26' || lpad(g::text, 10, '0') || '-0'",
    "number": "'AS26' || lpad(g::text, 10, '0') || '-0'",
    "trade_no": "'4200' || lpad(g::text, 16, '0')",
    "user_id": "'buyer' || g / 5",
    "beneficiary": "'leader' || g",
    "reference": "'Q2026' || lpad(g::text, 10, '0')",
    "username": "'person' || g % 200",
}
"""Numbers that mean the same row of the story in every table."""
MOSTLY = {
    ("aftersales.AfterSalesOrder", "status"): "'REFUND_SUCCESS'",
    ("aftersales.ArbitrationCase", "state"): "'DECIDED'",
    ("aftersales.RiskReview", "state"): "'CLEARED'",
    ("kernel.InboxMessage", "state"): "'DONE'",
    ("orders.Anomaly", "state"): "'RESOLVED'",
    ("orders.Order", "status"): "30",
    ("orders.Order", "fulfilment"): "'done'",
    ("reconciliation.Finding", "state"): "'RESOLVED'",
    ("coupons.UserCoupon", "status"): "(ARRAY['USED', 'EXPIRED', 'AVAILABLE'])[1 + g % 3]",
}
"""How most rows of a shop's year end, where the story ends otherwise."""
COMMON = 33
"""One row in so many differs from the story in a column that is filtered by."""


def key(model: type[models.Model], number: str = "g") -> str:
    """The id of copy g: in the order of g, as the real ones are in the order of time."""
    hexed = f"lpad(to_hex(({number})::int), 12, '0')"
    return f"({hexed} || '7' || substr(md5('{model._meta.db_table}' || ({number})), 14))::uuid"


def pages() -> list[type[models.Model]]:
    from kernel.admin import site

    return list(site._registry)


def tables() -> list[type[models.Model]]:
    """Every page's model, and what stands behind the pages in numbers."""
    behind = [apps.get_model(label) for label in OF_N]
    return list(dict.fromkeys([*behind, *pages()]))


def wanted(model: type[models.Model], number: int) -> int:
    label = model._meta.label
    return FIXED[label] if label in FIXED else max(1, round(OF_N.get(label, 0.1) * number))


def tell() -> None:
    """A sale with a coupon, of which one line was refunded."""
    now = clock.now()
    began = now - timedelta(days=9)
    merchant_id = found_shop(front=NUTS, now=began).merchant_id
    save_account(
        merchant_id=merchant_id, channel="wechat", mchid="1900000109", app_id="wx0000000000000009", settings={},
        secret_values={}, now=began,
    )  # fmt: skip
    shop = Shop(merchant_id=merchant_id, code="yunwu")
    coupon = shop.give_coupon(user_id("lin"), "TEA-300-50", now=now - timedelta(hours=6))
    lines = [NUTS.goods["nut"].line(), NUTS.goods["tea"].line()]
    order = shop.buy(
        user_id("lin"), lines, coupon_id=coupon, freight_fen=1000, now=now - timedelta(hours=5)
    )  # fmt: skip
    claim = shop.claim(order, line_no=2, type=1, reason="changed_mind", now=now - timedelta(hours=2))
    shop.refund(shop.approve(claim, now=now - timedelta(hours=1)), now=now - timedelta(minutes=50))


def fill(number: int) -> None:
    """The story, one row of what it does not tell, and the copies."""
    tell()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL maintenance_work_mem = '512MB'")
        _loosen(cursor)
        indexes = _without_indexes(cursor)
        _complete()
        for model in tables():
            _copy(cursor, model, number)
        for definition in indexes:
            cursor.execute(definition)


def _loosen(cursor: Any) -> None:
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    cursor.execute(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint"
        " WHERE contype IN ('c', 'f') AND connamespace = 'public'::regnamespace"
    )
    for table, name in cursor.fetchall():
        cursor.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"')
    for model in tables():
        cursor.execute(f"ALTER TABLE {model._meta.db_table} DISABLE TRIGGER USER")
        cursor.execute(f"ALTER TABLE {model._meta.db_table} SET UNLOGGED")


def _complete() -> None:
    """A row of each kind that the story leaves out."""
    from merchants.models import Merchant
    from tests.admin.rows import a_row

    merchant = Merchant.objects.get()
    parents = {model: row for model in apps.get_models() if (row := model._base_manager.first())}
    for model in tables():
        if not model._base_manager.exists():
            a_row(model, merchant, clock.now(), parents)


def _without_indexes(cursor: Any) -> list[str]:
    """Drop what only slows the filling down; what brings it back, unique no more: some copies are alike."""
    cursor.execute(
        "SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), c.conname, i.indrelid::regclass::text"
        " FROM pg_index i"
        " LEFT JOIN pg_constraint c"
        " ON c.conindid = i.indexrelid AND c.conrelid = i.indrelid AND c.contype IN ('u', 'x')"
        " WHERE NOT i.indisprimary AND i.indrelid::regclass::text = ANY(%s)",
        [[model._meta.db_table for model in tables()]],
    )
    definitions = []
    for index, definition, constraint, table in cursor.fetchall():
        dropped = f'ALTER TABLE {table} DROP CONSTRAINT "{constraint}"' if constraint else f"DROP INDEX {index}"
        cursor.execute(dropped)
        definitions.append(definition.replace("CREATE UNIQUE INDEX", "CREATE INDEX"))
    return definitions


def _copy(cursor: Any, model: type[models.Model], number: int) -> None:
    table, count = model._meta.db_table, wanted(model, number)
    changes = {field.column: change_of(model, field, number) for field in model._meta.concrete_fields}
    columns = [field.column for field in model._meta.concrete_fields if not is_serial(field)]
    values = ", ".join(changes[name] or f't."{name}"' for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    assert model._meta.pk is not None
    cursor.execute(
        f"INSERT INTO {table} ({names}) SELECT {values}"
        f" FROM (SELECT * FROM {table} ORDER BY {model._meta.pk.column} DESC LIMIT 1) t"
        f" CROSS JOIN (SELECT generate_series(1, {count})) AS s(g)"
    )


def merchant_of(column: str) -> str:
    """The story's merchant has every other row, the others share the rest."""
    from merchants.models import Merchant

    return f"CASE WHEN g % 2 = 0 THEN t.{column} ELSE {key(Merchant, f'1 + g / 2 % {MERCHANTS}')} END"


def is_serial(field: models.Field[Any, Any]) -> bool:
    return isinstance(field, models.AutoField | models.BigAutoField)


def change_of(model: type[models.Model], field: models.Field[Any, Any], number: int) -> str:
    """What a column of copy g holds, as SQL of g and the story's row t; "" where it stays."""
    column, count = f't."{field.column}"', wanted(model, number)
    ago = f"(1 - g::float / {count}) * interval '365 days'"
    changed = ""
    if is_serial(field):
        return ""
    if field.is_relation:
        changed = _relation(model, field, number)
    elif field.primary_key:
        changed = key(model)
    elif field.name == "merchant_id":
        changed = merchant_of(field.column)
    elif field.name in NUMBERS and not field.choices:
        changed = NUMBERS[field.name]
    elif model._meta.label == "merchants.Merchant" and field.name == "code":
        changed = "'shop-' || g"
    elif filtered_by(model, field):
        changed = spread(model, field)
    elif field.name == "due_at":
        return f"CASE WHEN g % {COMMON} < 7 THEN now() + (g % 90) * interval '1 hour' END"
    elif isinstance(field, models.DateTimeField):
        changed = f"now() - {ago}"
    elif isinstance(field, models.DateField):
        changed = f"(now() - {ago})::date"
    elif isinstance(field, models.UUIDField):
        changed = f"md5('{field.column}' || g)::uuid"
    elif is_unique(model, field) and isinstance(field, models.CharField | models.TextField) and not field.choices:
        changed = f"left('k' || g || ':' || {column}, {field.max_length or 200})"
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE {changed} END" if changed and field.null else changed


def _relation(model: type[models.Model], field: models.Field[Any, Any], number: int) -> str:
    """Copy g belongs to copy g, or to one of the few that there are; what is kept in small numbers stays as it was."""
    other = field.related_model
    assert isinstance(other, type) and issubclass(other, models.Model)
    if other._meta.label == "merchants.Merchant":
        return key(other) if field.unique else merchant_of(field.column)
    if other not in tables() or other._meta.label in FIXED or other is model or is_serial(other._meta.pk):
        return ""
    return key(other, f"1 + (g - 1) % {wanted(other, number)}")


def is_unique(model: type[models.Model], field: models.Field[Any, Any]) -> bool:
    together = {name for rule in model._meta.constraints for name in getattr(rule, "fields", ())}
    return field.unique or field.name in together


def filtered_by(model: type[models.Model], field: models.Field[Any, Any]) -> bool:
    from kernel.admin import site

    page = site._registry.get(model)
    named = {item for item in (page.list_filter if page else ()) if isinstance(item, str)}
    return bool(field.choices or isinstance(field, models.BooleanField)) and (
        field.name in named or field.name in ("status", "state", "decision")
    )


def spread(model: type[models.Model], field: models.Field[Any, Any]) -> str:
    """One value mostly, each other value now and then."""
    column = MOSTLY.get((model._meta.label, field.name), f't."{field.column}"')
    salt = 1 + sum(map(ord, field.name)) % 7
    if "ARRAY" in column:
        return column
    if isinstance(field, models.BooleanField):
        return f"CASE WHEN g % {COMMON} = {salt} THEN NOT {column} ELSE {column} END"
    values = [value for value, _label in field.flatchoices]
    kind = "int" if isinstance(values[0], int) else "text"
    shown = ", ".join(str(int(value)) if kind == "int" else f"'{value}'" for value in values)
    pick = f"(ARRAY[{shown}]::{kind}[])[1 + (g / {COMMON} / {salt}) % {len(values)}]"
    return f"CASE WHEN g % {COMMON} = {salt} THEN {pick} ELSE {column} END"
