"""What a reconciliation leaves behind: runs, findings, and the work people did on findings.

A finding is evidence, not a flag: it keeps both sides' figures, says which command would repair it, and
ends only when a later look at the same books no longer sees it, or a person accepts it with a reason.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel import numbers
from kernel.append_only import append_only


class ReconciliationRun(models.Model):
    """One look at one day's books (`daily`), or the day's series of looks at what changed (`gate`)."""

    class Kind(models.TextChoices):
        DAILY = "daily", _("Daily")
        GATE = "gate", _("Every minute")

    class State(models.TextChoices):
        RUNNING = "RUNNING", _("Running")
        WAITING = "WAITING", _("Waiting for a bill")
        DONE = "DONE", _("Done")
        FAILED = "FAILED", _("Failed")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    kind = models.TextField(_("kind"), choices=Kind.choices)
    on_date = models.DateField(_("day"), help_text=_("The channel's day, Asia/Shanghai."))
    merchant = models.ForeignKey(
        "merchants.Merchant",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("merchant"),
    )
    state = models.TextField(_("state"), choices=State.choices, default=State.RUNNING)
    totals = models.JSONField(default=dict)
    items = models.BigIntegerField(_("compared"), default=0, help_text=_("How many pairs were compared."))
    matched = models.BigIntegerField(_("agree"), default=0, help_text=_("How many of them agreed."))
    timing = models.BigIntegerField(
        _("timing items"), default=0, help_text=_("Accepted on one day and done on another.")
    )
    findings_seen = models.BigIntegerField(_("findings"), default=0)
    findings_opened = models.BigIntegerField(_("new findings"), default=0)
    tries = models.IntegerField(default=0)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    checked_until_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, default="")

    class Meta:
        db_table = "reconciliation_run"
        verbose_name = _("reconciliation run")
        verbose_name_plural = _("reconciliation runs")
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "on_date", "merchant"],
                nulls_distinct=False,
                name="reconciliation_run_one_per_day",
            ),
            models.CheckConstraint(
                condition=Q(items__gte=models.F("matched")) & Q(matched__gte=0),
                name="reconciliation_run_matched_within_items",
            ),
            models.CheckConstraint(
                condition=~Q(state="DONE") | Q(finished_at__isnull=False),
                name="reconciliation_run_done_has_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.on_date} {self.get_kind_display()}"

    @property
    def match_rate(self) -> float | None:
        """Percent of compared pairs that agreed; None when there was nothing to compare."""
        return 100 * self.matched / self.items if self.items else None


class Finding(models.Model):
    """Two books that disagree, or one that breaks a rule. One row per (rule, key, merchant), for ever."""

    class Severity(models.TextChoices):
        P0 = "P0", _("P0: money or ownership is wrong")
        P1 = "P1", _("P1: will become wrong")
        P2 = "P2", _("P2: late or unproven")
        P3 = "P3", _("P3: worth knowing")

    class State(models.TextChoices):
        OPEN = "OPEN", _("Open")
        ASSIGNED = "ASSIGNED", _("Assigned")
        REPAIR_REQUESTED = "REPAIR_REQUESTED", _("Repair waits for a second person")
        REPAIRED = "REPAIRED", _("Repaired, to be checked again")
        RESOLVED = "RESOLVED", _("Resolved: a later run no longer sees it")
        ACCEPTED = "ACCEPTED", _("Accepted with a reason")

    UNFINISHED = (State.OPEN, State.ASSIGNED, State.REPAIR_REQUESTED, State.REPAIRED)

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    rule = models.TextField(_("rule"))
    key = models.TextField(_("about"), help_text=_("What the finding is about: a refund number, a coupon, an order."))
    merchant = models.ForeignKey(
        "merchants.Merchant",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("merchant"),
    )
    severity = models.TextField(_("severity"), choices=Severity.choices)
    on_date = models.DateField(null=True, blank=True, help_text=_("The day it belongs to, for day rules."))
    ours = models.JSONField(default=dict)
    theirs = models.JSONField(default=dict)
    amount_fen = models.BigIntegerField(
        _("difference"), default=0, help_text=_("By how much the books differ, in fen.")
    )
    state = FSMField(_("state"), default=State.OPEN, choices=State.choices, max_length=20)
    version = models.BigIntegerField(default=1)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("owner"),
    )
    repair_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+"
    )
    accepted_reason = models.TextField(blank=True, default="")
    times_opened = models.IntegerField(default=1)
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    last_run = models.ForeignKey(ReconciliationRun, models.PROTECT, related_name="last_findings")

    class Meta:
        db_table = "finding"
        verbose_name = _("finding")
        verbose_name_plural = _("findings")
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "key", "merchant"], name="finding_once_per_rule_key_shop", nulls_distinct=False
            ),
            models.CheckConstraint(condition=Q(severity__in=["P0", "P1", "P2", "P3"]), name="finding_severity_known"),
            models.CheckConstraint(
                condition=~Q(state="ACCEPTED") | ~Q(accepted_reason=""), name="finding_accepted_has_reason"
            ),
            models.CheckConstraint(
                condition=(Q(state__in=["RESOLVED", "ACCEPTED"]) & Q(closed_at__isnull=False))
                | (~Q(state__in=["RESOLVED", "ACCEPTED"]) & Q(closed_at__isnull=True)),
                name="finding_closed_has_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="REPAIR_REQUESTED") | Q(repair_requested_by__isnull=False),
                name="finding_repair_request_has_person",
            ),
        ]
        indexes = [
            models.Index(
                fields=["severity", "-first_seen_at"],
                condition=~Q(state__in=["RESOLVED", "ACCEPTED"]),
                name="finding_unfinished",
            ),
            models.Index(fields=["on_date", "rule"], name="finding_by_day"),
            models.Index(fields=["severity", "-first_seen_at", "-id"], name="finding_by_severity"),
            models.Index(fields=["rule", "severity", "-first_seen_at"], name="finding_by_rule"),
            models.Index(fields=["amount_fen"], name="finding_by_amount"),
            models.Index(fields=["-first_seen_at"], name="finding_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.severity} {self.rule} {self.key}"

    # The graph of a finding. Bodies stay empty: kernel.statemachine.advance makes the move.

    @transition(field=state, source=[State.OPEN, State.ASSIGNED], target=State.ASSIGNED)
    def assign(self) -> None: ...

    @transition(field=state, source=[State.OPEN, State.ASSIGNED], target=State.REPAIR_REQUESTED)
    def request_repair(self) -> None: ...

    @transition(field=state, source=[State.OPEN, State.ASSIGNED, State.REPAIR_REQUESTED], target=State.REPAIRED)
    def mark_repaired(self) -> None: ...

    @transition(field=state, source=[State.REPAIR_REQUESTED], target=State.ASSIGNED)
    def refuse_repair(self) -> None: ...

    @transition(field=state, source=[State.OPEN, State.ASSIGNED, State.REPAIRED], target=State.ACCEPTED)
    def accept(self) -> None: ...

    @transition(
        field=state,
        source=[State.OPEN, State.ASSIGNED, State.REPAIR_REQUESTED, State.REPAIRED],
        target=State.RESOLVED,
    )
    def resolve(self) -> None: ...

    @transition(field=state, source=[State.REPAIRED, State.RESOLVED, State.ACCEPTED], target=State.OPEN)
    def reopen(self) -> None: ...


class FindingSighting(models.Model):
    """A run saw a finding, with these figures. The run page lists them; a run seen twice keeps one."""

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(ReconciliationRun, models.PROTECT, related_name="sightings")
    finding = models.ForeignKey(Finding, models.PROTECT, related_name="sightings")
    ours = models.JSONField(default=dict)
    theirs = models.JSONField(default=dict)
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "finding_sighting"
        verbose_name = _("sighting")
        verbose_name_plural = _("sightings")
        constraints = [
            models.UniqueConstraint(fields=["run", "finding"], name="finding_sighting_once_per_run"),
        ]


class FindingComment(models.Model):
    """What people and commands said and did about a finding. Append-only."""

    class Kind(models.TextChoices):
        COMMENT = "comment", _("Comment")
        ASSIGNED = "assigned", _("Assigned")
        REPAIR_REQUESTED = "repair_requested", _("Repair requested")
        REPAIR_REFUSED = "repair_refused", _("Repair refused")
        REPAIRED = "repaired", _("Repaired")
        ACCEPTED = "accepted", _("Accepted")
        RESOLVED = "resolved", _("Resolved by a run")
        REOPENED = "reopened", _("Seen again")

    id = models.BigAutoField(primary_key=True)
    finding = models.ForeignKey(Finding, models.PROTECT, related_name="comments")
    kind = models.TextField(choices=Kind.choices)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")
    text = models.TextField(blank=True, default="")
    data = models.JSONField(default=dict)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "finding_comment"
        verbose_name = _("finding comment")
        verbose_name_plural = _("finding comments")
        indexes = [models.Index(fields=["finding", "id"], name="finding_comment_by_finding")]
        triggers = append_only()


class TimingItem(models.Model):
    """A pair that differs only because the channel accepted it on one day and finished it on another.

    It raises no alarm. `settled_at` is set when a later look, or the channel's own answer, closed it.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(ReconciliationRun, models.PROTECT, related_name="timing_items")
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    section = models.TextField()
    number = models.TextField()
    ours = models.JSONField(default=dict)
    theirs = models.JSONField(default=dict)
    settled_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "reconciliation_timing_item"
        verbose_name = _("timing item")
        verbose_name_plural = _("timing items")
        constraints = [
            models.UniqueConstraint(fields=["run", "section", "number"], name="timing_item_once_per_run"),
        ]
