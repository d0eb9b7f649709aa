from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the lists of the back office filter and sort by, built without stopping writers."""

    atomic = False

    dependencies = [
        ("kernel", "0002_relay_in_one_statement"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="inboxmessage",
            index=models.Index(
                condition=models.Q(("state__in", ["FAILED", "DEAD"])), fields=["state", "-id"], name="inbox_in_trouble"
            ),
        ),
    ]
