"""The rehearsal behind docs/scale-out.md: copies of the ledger and the outbox are partitioned, and then asked the same
questions as the tables they were copied from."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from django.db import connection

from benchmarks import harness
from benchmarks.coupon_cells import rows

COUPONS = 100_000
PARTITIONS = 8
EVENTS = 200_000
READS = 3_000
HOME = "quits_scale_out"

# Every unique key of a partitioned table has to name the partition's column. A coupon's operations, what they undo and
# the decision they carry out are all of one coupon, so the wider keys say the same.
LEDGER = f"""
CREATE TABLE ledger_parted (LIKE coupon_operation INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
    PARTITION BY HASH (coupon_id);
DO $$ BEGIN FOR i IN 0..{PARTITIONS - 1} LOOP
    EXECUTE format('CREATE TABLE ledger_parted_%s PARTITION OF ledger_parted'
        ' FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER %s)', i, i);
END LOOP; END $$;
"""
LEDGER_KEYS = """
ALTER TABLE ledger_parted ADD PRIMARY KEY (coupon_id, id);
ALTER TABLE ledger_parted ADD UNIQUE (coupon_id, to_version) INCLUDE (command, from_version, from_status, to_status);
ALTER TABLE ledger_parted ADD UNIQUE (coupon_id, to_version, to_status);
CREATE UNIQUE INDEX ON ledger_parted (coupon_id, original_id) WHERE original_id IS NOT NULL;
CREATE UNIQUE INDEX ON ledger_parted (coupon_id, decision_id) WHERE decision_id IS NOT NULL;
ALTER TABLE ledger_parted ADD FOREIGN KEY (coupon_id, from_version, from_status)
    REFERENCES ledger_parted (coupon_id, to_version, to_status);
ANALYZE ledger_parted;
"""
HISTORY = "SELECT command, to_status, at FROM {table} WHERE coupon_id = %s ORDER BY to_version"
REPLAY = """
SELECT count(*) FROM (
    SELECT coupon_id, from_version IS NOT DISTINCT FROM lag(to_version) OVER w AS follows
    FROM {table} WINDOW w AS (PARTITION BY coupon_id ORDER BY to_version)) steps WHERE NOT follows
"""

# Ids are UUIDs of version 7: their first 48 bits are the time, so a range of ids is a range of time and the primary
# key stays (id) alone.
OUTBOX = """
CREATE TABLE outbox_parted (LIKE outbox_event INCLUDING DEFAULTS INCLUDING CONSTRAINTS) PARTITION BY RANGE (id);
CREATE FUNCTION first_id(day date) RETURNS uuid LANGUAGE sql AS
    $$ SELECT (lpad(to_hex((extract(epoch FROM day::timestamptz) * 1000)::bigint), 12, '0')
        || repeat('0', 20))::uuid $$;
DO $$ BEGIN FOR i IN 1..4 LOOP
    EXECUTE format('CREATE TABLE outbox_2026_%s PARTITION OF outbox_parted FOR VALUES FROM (%L) TO (%L)',
        lpad(i::text, 2, '0'), first_id(make_date(2026, i, 1)), first_id(make_date(2026, i + 1, 1)));
END LOOP; END $$;
ALTER TABLE outbox_parted ADD PRIMARY KEY (id);
CREATE INDEX ON outbox_parted (id) WHERE state = 'PENDING';
CREATE INDEX ON outbox_parted (subject, created_at);
"""
EVENTS_SQL = """
INSERT INTO outbox_event (id, name, version, merchant_id, subject, payload, created_at, state, attempts, available_at,
    published_at, last_error)
SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7' || substr(md5(k::text), 1, 3) || '8'
        || substr(md5(k::text), 4, 15))::uuid, 'order.paid', 1, NULL, 'S' || k, '{{"order_no": "2026"}}', at,
    'PUBLISHED', 1, at, at, ''
