from django.conf import settings
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """What the lists of the back office filter and sort by, built without stopping writers."""

    atomic = False

    dependencies = [
        ("merchants", "0003_admin_lists"),
        ("reconciliation", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        AddIndexConcurrently(
            model_name="finding",
            index=models.Index(fields=["severity", "-first_seen_at", "-id"], name="finding_by_severity"),
        ),
        AddIndexConcurrently(
            model_name="finding",
            index=models.Index(fields=["rule", "severity", "-first_seen_at"], name="finding_by_rule"),
        ),
        AddIndexConcurrently(
            model_name="finding",
            index=models.Index(fields=["amount_fen"], name="finding_by_amount"),
        ),
        AddIndexConcurrently(
            model_name="finding",
            index=models.Index(fields=["-first_seen_at"], name="finding_by_time"),
        ),
    ]
