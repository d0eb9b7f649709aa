from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the lists of the back office filter and sort by, built without stopping writers."""

    atomic = False

    dependencies = [
        ("merchants", "0003_admin_lists"),
        ("payments", "0003_payer_share"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="channelbill",
            index=models.Index(fields=["-bill_on", "channel", "kind", "id"], name="bill_newest"),
        ),
        AddIndexConcurrently(
            model_name="channelnotify",
            index=models.Index(fields=["channel", "-received_at", "-id"], name="notify_by_channel"),
        ),
        AddIndexConcurrently(
            model_name="channelnotify",
            index=models.Index(fields=["kind", "-received_at", "-id"], name="notify_by_kind"),
        ),
        AddIndexConcurrently(
            model_name="payment",
            index=models.Index(
                condition=models.Q(("status", "PAID"), _negated=True),
                fields=["status", "-created_at", "-id"],
                name="payment_by_status",
            ),
        ),
        AddIndexConcurrently(
            model_name="payment",
            index=models.Index(fields=["channel", "-created_at", "-id"], name="payment_by_channel"),
        ),
        AddIndexConcurrently(
            model_name="payment",
            index=models.Index(fields=["kind", "-created_at", "-id"], name="payment_by_kind"),
        ),
        AddIndexConcurrently(
            model_name="refundrequest",
            index=models.Index(
                condition=models.Q(("status", "SUCCEEDED"), _negated=True),
                fields=["status", "-created_at", "-id"],
                name="refund_by_status",
            ),
        ),
        AddIndexConcurrently(
            model_name="refundrequest",
            index=models.Index(fields=["route", "-created_at", "-id"], name="refund_by_route"),
        ),
        AddIndexConcurrently(
            model_name="refundrequest",
            index=models.Index(fields=["owner_kind", "-created_at", "-id"], name="refund_by_owner_kind"),
        ),
    ]
