from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the lists of the back office filter and sort by, built without stopping writers."""

    atomic = False

    dependencies = [
        ("merchants", "0002_saved_filter"),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="staffaction",
            index=models.Index(fields=["role", "-id"], name="staff_action_by_role"),
        ),
        AddIndexConcurrently(
            model_name="staffaction",
            index=models.Index(fields=["subject_label"], name="staff_action_by_label"),
        ),
    ]
