"""What went to a channel, what came back, and how much of it may still be refunded.

Two machines live here, a payment's and a refund's. Whether an outside fact may move them is decided in `commands/`;
what must never happen whoever writes is kept by the database: committed refunds within what was paid, one live refund
attempt, a refund number bound to its amount for ever, raw notifies and channel facts that only grow.
"""

from __future__ import annotations

import pgtrigger
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel import numbers
from kernel.append_only import append_only

MAX_REFUNDS_PER_PAYMENT = 50
"""A channel takes at most this many refund numbers for one payment."""


class ChannelAccount(models.Model):
    """One merchant's account at one channel. Secrets are encrypted under the environment's field keys.

    `settings` (JSON, optional keys): see payments/accounts.py for the pace of refunds, payments/registry.py for what
    the driver reads.
    """

    class Channel(models.TextChoices):
        WECHAT = "wechat", _("WeChat Pay")
        ALIPAY = "alipay", _("Alipay")
        BALANCE = "balance", _("Balance")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="channel_accounts")
    channel = models.CharField(_("channel"), max_length=16, choices=Channel.choices)
    name = models.CharField(_("name"), max_length=64, blank=True, default="")
    mchid = models.CharField(_("merchant number at the channel"), max_length=32, blank=True, default="")
    app_id = models.CharField(_("app id"), max_length=64, blank=True, default="")
    settings = models.JSONField(_("settings"), default=dict, blank=True)
    secrets_encrypted = models.TextField(default="", blank=True, editable=False)
    is_active = models.BooleanField(_("active"), default=True)
    version = models.BigIntegerField(default=1)
    tested_at = models.DateTimeField(_("connection tested"), null=True, blank=True)
    test_result = models.CharField(_("result of the test"), max_length=200, blank=True, default="")
    created_at = models.DateTimeField(_("created"))
    changed_at = models.DateTimeField(_("changed"))

    class Meta:
        db_table = "channel_account"
        verbose_name = _("channel account")
        verbose_name_plural = _("channel accounts")
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "channel"], condition=Q(is_active=True), name="one_active_account_per_channel"
            ),
            models.UniqueConstraint(fields=["merchant", "channel", "mchid"], name="channel_account_is_named_once"),
            models.CheckConstraint(
                condition=Q(channel="balance") | (~Q(mchid="") & ~Q(app_id="")),
                name="channel_account_has_mchid_and_app_id",
            ),
        ]
        indexes = [
            models.Index(fields=["channel", "mchid"], condition=Q(is_active=True), name="channel_account_by_mchid"),
        ]

    def __str__(self) -> str:
        return self.name or f"{self.channel} {self.mchid}"


