"""The relay marks what it takes in the statement that takes it: no claims, and a summary of when rows were published."""

import django.contrib.postgres.indexes
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
        migrations.AddIndex(
            model_name="outboxevent",
            index=django.contrib.postgres.indexes.BrinIndex(
                autosummarize=True, fields=["published_at"], name="outbox_published", pages_per_range=32
            ),
        ),
    ]
