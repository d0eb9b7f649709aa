"""What sharding by merchant asks of the schema (docs/scale-out.md): no unique key may be about rows of two merchants.

A key that names the merchant is one shard's own. So is one that names a row of a merchant by its id, because ids are
UUIDs: `merchant_id` can be put in front of it and it says the same. Anything else is listed here with its reason.
"""

from __future__ import annotations

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db

KEYS = """
SELECT c.relname, array_agg(a.attname::text ORDER BY k.position), array_agg(format_type(a.atttypid, NULL))
FROM pg_index x
JOIN pg_class c ON c.oid = x.indrelid
CROSS JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY k(column_number, position)
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.column_number
WHERE x.indisunique AND c.relnamespace = 'public'::regnamespace AND k.position <= x.indnkeyatts
GROUP BY c.relname, x.indexrelid
"""
# Tables of the installation: on every shard alike, or on the first one only.
OF_THE_INSTALLATION = ("auth_", "axes_", "django_", "pgtrigger", "staff", "saved_filter", "second_factor", "recovery_")
# (table, key): why it may span shards.
WORLDWIDE = {
    ("merchant", "code"): "the list of merchants itself is on every shard",
    ("api_key", "key_id"): "random; the list that says which shard a caller belongs to",
    ("orders", "order_token_hash"): "a digest of 256 random bits",
}


def test_unique_keys_stay_inside_a_merchant() -> None:
    with connection.cursor() as cursor:
        cursor.execute(KEYS)
        keys = cursor.fetchall()
    spanning = {
        (table, ",".join(columns))
        for table, columns, types in keys
        if "merchant_id" not in columns
        and "uuid" not in types
        and columns != ["id"]  # a number of the row, never told to anybody; made (merchant_id, id)
        and not table.startswith(OF_THE_INSTALLATION)
    }
    assert len(keys) > 100
    assert spanning == set(WORLDWIDE)


def test_rows_of_merchants_name_their_merchant_or_a_row_that_does() -> None:
    """Tables without `merchant_id` reach one by a foreign key, so it can be filled in."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT c.relname,
                EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'merchant_id'),
                array(SELECT confrelid::regclass::text FROM pg_constraint WHERE conrelid = c.oid AND contype = 'f')
            FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
            """
        )
        tables = {name: (has, set(parents)) for name, has, parents in cursor.fetchall()}
    known = {name for name, (has, _) in tables.items() if has}
    while found := {n for n, (_, parents) in tables.items() if n not in known and parents & known}:
        known |= found
    left = {name for name in tables if name not in known and not name.startswith(OF_THE_INSTALLATION)}
    assert left == {"merchant", "inbox_message"}, "an inbox message lives where its event does"