class Payment(models.Model):
    """One charge: an order (or supplement) asked for at a channel, or found there (`extra`: a second charge)."""

    class Kind(models.TextChoices):
        ORDER = "order", _("Order")
        SUPPLEMENT = "supplement", _("Supplement")
        EXTRA = "extra", _("Second charge")
        NONE = "none", _("Nothing to pay")

    class Status(models.TextChoices):
        CREATED = "CREATED", _("Created")
        PREPAYING = "PREPAYING", _("Being placed")
        AWAITING = "AWAITING", _("Awaiting payment")
        PAID = "PAID", _("Paid")
        CLOSED = "CLOSED", _("Closed")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.ForeignKey(ChannelAccount, models.PROTECT, null=True, related_name="+")
    order_no = models.CharField(_("order number"), max_length=32)
    out_trade_no = models.CharField(_("payment number"), max_length=32)
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    channel = models.CharField(_("channel"), max_length=16)
    amount_fen = models.BigIntegerField(_("amount"))
    status = FSMField(_("status"), max_length=16, choices=Status.choices, default=Status.CREATED)
    version = models.BigIntegerField(default=1)
    trade_no = models.CharField(_("channel trade number"), max_length=64, blank=True, default="")
    payer_ref = models.CharField(max_length=128, blank=True, default="")
    payer_paid_fen = models.BigIntegerField(_("paid by the payer after vouchers"), null=True)
    prepay_id = models.CharField(max_length=128, blank=True, default="")
    client_params = models.JSONField(default=dict, blank=True)
    prepay_started_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(_("expires"), null=True)
    paid_at = models.DateTimeField(_("paid"), null=True)
    closed_at = models.DateTimeField(_("closed"), null=True)
    created_at = models.DateTimeField(_("created"))
    refund_committed_fen = models.BigIntegerField(
        _("committed to refunds"), default=0, help_text=_("Σ of every refund that is not known dead.")
    )
    refunded_fen = models.BigIntegerField(_("refunded"), default=0)
    refund_count = models.PositiveIntegerField(
        _("refund numbers used"), default=0, help_text=_("Numbers given to the channel; it takes at most 50.")
    )
    next_refund_at = models.DateTimeField(
        _("next refund not before"), null=True, help_text=_("The channel wants a pause between two refunds.")
    )

    class Meta:
        db_table = "payment"
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "out_trade_no"], condition=~Q(kind="extra"), name="out_trade_no_is_used_once"
            ),
            models.UniqueConstraint(
                fields=["merchant", "channel", "trade_no"], condition=~Q(trade_no=""), name="trade_no_is_paid_once"
            ),
            models.UniqueConstraint(
                fields=["merchant", "order_no", "kind"],
                condition=Q(status__in=["CREATED", "PREPAYING", "AWAITING"]),
                name="one_open_payment_per_order",
            ),
            models.CheckConstraint(condition=Q(amount_fen__gte=0), name="payment_amount_is_not_negative"),
            models.CheckConstraint(
                condition=Q(kind="none", amount_fen=0, channel="none", account__isnull=True)
                | (~Q(kind="none") & Q(amount_fen__gt=0, account__isnull=False)),
                name="payment_without_channel_is_free",
            ),
            models.CheckConstraint(
                condition=Q(refund_committed_fen__gte=0) & Q(refund_committed_fen__lte=F("amount_fen")),
                name="refunds_committed_within_paid",
            ),
            models.CheckConstraint(
                condition=Q(refunded_fen__gte=0) & Q(refunded_fen__lte=F("refund_committed_fen")),
                name="refunded_within_committed",
            ),
            models.CheckConstraint(
                condition=Q(refund_count__lte=MAX_REFUNDS_PER_PAYMENT), name="refund_count_within_channel_limit"
            ),
            models.CheckConstraint(
                condition=Q(status="PAID", paid_at__isnull=False) & (Q(kind="none") | ~Q(trade_no=""))
                | (~Q(status="PAID") & Q(paid_at__isnull=True, trade_no="", refund_committed_fen=0)),
                name="paid_has_time_and_trade_no",
            ),
            models.CheckConstraint(
                condition=~Q(status="CLOSED") | Q(closed_at__isnull=False), name="payment_closed_has_time"
            ),
        ]
        indexes = [
            models.Index(fields=["order_no", "merchant"], name="payment_of_order"),
            models.Index(fields=["out_trade_no"], name="payment_by_number"),
            models.Index(fields=["trade_no"], condition=~Q(trade_no=""), name="payment_by_trade_no"),
            models.Index(fields=["-created_at", "-id"], name="payment_newest"),
            models.Index(fields=["merchant", "-created_at", "-id"], name="payment_newest_of_merchant"),
            models.Index(fields=["paid_at"], condition=Q(status="PAID"), name="payment_by_paid_at"),
            models.Index(
                fields=["status", "-created_at", "-id"], condition=~Q(status="PAID"), name="payment_by_status"
            ),
            models.Index(fields=["channel", "-created_at", "-id"], name="payment_by_channel"),
            models.Index(fields=["kind", "-created_at", "-id"], name="payment_by_kind"),
        ]

    def __str__(self) -> str:
        return self.out_trade_no

    # The graph of a payment. Bodies stay empty: kernel.statemachine.advance makes the move.

    @transition(field=status, source=[Status.CREATED, Status.PREPAYING, Status.AWAITING], target=Status.PREPAYING)
    def begin_prepay(self) -> None: ...

    @transition(field=status, source=[Status.PREPAYING], target=Status.AWAITING)
    def finish_prepay(self) -> None: ...

    @transition(
        field=status,
        source=[Status.CREATED, Status.PREPAYING, Status.AWAITING, Status.CLOSED],
        target=Status.PAID,
    )
    def record_paid(self) -> None: ...

    @transition(field=status, source=[Status.CREATED, Status.PREPAYING, Status.AWAITING], target=Status.CLOSED)
    def close(self) -> None: ...

    @transition(field=status, source=[Status.PAID], target=Status.PAID)
    def commit_refund(self) -> None: ...

    @transition(field=status, source=[Status.PAID], target=Status.PAID)
    def use_refund_number(self) -> None: ...

    @transition(field=status, source=[Status.PAID], target=Status.PAID)
    def take_refund_slot(self) -> None: ...

    @transition(field=status, source=[Status.PAID], target=Status.PAID)
    def record_refunded(self) -> None: ...

    @transition(field=status, source=[Status.PAID], target=Status.PAID)
    def release_refund(self) -> None: ...


