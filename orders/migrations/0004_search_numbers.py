from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Every coupon state has an index: which one is rare depends on the shop. Built without stopping writers."""

    atomic = False

    dependencies = [
        ("merchants", "0003_admin_lists"),
        ("orders", "0003_admin_lists"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="order",
            index=models.Index(fields=["coupon_state", "-created_at", "-id"], name="order_by_coupon_state"),
        ),
        RemoveIndexConcurrently(
            model_name="order",
            name="order_by_coupon_trouble",
        ),
    ]