FROM generate_series(1, {events}) k,
    LATERAL (SELECT timestamptz '2026-01-01' + k * interval '119 days' / {events} AS at) t
"""
CLAIM = """
SELECT id FROM {table} WHERE state = 'PENDING' AND available_at <= now() ORDER BY id LIMIT 500 FOR UPDATE SKIP LOCKED
"""


def run(*, figures: harness.Figures, rounds: int) -> None:
    """Both rehearsals once; what is a ratio becomes a figure."""
    bench = connection.settings_dict["NAME"]
    harness.drop_database(HOME, home=bench)
    harness.run_sql(f'CREATE DATABASE "{HOME}"', database=bench)
    try:
        harness.migrate(HOME)
        harness.switch_database(HOME)
        rows.fill(rows.Wanted(free=COUPONS // 2, held=COUPONS // 2, issue_keys=False))
        _ledger(figures)
        _outbox(figures)
    finally:
        harness.switch_database(bench)
        harness.drop_database(HOME, home=bench)


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def value(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def timed(said: str, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    print(f"    {said:<72} {took:>9.3f} s", flush=True)
    return took


def _ledger(figures: harness.Figures) -> None:
    execute(LEDGER)
    many = value("SELECT count(*) FROM coupon_operation")
    timed(f"ledger: {many:,} operations copied into {PARTITIONS} partitions", lambda: execute(
        "INSERT INTO ledger_parted SELECT * FROM coupon_operation"))  # fmt: skip
    timed("ledger: keys, the chain's foreign key, statistics", lambda: execute(LEDGER_KEYS))
    assert value("SELECT count(*) FROM ledger_parted") == many
    tables = ("coupon_operation", "ledger_parted")
    execute("ANALYZE coupon_operation")
    for table in tables:
        timed(f"{table}: warm", lambda table=table: _read(table, READS // 4))
    plain, parted = (timed(f"{t}: {READS:,} histories", lambda t=t: _read(t, READS)) for t in tables)
    figures.add("history_parted_vs_plain", plain / parted)
    plain, parted = (timed(f"{t}: every chain replayed", lambda t=t: value(REPLAY.format(table=t))) for t in tables)
    figures.add("replay_parted_vs_plain", plain / parted)


def _read(table: str, many: int) -> None:
    chance = random.Random(7)
    with connection.cursor() as cursor:
        for _ in range(many):
            cursor.execute(HISTORY.format(table=table), [rows.coupon_id(chance.randint(1, COUPONS))])
            assert cursor.fetchall()


def _outbox(figures: harness.Figures) -> None:
    execute("TRUNCATE outbox_event")
    execute(EVENTS_SQL.format(events=EVENTS))
    execute(OUTBOX)
    timed(f"outbox: {EVENTS:,} events copied into months", lambda: execute(
        "INSERT INTO outbox_parted SELECT * FROM outbox_event"))  # fmt: skip
    execute("ANALYZE outbox_event")
    execute("ANALYZE outbox_parted")
    for table in ("outbox_event", "outbox_parted"):
        timed(f"{table}: 1,000 looks for pending events", lambda table=table: _claims(table))
    january = "created_at < '2026-02-01'"
    deleted = timed("outbox_event: a month deleted", lambda: execute(f"DELETE FROM outbox_event WHERE {january}"))
    vacuumed = timed("outbox_event: and vacuumed", lambda: execute("VACUUM outbox_event"))
    dropped = timed("outbox_parted: a month detached and dropped", lambda: execute(
        "ALTER TABLE outbox_parted DETACH PARTITION outbox_2026_01; DROP TABLE outbox_2026_01"))  # fmt: skip
    assert value("SELECT count(*) FROM outbox_event") == value("SELECT count(*) FROM outbox_parted")
    figures.add("drop_month_vs_delete", (deleted + vacuumed) / dropped)


def _claims(table: str) -> None:
    for _ in range(1000):
        execute(CLAIM.format(table=table))