class ChannelNotify(models.Model):
    """Every callback as it came, with the verdict of its verification. Only grows."""

    class Kind(models.TextChoices):
        PAYMENT = "payment", _("Payment")
        REFUND = "refund", _("Refund")

    class Verdict(models.TextChoices):
        VERIFIED = "VERIFIED", _("Verified")
        FORGED = "FORGED", _("Forged")
        STALE = "STALE", _("Stale")
        MALFORMED = "MALFORMED", _("Malformed")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    channel = models.CharField(_("channel"), max_length=16)
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, null=True, related_name="+")
    account = models.ForeignKey(ChannelAccount, models.PROTECT, null=True, related_name="+")
    verdict = models.CharField(_("verdict"), max_length=16, choices=Verdict.choices)
    reason = models.CharField(_("reason"), max_length=200, blank=True, default="")
    headers = models.JSONField(_("headers"), default=dict)
    body = models.BinaryField(_("body"), max_length=65536)
    body_size = models.PositiveIntegerField(_("size of the body"))
    notify_no = models.CharField(_("notify number"), max_length=128, blank=True, default="")
    event_type = models.CharField(_("event type"), max_length=64, blank=True, default="")
    out_trade_no = models.CharField(_("payment number"), max_length=64, blank=True, default="")
    trade_no = models.CharField(_("channel trade number"), max_length=64, blank=True, default="")
    refund_no = models.CharField(_("refund number"), max_length=64, blank=True, default="")
    facts = models.JSONField(
        _("what it says"), default=dict, help_text=_("The verified content, channel-neutral; empty otherwise.")
    )
    address = models.CharField(_("address"), max_length=64, blank=True, default="")
    received_at = models.DateTimeField(_("received"))

    class Meta:
        db_table = "channel_notify"
        verbose_name = _("notify")
        verbose_name_plural = _("notifies")
        constraints = [
            models.CheckConstraint(
                condition=~Q(verdict="VERIFIED") | Q(merchant__isnull=False, account__isnull=False),
                name="verified_notify_has_account",
            ),
            models.CheckConstraint(
                condition=Q(verdict__in=["VERIFIED", "FORGED", "STALE", "MALFORMED"]), name="notify_verdict_known"
            ),
        ]
        indexes = [
            models.Index(fields=["-received_at", "-id"], name="notify_newest"),
            models.Index(fields=["verdict", "-received_at"], name="notify_by_verdict"),
            models.Index(fields=["out_trade_no"], condition=~Q(out_trade_no=""), name="notify_by_out_trade_no"),
            models.Index(fields=["trade_no"], condition=~Q(trade_no=""), name="notify_by_trade_no"),
            models.Index(fields=["refund_no"], condition=~Q(refund_no=""), name="notify_by_refund_no"),
            models.Index(fields=["notify_no"], condition=~Q(notify_no=""), name="notify_by_notify_no"),
            models.Index(
                fields=["address", "received_at"], condition=~Q(verdict="VERIFIED"), name="notify_refused_by_address"
            ),
            models.Index(fields=["channel", "-received_at", "-id"], name="notify_by_channel"),
            models.Index(fields=["kind", "-received_at", "-id"], name="notify_by_kind"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.channel} {self.kind} {self.verdict}"


class RefundRequest(models.Model):
    """Money that must go back to one payment for one reason (its owner). It may need several attempts."""

    class OwnerKind(models.TextChoices):
        AFTER_SALES = "after_sales", _("After-sales order")
        ORDER_PAYMENT = "order_payment", _("Payment of an order")

    class Status(models.TextChoices):
        PENDING = "PENDING", _("Under way")
        SUCCEEDED = "SUCCEEDED", _("Refunded")
        FAILED = "FAILED", _("Failed, needs a person")
        ABANDONED = "ABANDONED", _("Given up")

    class Route(models.TextChoices):
        CHANNEL = "channel", _("The way it was paid")
        BALANCE = "balance", _("To the user's balance")
        OFFLINE = "offline", _("Offline, with a voucher")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    payment = models.ForeignKey(Payment, models.PROTECT, related_name="refund_requests")
    order_no = models.CharField(_("order number"), max_length=32)
    owner_kind = models.CharField(_("for"), max_length=16, choices=OwnerKind.choices)
    owner_no = models.CharField(_("number"), max_length=48)
    amount_fen = models.BigIntegerField(_("amount"))
    reason = models.CharField(_("reason"), max_length=80, blank=True, default="")
    route = models.CharField(_("way"), max_length=16, choices=Route.choices, default=Route.CHANNEL)
    route_reason = models.CharField(_("why this way"), max_length=64, blank=True, default="")
    status = FSMField(_("status"), max_length=16, choices=Status.choices, default=Status.PENDING)
    version = models.BigIntegerField(default=1)
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    failure_code = models.CharField(_("why it failed"), max_length=64, blank=True, default="")
    refund_no = models.CharField(_("refund number"), max_length=64, blank=True, default="")
    voucher = models.CharField(_("voucher"), max_length=128, blank=True, default="")
    voucher_by = models.CharField(_("voucher entered by"), max_length=150, blank=True, default="")
    approved_by = models.CharField(_("approved by"), max_length=150, blank=True, default="")
    created_at = models.DateTimeField(_("requested"))
    succeeded_at = models.DateTimeField(_("refunded"), null=True)
    recorded_at = models.DateTimeField(
        _("recorded"), null=True, help_text=_("When we learned of it; the channel's own time is kept beside.")
    )

    class Meta:
        db_table = "refund_request"
        verbose_name = _("refund request")
        verbose_name_plural = _("refund requests")
        constraints = [
            models.UniqueConstraint(
                fields=["payment", "owner_kind", "owner_no"], name="refund_is_requested_once_per_owner"
            ),
            models.CheckConstraint(condition=Q(amount_fen__gt=0), name="refund_amount_is_positive"),
            models.CheckConstraint(
                condition=Q(status="SUCCEEDED", succeeded_at__isnull=False, recorded_at__isnull=False)
                & ~Q(refund_no="")
                | (~Q(status="SUCCEEDED") & Q(succeeded_at__isnull=True, recorded_at__isnull=True, refund_no="")),
                name="refund_succeeded_has_time_and_number",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=["FAILED", "ABANDONED"]) | ~Q(failure_code=""),
                name="refund_failed_has_code",
            ),
            models.CheckConstraint(
                condition=Q(route="channel") | ~Q(route_reason=""), name="refund_by_other_means_has_reason"
            ),
            models.CheckConstraint(
                condition=Q(approved_by="") | (~Q(voucher="") & ~Q(approved_by=F("voucher_by"))),
                name="offline_refund_has_second_person",
            ),
        ]
        indexes = [
            models.Index(fields=["owner_no", "merchant"], name="refund_of_owner"),
            models.Index(fields=["order_no", "merchant"], name="refund_of_order"),
            models.Index(fields=["-created_at", "-id"], name="refund_newest"),
            models.Index(fields=["merchant", "-created_at", "-id"], name="refund_newest_of_merchant"),
            models.Index(fields=["succeeded_at"], condition=Q(status="SUCCEEDED"), name="refund_by_succeeded_at"),
            models.Index(
                fields=["created_at"], condition=Q(status__in=["PENDING", "FAILED"]), name="refund_unfinished"
            ),
            models.Index(
                fields=["status", "-created_at", "-id"], condition=~Q(status="SUCCEEDED"), name="refund_by_status"
            ),
            models.Index(fields=["route", "-created_at", "-id"], name="refund_by_route"),
            models.Index(fields=["owner_kind", "-created_at", "-id"], name="refund_by_owner_kind"),
        ]

    def __str__(self) -> str:
        return self.owner_no

    # The graph of a refund request.

    @transition(field=status, source=[Status.PENDING, Status.FAILED, Status.ABANDONED], target=Status.SUCCEEDED)
    def succeed(self) -> None: ...

    @transition(field=status, source=[Status.PENDING, Status.FAILED], target=Status.FAILED)
    def fail(self) -> None: ...

    @transition(field=status, source=[Status.FAILED], target=Status.PENDING)
    def retry(self) -> None: ...

    @transition(field=status, source=[Status.FAILED], target=Status.ABANDONED)
    def abandon(self) -> None: ...

    @transition(field=status, source=[Status.FAILED], target=Status.FAILED)
    def enter_voucher(self) -> None: ...


