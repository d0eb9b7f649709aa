"""The two composite keys that Django cannot say: the log is a chain, and a claim is where its log says."""

from django.db import migrations

CHAIN = """
ALTER TABLE after_sales_log ADD CONSTRAINT after_sales_log_follows_the_line_before
    FOREIGN KEY (after_sales_id, from_version, from_status)
    REFERENCES after_sales_log (after_sales_id, to_version, to_status)
"""
CLAIM = """
ALTER TABLE after_sales_order ADD CONSTRAINT after_sales_is_where_its_log_says
    FOREIGN KEY (id, version, status)
    REFERENCES after_sales_log (after_sales_id, to_version, to_status)
    DEFERRABLE INITIALLY DEFERRED
"""


class Migration(migrations.Migration):
    dependencies = [("aftersales", "0001_initial")]

    operations = [
        migrations.RunSQL(CHAIN, "ALTER TABLE after_sales_log DROP CONSTRAINT after_sales_log_follows_the_line_before"),
        migrations.RunSQL(CLAIM, "ALTER TABLE after_sales_order DROP CONSTRAINT after_sales_is_where_its_log_says"),
    ]
