from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Each number that people search for has an index that begins with it, for staff of all merchants too. Built without stopping writers."""

    atomic = False

    dependencies = [
        ("merchants", "0003_admin_lists"),
        ("payments", "0004_admin_lists"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="channelnotify",
            index=models.Index(
                condition=models.Q(("notify_no", ""), _negated=True), fields=["notify_no"], name="notify_by_notify_no"
            ),
        ),
        AddIndexConcurrently(
            model_name="payment",
            index=models.Index(fields=["order_no", "merchant"], name="payment_of_order"),
        ),
        AddIndexConcurrently(
            model_name="payment",
            index=models.Index(fields=["out_trade_no"], name="payment_by_number"),
        ),
        AddIndexConcurrently(
            model_name="payment",
            index=models.Index(
                condition=models.Q(("trade_no", ""), _negated=True), fields=["trade_no"], name="payment_by_trade_no"
            ),
        ),
        AddIndexConcurrently(
            model_name="refundrequest",
            index=models.Index(fields=["owner_no", "merchant"], name="refund_of_owner"),
        ),
        AddIndexConcurrently(
            model_name="refundrequest",
            index=models.Index(fields=["order_no", "merchant"], name="refund_of_order"),
        ),
        RemoveIndexConcurrently(
            model_name="payment",
            name="payment_by_order",
        ),
        RemoveIndexConcurrently(
            model_name="refundrequest",
            name="refund_by_owner",
        ),
        RemoveIndexConcurrently(
            model_name="refundrequest",
            name="refund_by_order",
        ),
    ]
