"""Movements of the fund-flow bill are found by our number; a bill that was read says so in a word of its own."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("payments", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="channelbill",
            name="state",
            field=models.CharField(
                choices=[
                    ("WAITING", "Not there yet"),
                    ("EMPTY", "No rows that day"),
                    ("PARSED", "Parsed"),
                    ("CORRUPT", "Does not add up"),
                ],
                max_length=16,
                verbose_name="state",
            ),
        ),
        migrations.AddIndex(
            model_name="billline",
            index=models.Index(
                condition=models.Q(("reference", ""), _negated=True),
                fields=["merchant", "reference"],
                name="bill_line_by_reference",
            ),
        ),
    ]
