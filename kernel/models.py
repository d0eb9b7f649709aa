"""Tables that every command may write: idempotency keys, the outbox, the inbox."""

import pgtrigger
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q

from kernel import numbers


class IdempotencyKey(models.Model):
    """A business key that has taken effect, with the result that every replay gets back."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant_id = models.UUIDField()
    key = models.CharField(max_length=200)
    request_hash = models.CharField(max_length=64)
    result = models.JSONField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "idempotency_key"
        constraints = [
            models.UniqueConstraint(fields=["merchant_id", "key"], name="idempotency_key_is_used_once"),
        ]


class OutboxEvent(models.Model):
    """A fact on its way out, written in the transaction that made it true. Its content never changes."""

    class State(models.TextChoices):
        PENDING = "PENDING"
        PUBLISHED = "PUBLISHED"

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    name = models.CharField(max_length=64)
    version = models.PositiveSmallIntegerField(default=1)
    merchant_id = models.UUIDField(null=True)
    subject = models.CharField(max_length=64)
    payload = models.JSONField(default=dict)
    created_at = models.DateTimeField()
    state = models.CharField(max_length=16, choices=State.choices, default=State.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    available_at = models.DateTimeField()
    published_at = models.DateTimeField(null=True)
    last_error = models.TextField(blank=True, default="")

    class Meta:
        db_table = "outbox_event"
        indexes = [
            models.Index(fields=["id"], condition=Q(state="PENDING"), name="outbox_pending"),
            # A summary, not an entry per row: publishing writes in order of time, and is what has to be fast.
            BrinIndex(fields=["published_at"], name="outbox_published", autosummarize=True, pages_per_range=32),
            models.Index(fields=["subject", "created_at"], name="outbox_by_subject"),
        ]
        triggers = [
            pgtrigger.ReadOnly(
                name="content_is_fixed",
                fields=["id", "name", "version", "merchant_id", "subject", "payload", "created_at"],
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.subject}"


class InboxMessage(models.Model):
    """What one consumer made of one event. DONE commits together with the effect, so an effect happens once."""

    class State(models.TextChoices):
        RUNNING = "RUNNING"
        DONE = "DONE"
        FAILED = "FAILED"
        DEAD = "DEAD"

    id = models.BigAutoField(primary_key=True)
    consumer = models.CharField(max_length=64)
    event_id = models.UUIDField()
    event_name = models.CharField(max_length=64)
    state = models.CharField(max_length=16, choices=State.choices)
    attempts = models.PositiveIntegerField(default=0)
    available_at = models.DateTimeField()
    last_error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "inbox_message"
        constraints = [
            models.UniqueConstraint(fields=["event_id", "consumer"], name="event_takes_effect_once_per_consumer"),
            models.CheckConstraint(
                condition=Q(state="DONE", done_at__isnull=False) | (~Q(state="DONE") & Q(done_at__isnull=True)),
                name="inbox_done_has_time",
            ),
        ]
        indexes = [
            models.Index(fields=["available_at"], condition=Q(state__in=["FAILED", "RUNNING"]), name="inbox_due"),
            models.Index(fields=["created_at"], condition=Q(state="DEAD"), name="inbox_dead"),
            models.Index(fields=["state", "-id"], condition=Q(state__in=["FAILED", "DEAD"]), name="inbox_in_trouble"),
        ]

    def __str__(self) -> str:
        return f"{self.consumer} {self.event_id} {self.state}"
