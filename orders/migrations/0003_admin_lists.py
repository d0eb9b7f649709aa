from django.conf import settings
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the lists of the back office filter and sort by, built without stopping writers."""

    atomic = False

    dependencies = [
        ("merchants", "0003_admin_lists"),
        ("orders", "0002_log_keys"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="anomaly",
            index=models.Index(fields=["kind", "-created_at", "-id"], name="anomaly_by_kind"),
        ),
        AddIndexConcurrently(
            model_name="anomaly",
            index=models.Index(fields=["state", "-created_at", "-id"], name="anomaly_by_state"),
        ),
        AddIndexConcurrently(
            model_name="order",
            index=models.Index(
                condition=models.Q(("status", 30), _negated=True),
                fields=["status", "-created_at", "-id"],
                name="order_by_status",
            ),
        ),
        AddIndexConcurrently(
            model_name="order",
            index=models.Index(
                condition=models.Q(("fulfilment", "done"), _negated=True),
                fields=["fulfilment", "-created_at", "-id"],
                name="order_by_fulfilment",
            ),
        ),
        AddIndexConcurrently(
            model_name="order",
            index=models.Index(
                condition=models.Q(("coupon_state__in", ["leased", "released", "honoured", "conflict"])),
                fields=["coupon_state", "-created_at", "-id"],
                name="order_by_coupon_trouble",
            ),
        ),
        AddIndexConcurrently(
            model_name="order",
            index=models.Index(
                condition=models.Q(("closed_reason", ""), _negated=True),
                fields=["closed_reason", "-created_at", "-id"],
                name="order_by_closed_reason",
            ),
        ),
        AddIndexConcurrently(
            model_name="order",
            index=models.Index(fields=["pay_method", "-created_at", "-id"], name="order_by_pay_method"),
        ),
        AddIndexConcurrently(
            model_name="order",
            index=models.Index(
                condition=models.Q(("paid_at__isnull", False)), fields=["paid_at"], name="order_by_payment_time"
            ),
        ),
        AddIndexConcurrently(
            model_name="quote",
            index=models.Index(fields=["state", "-created_at", "-id"], name="quote_by_state"),
        ),
    ]
