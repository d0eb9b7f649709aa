"""The relay marks what it takes in the statement that takes it: no claims, and no index over the published rows."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("kernel", "0001_initial"),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name="outboxevent",
            name="outbox_published",
        ),
        migrations.RemoveField(
            model_name="outboxevent",
            name="claim_token",
        ),
        migrations.RemoveField(
            model_name="outboxevent",
            name="claimed_until",
        ),
    ]
