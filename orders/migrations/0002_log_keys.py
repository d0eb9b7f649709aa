"""The two composite keys that Django cannot say: the status log is a chain, and an order is where its log says."""

from django.db import migrations

CHAIN = """
ALTER TABLE order_status_log ADD CONSTRAINT order_log_follows_the_row_before
    FOREIGN KEY (order_id, from_version, from_status)
    REFERENCES order_status_log (order_id, to_version, to_status)
"""
ORDER = """
ALTER TABLE orders ADD CONSTRAINT order_is_where_its_log_says
    FOREIGN KEY (id, version, status)
    REFERENCES order_status_log (order_id, to_version, to_status)
    DEFERRABLE INITIALLY DEFERRED
"""


class Migration(migrations.Migration):
    dependencies = [("orders", "0001_initial")]

    operations = [
        migrations.RunSQL(CHAIN, "ALTER TABLE order_status_log DROP CONSTRAINT order_log_follows_the_row_before"),
        migrations.RunSQL(ORDER, "ALTER TABLE orders DROP CONSTRAINT order_is_where_its_log_says"),
    ]
