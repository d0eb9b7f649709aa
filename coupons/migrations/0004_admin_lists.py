from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the lists of the back office filter and sort by, built without stopping writers."""

    atomic = False

    dependencies = [
        ("coupons", "0003_the_edge_is_one_word"),
        ("merchants", "0003_admin_lists"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="couponrefusal",
            index=models.Index(fields=["command", "-id"], name="refusal_by_command"),
        ),
        AddIndexConcurrently(
            model_name="couponrefusal",
            index=models.Index(fields=["code", "-id"], name="refusal_by_code"),
        ),
        AddIndexConcurrently(
            model_name="refundcoupon",
            index=models.Index(fields=["decision", "-id"], name="return_decision_by_outcome"),
        ),
        AddIndexConcurrently(
            model_name="refundcoupon",
            index=models.Index(fields=["order_no"], name="return_decision_by_order"),
        ),
        AddIndexConcurrently(
            model_name="refundcoupon",
            index=models.Index(fields=["cause_no"], name="return_decision_by_cause"),
        ),
    ]