class RefundAttempt(models.Model):
    """One refund number at the channel. The number is stored before it is ever sent, and keeps its amount for ever."""

    class Status(models.TextChoices):
        CREATED = "CREATED", _("Not sent yet")
        SENT = "SENT", _("Sent, outcome unknown")
        PROCESSING = "PROCESSING", _("Accepted by the channel")
        SUCCESS = "SUCCESS", _("Refunded")
        CLOSED = "CLOSED", _("Closed by the channel")
        ABNORMAL = "ABNORMAL", _("Parked by the channel")
        REFUSED = "REFUSED", _("Refused")

    LIVE = (Status.CREATED, Status.SENT, Status.PROCESSING, Status.ABNORMAL)
    """The money may still arrive: no other number may be used beside."""
    IN_WORK = (Status.CREATED, Status.SENT, Status.PROCESSING)
    """There is something for a worker to do at next_action_at."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    request = models.ForeignKey(RefundRequest, models.PROTECT, related_name="attempt_rows")
    payment = models.ForeignKey(Payment, models.PROTECT, related_name="refund_attempts")
    seq = models.PositiveIntegerField(_("attempt"))
    number = models.CharField(_("refund number"), max_length=64)
    amount_fen = models.BigIntegerField(_("amount"))
    payer_fen = models.BigIntegerField(
        _("reaches the payer"), null=True, help_text=_("What is left of the amount after the channel's own vouchers.")
    )
    status = FSMField(_("status"), max_length=16, choices=Status.choices, default=Status.CREATED)
    version = models.BigIntegerField(default=1)
    channel_refund_id = models.CharField(_("number at the channel"), max_length=64, blank=True, default="")
    sends = models.PositiveIntegerField(_("times sent"), default=0)
    queries = models.PositiveIntegerField(_("times asked"), default=0, help_text=_("Since the last send."))
    sent_at = models.DateTimeField(_("last sent"), null=True)
    unanswered_sends = models.PositiveIntegerField(
        _("sends without an answer"),
        default=0,
        help_text=_("Counted up before a send and down by its answer. While it is not 0, no refusal proves it dead."),
    )
    resend = models.BooleanField(
        default=False, help_text=_("The channel did not accept it yet: send the same number again, do not only ask.")
    )
    next_action_at = models.DateTimeField(_("next action"), null=True)
    picked_at = models.DateTimeField(null=True)
    last_error = models.CharField(_("last error"), max_length=200, blank=True, default="")
    created_at = models.DateTimeField(_("created"))
    finished_at = models.DateTimeField(_("finished"), null=True)

    class Meta:
        db_table = "refund_attempt"
        verbose_name = _("refund attempt")
        verbose_name_plural = _("refund attempts")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "number"], name="refund_number_is_used_once"),
            models.UniqueConstraint(fields=["request", "seq"], name="refund_attempt_is_counted_once"),
            models.UniqueConstraint(
                fields=["request"],
                condition=Q(status__in=["CREATED", "SENT", "PROCESSING", "ABNORMAL"]),
                name="one_live_attempt_per_refund",
            ),
            models.CheckConstraint(condition=Q(amount_fen__gt=0), name="attempt_amount_is_positive"),
            models.CheckConstraint(
                condition=Q(payer_fen__isnull=True) | Q(payer_fen__gte=0, payer_fen__lte=F("amount_fen")),
                name="payer_gets_at_most_the_amount",
            ),
            models.CheckConstraint(
                condition=Q(status__in=["CREATED", "SENT", "PROCESSING"], next_action_at__isnull=False)
                | (
                    Q(status__in=["SUCCESS", "CLOSED", "ABNORMAL", "REFUSED"])
                    & Q(next_action_at__isnull=True, finished_at__isnull=False)
                ),
                name="attempt_in_work_has_next_action",
            ),
            models.CheckConstraint(
                condition=~Q(status="SENT") | Q(sent_at__isnull=False), name="attempt_sent_has_time"
            ),
        ]
        indexes = [
            models.Index(
                fields=["next_action_at"],
                condition=Q(status__in=["CREATED", "SENT", "PROCESSING"]),
                name="attempt_due",
            ),
            models.Index(fields=["payment", "seq"], name="attempt_by_payment"),
        ]
        triggers = [
            pgtrigger.ReadOnly(
                name="number_keeps_its_amount",
                fields=["id", "merchant", "request", "payment", "seq", "number", "amount_fen", "created_at"],
            ),
            pgtrigger.Protect(name="attempt_is_never_deleted", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return self.number

    # The graph of an attempt. SUCCESS is the only state that nothing leaves: the channel's word that money arrived.

    @transition(field=status, source=[Status.CREATED, Status.SENT, Status.PROCESSING], target=Status.SENT)
    def send(self) -> None: ...

    @transition(field=status, source=[Status.CREATED], target=Status.CREATED)
    def wait_for_slot(self) -> None: ...

    @transition(field=status, source=[Status.SENT], target=Status.SENT)
    def stay_sent(self) -> None: ...

    @transition(field=status, source=[Status.PROCESSING], target=Status.PROCESSING)
    def stay_processing(self) -> None: ...

    @transition(
        field=status,
        source=[Status.CREATED, Status.SENT, Status.PROCESSING, Status.REFUSED],
        target=Status.PROCESSING,
    )
    def accept(self) -> None: ...

    @transition(
        field=status,
        source=[
            Status.CREATED,
            Status.SENT,
            Status.PROCESSING,
            Status.ABNORMAL,
            Status.CLOSED,
            Status.REFUSED,
        ],
        target=Status.SUCCESS,
    )
    def succeed(self) -> None: ...

    @transition(
        field=status,
        source=[Status.CREATED, Status.SENT, Status.PROCESSING, Status.ABNORMAL, Status.REFUSED],
        target=Status.CLOSED,
    )
    def close(self) -> None: ...

    @transition(
        field=status,
        source=[Status.CREATED, Status.SENT, Status.PROCESSING, Status.REFUSED],
        target=Status.ABNORMAL,
    )
    def park(self) -> None: ...

    @transition(field=status, source=[Status.ABNORMAL], target=Status.PROCESSING)
    def unpark(self) -> None: ...

    @transition(field=status, source=[Status.SENT], target=Status.REFUSED)
    def refuse(self) -> None: ...

    @transition(field=status, source=[Status.CREATED], target=Status.REFUSED)
    def withdraw(self) -> None: ...

    @transition(field=status, source=[Status.REFUSED], target=Status.CREATED)
    def resume(self) -> None: ...


class RefundFact(models.Model):
    """Everything the channel ever said about a refund number, and what came of it. Only grows."""

    class Source(models.TextChoices):
        ANSWER = "answer", _("Answer to the refund")
        QUERY = "query", _("Answer to a query")
        NOTIFY = "notify", _("Notify")
        BILL = "bill", _("Bill")

    class Outcome(models.TextChoices):
        MOVED = "moved", _("Moved the attempt")
        SAME = "same", _("Already known")
        IGNORED = "ignored", _("Stale, ignored")
        UNKNOWN = "unknown", _("Nothing learned")
        ANOMALY = "anomaly", _("Anomaly, nothing moved")

    id = models.BigAutoField(primary_key=True)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    attempt = models.ForeignKey(RefundAttempt, models.PROTECT, related_name="facts")
    source = models.CharField(_("source"), max_length=16, choices=Source.choices)
    state = models.CharField(_("state"), max_length=16)
    amount_fen = models.BigIntegerField(_("amount"), null=True)
    payer_fen = models.BigIntegerField(_("reaches the payer"), null=True)
    channel_refund_id = models.CharField(_("number at the channel"), max_length=64, blank=True, default="")
    succeeded_at = models.DateTimeField(_("refunded"), null=True)
    notify = models.ForeignKey(ChannelNotify, models.PROTECT, null=True, related_name="+")
    from_status = models.CharField(_("from"), max_length=16)
    outcome = models.CharField(_("outcome"), max_length=16, choices=Outcome.choices)
    anomaly = models.CharField(_("anomaly"), max_length=48, blank=True, default="")
    detail = models.CharField(_("detail"), max_length=200, blank=True, default="")
    heard_at = models.DateTimeField(_("heard"))

    class Meta:
        db_table = "refund_fact"
        verbose_name = _("refund fact")
        verbose_name_plural = _("refund facts")
        constraints = [
            models.CheckConstraint(condition=~Q(outcome="anomaly") | ~Q(anomaly=""), name="anomaly_is_named"),
        ]
        indexes = [
            models.Index(fields=["attempt", "id"], name="refund_fact_by_attempt"),
            models.Index(fields=["heard_at"], condition=~Q(anomaly=""), name="refund_fact_anomalies"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.source} {self.state} {self.outcome}"


class ChannelBill(models.Model):
    """One day's bill of one account as the channel gave it (gzipped), and how far we are with it."""

    class Kind(models.TextChoices):
        TRADE = "trade", _("Trades")
        REFUND = "refund", _("Refunds")
        FUNDFLOW = "fundflow", _("Fund flow")

    class State(models.TextChoices):
        WAITING = "WAITING", _("Not there yet")
        EMPTY = "EMPTY", _("No rows that day")
        PARSED = "PARSED", _("Parsed")
        CORRUPT = "CORRUPT", _("Does not add up")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    account = models.ForeignKey(ChannelAccount, models.PROTECT, related_name="bills")
    channel = models.CharField(_("channel"), max_length=16)
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    bill_on = models.DateField(_("day"), help_text=_("The channel's day, Asia/Shanghai."))
    state = models.CharField(_("state"), max_length=16, choices=State.choices)
    sha1 = models.CharField(max_length=40, blank=True, default="")
    raw = models.BinaryField(default=b"", help_text=_("The bill, gzipped."))
    raw_size = models.BigIntegerField(_("size"), default=0)
    row_count = models.BigIntegerField(_("rows"), default=0)
    amount_fen = models.BigIntegerField(_("Σ amounts"), default=0)
    tries = models.PositiveIntegerField(_("tries"), default=0)
    last_error = models.CharField(_("last error"), max_length=200, blank=True, default="")
    next_try_at = models.DateTimeField(_("next try"), null=True)
    downloaded_at = models.DateTimeField(_("downloaded"), null=True)
    created_at = models.DateTimeField(_("created"))

    class Meta:
        db_table = "channel_bill"
        verbose_name = _("channel bill")
        verbose_name_plural = _("channel bills")
        constraints = [
            models.UniqueConstraint(fields=["account", "kind", "bill_on"], name="one_bill_per_day"),
            models.CheckConstraint(
                condition=~Q(state="PARSED") | (~Q(sha1="") & Q(downloaded_at__isnull=False)),
                name="bill_read_has_hash",
            ),
        ]
        indexes = [
            models.Index(fields=["bill_on", "kind"], name="bill_by_day"),
            models.Index(fields=["-bill_on", "channel", "kind", "id"], name="bill_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.channel} {self.kind} {self.bill_on}"


class BillLine(models.Model):
    """One row of a bill, channel-neutral: amounts are positive fen, the kind gives the direction."""

    class Kind(models.TextChoices):
        PAYMENT = "payment", _("Payment")
        REFUND = "refund", _("Refund")
        REVOKED = "revoked", _("Revoked")
        FLOW = "flow", _("Movement")

    id = models.BigAutoField(primary_key=True)
    bill = models.ForeignKey(ChannelBill, models.CASCADE, related_name="lines")
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    channel = models.CharField(_("channel"), max_length=16)
    row_no = models.PositiveIntegerField(_("row"))
    kind = models.CharField(_("kind"), max_length=16, choices=Kind.choices)
    occurred_at = models.DateTimeField(_("time"))
    out_trade_no = models.CharField(_("payment number"), max_length=64, blank=True, default="")
    trade_no = models.CharField(_("channel trade number"), max_length=64, blank=True, default="")
    refund_no = models.CharField(_("refund number"), max_length=64, blank=True, default="")
    refund_id = models.CharField(_("refund number at the channel"), max_length=64, blank=True, default="")
    amount_fen = models.BigIntegerField(_("amount"))
    payer_fen = models.BigIntegerField(_("payer's part"), null=True)
    voucher_fen = models.BigIntegerField(_("vouchers"), null=True)
    trade_state = models.CharField(_("trade state"), max_length=32, blank=True, default="")
    refund_state = models.CharField(_("refund state"), max_length=32, blank=True, default="")
    refund_applied_at = models.DateTimeField(_("refund accepted"), null=True)
    refund_succeeded_at = models.DateTimeField(_("refund done"), null=True)
    fee_yuan = models.DecimalField(_("fee (yuan)"), max_digits=16, decimal_places=5, null=True)
    is_income = models.BooleanField(_("income"), null=True)
    balance_fen = models.BigIntegerField(_("balance after"), null=True)
    reference = models.CharField(_("reference"), max_length=64, blank=True, default="")

    class Meta:
        db_table = "bill_line"
        verbose_name = _("bill line")
        verbose_name_plural = _("bill lines")
        constraints = [
            models.UniqueConstraint(fields=["bill", "row_no"], name="bill_row_is_read_once"),
            models.CheckConstraint(condition=Q(amount_fen__gte=0), name="bill_amount_is_not_negative"),
        ]
        indexes = [
            models.Index(fields=["merchant", "refund_no"], condition=~Q(refund_no=""), name="bill_line_by_refund_no"),
            models.Index(fields=["merchant", "out_trade_no"], condition=~Q(out_trade_no=""), name="bill_line_by_trade"),
            models.Index(fields=["merchant", "reference"], condition=~Q(reference=""), name="bill_line_by_reference"),
        ]

    def __str__(self) -> str:
        return f"{self.bill_id} {self.row_no}"
