"""The two composite keys that Django cannot say: the ledger is a chain, and a coupon is where its ledger says."""

from django.db import migrations

CHAIN = """
ALTER TABLE coupon_operation ADD CONSTRAINT ledger_row_follows_the_row_before
    FOREIGN KEY (coupon_id, from_version, from_status)
    REFERENCES coupon_operation (coupon_id, to_version, to_status)
"""
COUPON = """
ALTER TABLE user_coupon ADD CONSTRAINT coupon_is_where_its_ledger_says
    FOREIGN KEY (id, state_version, status)
    REFERENCES coupon_operation (coupon_id, to_version, to_status)
    DEFERRABLE INITIALLY DEFERRED
"""
# Room on each page for the next version of its rows, so that a move stays on its page (HOT).
ROOM = "ALTER TABLE user_coupon SET (fillfactor = 80)"


class Migration(migrations.Migration):
    dependencies = [("coupons", "0001_initial")]

    operations = [
        migrations.RunSQL(CHAIN, "ALTER TABLE coupon_operation DROP CONSTRAINT ledger_row_follows_the_row_before"),
        migrations.RunSQL(COUPON, "ALTER TABLE user_coupon DROP CONSTRAINT coupon_is_where_its_ledger_says"),
        migrations.RunSQL(ROOM, "ALTER TABLE user_coupon RESET (fillfactor)"),
    ]
