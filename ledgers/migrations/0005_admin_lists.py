from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the lists of the back office filter and sort by, built without stopping writers."""

    atomic = False

    dependencies = [
        ("ledgers", "0004_wallets"),
        ("merchants", "0003_admin_lists"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="journalentry",
            index=models.Index(fields=["kind", "-created_at", "-id"], name="journal_entry_by_kind"),
        ),
        AddIndexConcurrently(
            model_name="stockentry",
            index=models.Index(fields=["kind", "-id"], name="stock_entry_by_kind"),
        ),
        AddIndexConcurrently(
            model_name="stockentry",
            index=models.Index(fields=["bucket", "-id"], name="stock_entry_by_bucket"),
        ),
        AddIndexConcurrently(
            model_name="stockitem",
            index=models.Index(fields=["sku", "id"], name="stock_item_by_sku"),
        ),
    ]
