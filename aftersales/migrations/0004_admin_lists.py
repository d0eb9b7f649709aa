from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the lists of the back office filter and sort by, built without stopping writers."""

    atomic = False

    dependencies = [
        ("aftersales", "0003_rewards"),
        ("merchants", "0003_admin_lists"),
        ("orders", "0003_admin_lists"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="aftersalesorder",
            index=models.Index(fields=["type", "-created_at", "-id"], name="after_sales_by_type"),
        ),
        AddIndexConcurrently(
            model_name="aftersalesorder",
            index=models.Index(
                condition=models.Q(("status", "REFUND_SUCCESS")), fields=["finished_at"], name="after_sales_by_end"
            ),
        ),
        AddIndexConcurrently(
            model_name="aftersalesorder",
            index=models.Index(
                condition=models.Q(("decided_at__isnull", False)), fields=["decided_at"], name="after_sales_by_decision"
            ),
        ),
        AddIndexConcurrently(
            model_name="arbitrationcase",
            index=models.Index(fields=["opened_at", "id"], name="arbitration_by_time"),
        ),
        AddIndexConcurrently(
            model_name="riskreview",
            index=models.Index(fields=["created_at", "after_sales"], name="risk_review_by_time"),
        ),
        AddIndexConcurrently(
            model_name="shadowday",
            index=models.Index(fields=["-on_date", "-id"], name="shadow_day_newest"),
        ),
        AddIndexConcurrently(
            model_name="shadowdifference",
            index=models.Index(fields=["-created_at", "-id"], name="shadow_difference_all_newest"),
        ),
        AddIndexConcurrently(
            model_name="shadowdifference",
            index=models.Index(fields=["order_no"], name="shadow_difference_by_order"),
        ),
    ]
