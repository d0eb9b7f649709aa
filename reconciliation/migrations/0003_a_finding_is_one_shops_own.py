from django.db import migrations, models

TO_SHOP = """
ALTER TABLE finding DROP CONSTRAINT finding_once_per_rule_and_key,
    ADD CONSTRAINT finding_once_per_rule_key_shop UNIQUE USING INDEX finding_once_per_rule_key_shop
"""


class Migration(migrations.Migration):
    """Two merchants with the same SKU or user id in trouble have a finding each.

    While both releases run, a reconciliation run of the old one fails for want of its key and writes nothing; beat
    runs it again. Going back needs keys that no two merchants share.
    """

    atomic = False

    dependencies = [("reconciliation", "0002_admin_lists")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "CREATE UNIQUE INDEX CONCURRENTLY finding_once_per_rule_key_shop"
                    " ON finding (rule, key, merchant_id) NULLS NOT DISTINCT",
                    "DROP INDEX CONCURRENTLY IF EXISTS finding_once_per_rule_key_shop",
                ),
                migrations.RunSQL(
                    TO_SHOP,
                    "ALTER TABLE finding DROP CONSTRAINT finding_once_per_rule_key_shop,"
                    " ADD CONSTRAINT finding_once_per_rule_and_key UNIQUE (rule, key)",
                ),
            ],
            state_operations=[
                migrations.RemoveConstraint(model_name="finding", name="finding_once_per_rule_and_key"),
                migrations.AddConstraint(
                    model_name="finding",
                    constraint=models.UniqueConstraint(
                        fields=["rule", "key", "merchant"], name="finding_once_per_rule_key_shop", nulls_distinct=False
                    ),
                ),
            ],
        ),
    ]
