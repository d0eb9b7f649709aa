"""What reaches the payer after the channel's own vouchers is kept beside what was refunded."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("payments", "0002_fund_flow"),
    ]

    operations = [
        migrations.AddField(
            model_name="refundattempt",
            name="payer_fen",
            field=models.BigIntegerField(
                help_text="What is left of the amount after the channel's own vouchers.",
                null=True,
                verbose_name="reaches the payer",
            ),
        ),
        migrations.AddField(
            model_name="refundfact",
            name="payer_fen",
            field=models.BigIntegerField(null=True, verbose_name="reaches the payer"),
        ),
        migrations.AddConstraint(
            model_name="refundattempt",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("payer_fen__isnull", True),
                    models.Q(("payer_fen__gte", 0), ("payer_fen__lte", models.F("amount_fen"))),
                    _connector="OR",
                ),
                name="payer_gets_at_most_the_amount",
            ),
        ),
    ]
