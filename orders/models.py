"""Quotes, orders and what belongs to them.

The order machine is written here once (the FSM edges); `kernel.statemachine` compiles each edge into one
conditional statement, and the database repeats the graph: CHECKs tie a status to its columns, the status log is a
chain, a deferred key ties an order to the log row of its version, and a trigger refuses a protected column that
changes without the next version.
"""

from __future__ import annotations

import pgtrigger
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Coalesce
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, FSMIntegerField, transition

from kernel import numbers
from kernel.append_only import append_only


class PayMethod(models.TextChoices):
    """How an order is paid: a channel of payments, or nothing at all for an order of 0 fen."""

    WECHAT = "wechat", _("WeChat Pay")
    ALIPAY = "alipay", _("Alipay")
    BALANCE = "balance", _("Balance")
    NONE = "none", _("Nothing to pay")


class CouponState(models.TextChoices):
    """What became of the coupon that an order was priced with."""

    NONE = "none", _("No coupon")
    LEASED = "leased", _("Leased")
    REDEEMED = "redeemed", _("Redeemed")
    RELEASED = "released", _("Released")
    HONOURED = "honoured", _("Honoured without the coupon")
    CONFLICT = "conflict", _("Conflict")


class Quote(models.Model):
    """A price that stands for a few minutes. It allocates the order number, so that a lease can name its order."""

    class State(models.TextChoices):
        OPEN = "OPEN", _("Open")
        ORDERED = "ORDERED", _("Ordered")
        REUSED = "REUSED", _("An order for the same was open already")
        REPLACED = "REPLACED", _("Replaced by a newer quote")
        EXPIRED = "EXPIRED", _("Expired")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order_no = models.CharField(_("order number"), max_length=20)
    user_id = models.CharField(_("user"), max_length=64)
    state = FSMField(_("state"), max_length=12, choices=State.choices, default=State.OPEN)
    content = models.JSONField(_("what was asked"))
    content_hash = models.CharField(max_length=64)
    fingerprint = models.CharField(max_length=64)
    breakdown = models.JSONField(_("every share"))
    payable_fen = models.BigIntegerField(_("payable"))
    coupon_id = models.UUIDField(_("coupon"), null=True)
    # The pending order of the same user and cart that holds the coupon now: it hands the coupon over when it is
    # superseded. Such a quote has no lease of its own.
    held_by_order_no = models.CharField(max_length=20, blank=True, default="")
    lock_id = models.UUIDField(null=True)
    coupon_version = models.IntegerField(null=True)
    lease_held = models.BooleanField(default=False)
    expires_at = models.DateTimeField(_("expires at"))
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        db_table = "quote"
        verbose_name = _("quote")
        verbose_name_plural = _("quotes")
        constraints = [
            models.UniqueConstraint(fields=["order_no", "merchant"], name="quote_order_no_is_used_once"),
            models.UniqueConstraint(
                fields=["merchant", "user_id"],
                condition=Q(lease_held=True),
                name="quote_lease_is_one_per_user",
            ),
            models.CheckConstraint(condition=Q(payable_fen__gte=0), name="quote_payable_is_not_negative"),
            models.CheckConstraint(
                condition=Q(lease_held=False)
                | Q(
                    state="OPEN",
                    coupon_id__isnull=False,
                    lock_id__isnull=False,
                    coupon_version__isnull=False,
                ),
                name="quote_lease_has_coupon_and_lock",
            ),
        ]
        indexes = [
            models.Index(fields=["expires_at"], condition=Q(state="OPEN"), name="quote_due_to_expire"),
            models.Index(fields=["-created_at", "-id"], name="quote_newest_first"),
            models.Index(fields=["user_id", "merchant", "-created_at"], name="quote_by_user"),
            models.Index(fields=["state", "-created_at", "-id"], name="quote_by_state"),
        ]
        triggers = [
            pgtrigger.ReadOnly(
                name="quote_content_is_fixed",
                fields=[
                    "id",
                    "merchant",
                    "order_no",
                    "user_id",
                    "content",
                    "content_hash",
                    "fingerprint",
                    "breakdown",
                    "payable_fen",
                    "coupon_id",
                    "created_at",
                ],
            ),
        ]

    def __str__(self) -> str:
        return self.order_no

    @transition(field=state, source=State.OPEN, target=State.ORDERED)
    def order(self) -> None:
        """An order was made from it."""

    @transition(field=state, source=State.OPEN, target=State.REUSED)
    def reuse(self) -> None:
        """The user has a pending order for exactly this."""

    @transition(field=state, source=State.OPEN, target=State.REPLACED)
    def replace(self) -> None:
        """The same user asked again; its lease went to the newer quote or was released."""

    @transition(field=state, source=State.OPEN, target=State.EXPIRED)
    def expire(self) -> None:
        """Its time is over."""


class Order(models.Model):
    """One purchase of one user. CLOSED: the system decided, a late payment may reopen it. CANCELLED: the user
    decided, a late payment is only ever refunded."""

    class Status(models.IntegerChoices):
        PENDING = 0, _("Waiting for payment")
        PAID = 10, _("Paid")
        DELIVERED = 20, _("Delivered")
        COMPLETED = 30, _("Completed")
        CLOSED = 40, _("Closed")
        CANCELLED = 50, _("Cancelled")

    class ClosedReason(models.TextChoices):
        TIMEOUT = "timeout", _("Not paid in time")
        SUPERSEDED = "superseded", _("Replaced by a newer order")
        MANUAL = "manual", _("Closed by an operator")
        ENQUEUE_FAIL = "enqueue_fail", _("Could not be placed at the payment channel")

    class Fulfilment(models.TextChoices):
        NONE = "none", _("Not paid")
        WAITING = "waiting", _("Waiting")
        PARTIAL = "partial", _("In part")
        DONE = "done", _("Done")
        VOID = "void", _("Void, wholly refunded")

    PAID_OR_LATER = (Status.PAID, Status.DELIVERED, Status.COMPLETED)
    TERMINAL = (Status.COMPLETED, Status.CLOSED, Status.CANCELLED)
    MAY_REOPEN = (ClosedReason.TIMEOUT, ClosedReason.ENQUEUE_FAIL)
    COUPON_IN_ORDER = (CouponState.NONE, CouponState.REDEEMED, CouponState.HONOURED)

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order_no = models.CharField(_("order number"), max_length=20)
    user_id = models.CharField(_("user"), max_length=64)
    quote = models.OneToOneField(Quote, models.PROTECT, related_name="made_order")
    status = FSMIntegerField(_("status"), choices=Status.choices, default=Status.PENDING)
    version = models.IntegerField(_("version"), default=1)
    closed_reason = models.CharField(
        _("closed because"), max_length=16, choices=ClosedReason.choices, blank=True, default=""
    )

    goods_fen = models.BigIntegerField(_("goods"))
    discount_fen = models.BigIntegerField(_("coupon"), default=0)
    subsidy_fen = models.BigIntegerField(_("subsidy"), default=0)
    points_fen = models.BigIntegerField(_("points' worth"), default=0)
    points_used = models.BigIntegerField(_("points used"), default=0)
    freight_fen = models.BigIntegerField(_("freight"), default=0)
    payable_fen = models.BigIntegerField(_("payable"))

    pay_method = models.CharField(_("pay method"), max_length=16, choices=PayMethod.choices)
    pay_expires_at = models.DateTimeField(_("pay until"))
    fingerprint = models.CharField(max_length=64, help_text=_("Merchant, user, goods and address."))
    content_hash = models.CharField(max_length=64)
    address = models.JSONField(_("address"), default=dict)
    terms_version = models.CharField(_("after-sales terms"), max_length=32, default="1")

    token_version = models.IntegerField(default=1)
    token_key_version = models.IntegerField(default=1)
    order_token_hash = models.BinaryField(max_length=32)
    token_revoked_at = models.DateTimeField(_("token revoked at"), null=True)

    coupon_id = models.UUIDField(_("coupon"), null=True)
    coupon_state = models.CharField(_("coupon"), max_length=12, choices=CouponState.choices, default=CouponState.NONE)
    fulfilment = models.CharField(_("fulfilment"), max_length=12, choices=Fulfilment.choices, default=Fulfilment.NONE)
    trade_no = models.CharField(_("trade number"), max_length=64, blank=True, default="")
    paid_channel = models.CharField(_("paid by"), max_length=16, blank=True, default="")
    out_trade_no = models.CharField(_("payment number"), max_length=32, blank=True, default="")
    refund_decided_at = models.DateTimeField(_("refund decided at"), null=True)

    # Due work: the row itself is the queue. Which sweep reads a column, its partial index says.
    next_check_at = models.DateTimeField(null=True)
    check_tries = models.IntegerField(default=0)
    next_fulfil_at = models.DateTimeField(null=True)
    fulfil_tries = models.IntegerField(default=0)
    complete_at = models.DateTimeField(null=True)

    created_at = models.DateTimeField(_("created at"))
    paid_at = models.DateTimeField(_("paid at"), null=True)
    closed_at = models.DateTimeField(_("closed at"), null=True)
    cancelled_at = models.DateTimeField(_("cancelled at"), null=True)
    delivered_at = models.DateTimeField(_("delivered at"), null=True)
    completed_at = models.DateTimeField(_("completed at"), null=True)

    class Meta:
        db_table = "orders"
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        constraints = [
            models.UniqueConstraint(fields=["order_no", "merchant"], name="order_no_is_used_once"),
            models.UniqueConstraint(fields=["order_token_hash"], name="order_token_names_one_order"),
            models.UniqueConstraint(
                fields=["merchant", "user_id", "fingerprint"],
                condition=Q(status=0),
                name="order_pending_is_one_per_cart",
            ),
            models.CheckConstraint(condition=Q(status__in=[0, 10, 20, 30, 40, 50]), name="order_status_is_known"),
            models.CheckConstraint(
                condition=Q(
                    payable_fen=F("goods_fen")
                    - F("discount_fen")
                    - F("subsidy_fen")
                    - F("points_fen")
                    + F("freight_fen")
                )
                & Q(
                    payable_fen__gte=0,
                    goods_fen__gte=0,
                    discount_fen__gte=0,
                    subsidy_fen__gte=0,
                    points_fen__gte=0,
                    points_used__gte=0,
                    freight_fen__gte=0,
                ),
                name="order_money_adds_up",
            ),
            models.CheckConstraint(
                condition=Q(
                    status=40,
                    closed_at__isnull=False,
                    closed_reason__in=["timeout", "superseded", "manual", "enqueue_fail"],
                )
                | (~Q(status=40) & Q(closed_at__isnull=True, closed_reason="")),
                name="order_closed_has_reason_and_time",
            ),
            models.CheckConstraint(
                condition=Q(status=50, cancelled_at__isnull=False) | (~Q(status=50) & Q(cancelled_at__isnull=True)),
                name="order_cancelled_has_time",
            ),
            models.CheckConstraint(
                condition=(
                    Q(status__in=[10, 20, 30], paid_at__isnull=False)
                    & ~Q(fulfilment="none")
                    & (~Q(trade_no="") | Q(payable_fen=0))
                )
                | (~Q(status__in=[10, 20, 30]) & Q(paid_at__isnull=True, trade_no="", fulfilment="none")),
                name="order_paid_has_time_and_trade",
            ),
            models.CheckConstraint(
                condition=Q(refund_decided_at__isnull=True) | Q(status=40),
                name="order_refunded_instead_is_closed",
            ),
            models.CheckConstraint(
                condition=~Q(status__in=[20, 30])
                | Q(
                    delivered_at__isnull=False,
                    coupon_state__in=["none", "redeemed", "honoured"],
                    fulfilment="done",
                ),
                name="order_delivered_owns_its_coupon",
            ),
            models.CheckConstraint(
                condition=Q(coupon_state="none", coupon_id__isnull=True)
                | (~Q(coupon_state="none") & Q(coupon_id__isnull=False)),
                name="order_coupon_state_has_coupon",
            ),
            models.CheckConstraint(condition=Q(pay_expires_at__gt=F("created_at")), name="order_pay_window_is_open"),
            models.CheckConstraint(
                condition=Q(payable_fen=0, pay_method="none") | (Q(payable_fen__gt=0) & ~Q(pay_method="none")),
                name="order_free_has_no_channel",
            ),
        ]
        indexes = [
            models.Index(fields=["next_check_at"], condition=Q(next_check_at__isnull=False), name="order_due_to_check"),
            models.Index(
                fields=["next_fulfil_at"],
                condition=Q(status=10, next_fulfil_at__isnull=False),
                name="order_due_to_fulfil",
            ),
            models.Index(
                fields=["complete_at"],
                condition=Q(status=20, complete_at__isnull=False),
                name="order_due_to_complete",
            ),
            models.Index(fields=["-created_at", "-id"], name="order_newest_first"),
            models.Index(fields=["merchant", "-created_at", "-id"], name="order_newest_of_merchant"),
            models.Index(fields=["user_id", "merchant", "-created_at", "-id"], name="order_by_user"),
            models.Index(fields=["trade_no"], condition=~Q(trade_no=""), name="order_by_trade_no"),
            models.Index(fields=["coupon_id"], condition=Q(coupon_id__isnull=False), name="order_by_coupon"),
            models.Index(fields=["status", "-created_at", "-id"], condition=~Q(status=30), name="order_by_status"),
            models.Index(
                fields=["fulfilment", "-created_at", "-id"], condition=~Q(fulfilment="done"), name="order_by_fulfilment"
            ),
            models.Index(fields=["coupon_state", "-created_at", "-id"], name="order_by_coupon_state"),
            models.Index(
                fields=["closed_reason", "-created_at", "-id"],
                condition=~Q(closed_reason=""),
                name="order_by_closed_reason",
            ),
            models.Index(fields=["pay_method", "-created_at", "-id"], name="order_by_pay_method"),
            models.Index(fields=["paid_at"], condition=Q(paid_at__isnull=False), name="order_by_payment_time"),
        ]
        triggers = [
            pgtrigger.ReadOnly(
                name="order_content_is_frozen",
                fields=[
                    "id",
                    "merchant",
                    "order_no",
                    "user_id",
                    "quote",
                    "goods_fen",
                    "discount_fen",
                    "subsidy_fen",
                    "points_fen",
                    "points_used",
                    "freight_fen",
                    "payable_fen",
                    "fingerprint",
                    "content_hash",
                    "coupon_id",
                    "created_at",
                ],
            ),
            pgtrigger.Protect(name="order_is_never_deleted", operation=pgtrigger.Delete),
            pgtrigger.Trigger(
                name="order_moves_by_version",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.AnyChange(
                    "version",
                    "status",
                    "closed_reason",
                    "closed_at",
                    "cancelled_at",
                    "paid_at",
                    "trade_no",
                    "refund_decided_at",
                    "delivered_at",
                    "completed_at",
                ),
                func="""
                IF NEW.version <> OLD.version + 1 THEN
                    RAISE EXCEPTION 'order % moves from version % to % without the step between',
                        OLD.order_no, OLD.version, NEW.version USING ERRCODE = 'check_violation';
                END IF;
                IF (OLD.status, NEW.status) NOT IN ((0, 10), (0, 40), (0, 50), (10, 20), (20, 30), (40, 10),
                                                    (10, 10), (40, 40), (50, 50)) THEN
                    RAISE EXCEPTION 'order % has no edge from % to %', OLD.order_no, OLD.status, NEW.status
                        USING ERRCODE = 'check_violation';
                END IF;
                IF OLD.refund_decided_at IS NOT NULL THEN
                    RAISE EXCEPTION 'order % was refunded and stays closed', OLD.order_no
                        USING ERRCODE = 'check_violation';
                END IF;
                RETURN NEW;
                """,
            ),
        ]

    def __str__(self) -> str:
        return self.order_no

    @transition(field=status, source=Status.PENDING, target=Status.PAID)
    def confirm_paid(self) -> None:
        """The channel says SUCCESS with exactly our amount."""

    @transition(field=status, source=Status.PENDING, target=Status.CLOSED)
    def close(self) -> None:
        """The system decided: not paid in time, superseded, by an operator, or never placed at the channel."""

    @transition(field=status, source=Status.PENDING, target=Status.CANCELLED)
    def cancel(self) -> None:
        """The user decided. There is no way back."""

    @transition(field=status, source=Status.CLOSED, target=Status.PAID)
    def reopen_paid(self) -> None:
        """Closed by the clock, yet paid at the channel; coupon and stock were acquired again."""

    @transition(field=status, source=Status.CLOSED, target=Status.CLOSED)
    def decide_refund(self) -> None:
        """Paid after it was closed and not reopened: the money goes back, and it is never reopened."""

    @transition(field=status, source=Status.CANCELLED, target=Status.CANCELLED)
    def note_paid_after_cancel(self) -> None:
        """Audit row only: the channel holds money for an order the user cancelled."""

    @transition(field=status, source=Status.PAID, target=Status.PAID)
    def void_fulfilment(self) -> None:
        """Wholly refunded before anything was delivered: it leaves every sweep."""

    @transition(field=status, source=Status.PAID, target=Status.DELIVERED)
    def deliver(self) -> None:
        """Every unit that was not refunded is shipped or granted; the bill is written with it."""

    @transition(field=status, source=Status.DELIVERED, target=Status.COMPLETED)
    def complete(self) -> None:
        """The user confirmed receipt, or time did."""


class OrderStatusLog(models.Model):
    """Append-only: one row per move of an order, a chain from version 1 on, and the proof that it moved."""

    class Command(models.TextChoices):
        CREATE = "create", _("Created")
        CONFIRM_PAID = "confirm_paid", _("Paid")
        CLOSE = "close", _("Closed")
        CANCEL = "cancel", _("Cancelled")
        REOPEN_PAID = "reopen_paid", _("Reopened, paid")
        DECIDE_REFUND = "decide_refund", _("Refund decided")
        NOTE_PAID = "note_paid", _("Paid after cancelling")
        VOID_FULFILMENT = "void_fulfilment", _("Fulfilment void")
        DELIVER = "deliver", _("Delivered")
        COMPLETE = "complete", _("Completed")

    class ActorKind(models.TextChoices):
        USER = "user", _("User")
        STAFF = "staff", _("Staff")
        CHANNEL = "channel", _("Payment channel")
        SYSTEM = "system", _("System")

    EDGES = (
        ("create", None, 0),
        ("confirm_paid", 0, 10),
        ("close", 0, 40),
        ("cancel", 0, 50),
        ("reopen_paid", 40, 10),
        ("decide_refund", 40, 40),
        ("note_paid", 50, 50),
        ("void_fulfilment", 10, 10),
        ("deliver", 10, 20),
        ("complete", 20, 30),
    )

    id = models.BigAutoField(primary_key=True)
    order = models.ForeignKey(Order, models.PROTECT, related_name="status_logs")
    command = models.CharField(_("what"), max_length=20, choices=Command.choices)
    from_status = models.IntegerField(_("from"), null=True, choices=Order.Status.choices)
    to_status = models.IntegerField(_("to"), choices=Order.Status.choices)
    from_version = models.IntegerField(null=True)
    to_version = models.IntegerField(_("version"))
    actor_kind = models.CharField(_("by"), max_length=12, choices=ActorKind.choices)
    actor = models.CharField(_("who"), max_length=80, blank=True, default="")
    reason = models.CharField(_("reason"), max_length=200, blank=True, default="")
    evidence = models.JSONField(_("evidence"), default=dict)
    at = models.DateTimeField(_("when"))

    class Meta:
        db_table = "order_status_log"
        verbose_name = _("status log entry")
        verbose_name_plural = _("status log")
        ordering = ["order", "to_version"]
        constraints = [
            models.UniqueConstraint(fields=["order", "to_version"], name="order_log_has_each_version_once"),
            # What the order's own (id, version, status) and the next row's (order, from_version, from_status)
            # refer to: keys of the database, made in the migration.
            models.UniqueConstraint(fields=["order", "to_version", "to_status"], name="order_log_names_the_move"),
            models.CheckConstraint(
                condition=Q(to_version=1, from_version__isnull=True, from_status__isnull=True)
                | Q(to_version=Coalesce(F("from_version"), 0) + 1, from_version__gte=1, from_status__isnull=False),
                name="order_log_is_a_chain",
            ),
            models.CheckConstraint(
                condition=Q(command="create", from_status__isnull=True, to_status=0)
                | Q(command="confirm_paid", from_status=0, to_status=10)
                | Q(command="close", from_status=0, to_status=40)
                | Q(command="cancel", from_status=0, to_status=50)
                | Q(command="reopen_paid", from_status=40, to_status=10)
                | Q(command="decide_refund", from_status=40, to_status=40)
                | Q(command="note_paid", from_status=50, to_status=50)
                | Q(command="void_fulfilment", from_status=10, to_status=10)
                | Q(command="deliver", from_status=10, to_status=20)
                | Q(command="complete", from_status=20, to_status=30),
                name="order_log_follows_the_edges",
            ),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.order_id} v{self.to_version} {self.command}"


class OrderLine(models.Model):
    """One line with its frozen shares. Its units are the ordinals 1..qty; the arrays say what became of each."""

    class Kind(models.TextChoices):
        PHYSICAL = "physical", _("Physical")
        VIRTUAL = "virtual", _("Virtual")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order = models.ForeignKey(Order, models.PROTECT, related_name="lines")
    line_no = models.IntegerField(_("line"))
    sku = models.CharField(_("SKU"), max_length=64)
    title = models.CharField(_("title"), max_length=200)
    kind = models.CharField(_("kind"), max_length=12, choices=Kind.choices)
    attributes = models.JSONField(_("attributes"), default=dict)

    unit_price_fen = models.BigIntegerField(_("unit price"))
    qty = models.IntegerField(_("quantity"))
    line_discount_fen = models.BigIntegerField(_("line discount"), default=0)
    base_fen = models.BigIntegerField(_("base"))
    coupon_share_fen = models.BigIntegerField(_("coupon share"), default=0)
    subsidy_share_fen = models.BigIntegerField(_("subsidy share"), default=0)
    points_share_fen = models.BigIntegerField(_("points share"), default=0)
    points_used = models.BigIntegerField(_("points used"), default=0)
    net_fen = models.BigIntegerField(_("net"))
    freight_share_fen = models.BigIntegerField(_("freight share"), default=0)
    algorithm_version = models.CharField(_("algorithm"), max_length=32)

    shipped_qty = models.IntegerField(_("shipped or granted"), default=0)
    shipped_ordinals = ArrayField(models.IntegerField(), default=list)
    # Units under a live after-sales claim that takes them back: not to be shipped.
    held_ordinals = ArrayField(models.IntegerField(), default=list)
    refunded_ordinals = ArrayField(models.IntegerField(), default=list)
    signed_at = models.DateTimeField(_("signed at"), null=True)
    goods_committed_fen = models.BigIntegerField(_("goods refunds committed"), default=0)
    freight_committed_fen = models.BigIntegerField(_("freight refunds committed"), default=0)

    class Meta:
        db_table = "order_line"
        verbose_name = _("order line")
        verbose_name_plural = _("order lines")
        ordering = ["order", "line_no"]
        constraints = [
            models.UniqueConstraint(fields=["order", "line_no"], name="order_line_no_is_used_once"),
            models.CheckConstraint(condition=Q(kind__in=["physical", "virtual"]), name="order_line_kind_is_known"),
            models.CheckConstraint(
                condition=Q(qty__gte=1, unit_price_fen__gte=0, line_no__gte=1),
                name="order_line_has_a_quantity",
            ),
            models.CheckConstraint(
                condition=Q(base_fen=F("unit_price_fen") * F("qty") - F("line_discount_fen"))
                & Q(net_fen=F("base_fen") - F("coupon_share_fen") - F("subsidy_share_fen") - F("points_share_fen"))
                & Q(
                    line_discount_fen__gte=0,
                    base_fen__gte=0,
                    coupon_share_fen__gte=0,
                    subsidy_share_fen__gte=0,
                    points_share_fen__gte=0,
                    points_used__gte=0,
                    net_fen__gte=0,
                    freight_share_fen__gte=0,
                ),
                name="order_line_shares_add_up",
            ),
            models.CheckConstraint(
                condition=Q(goods_committed_fen__gte=0, goods_committed_fen__lte=F("net_fen")),
                name="order_line_goods_refunds_within_net",
            ),
            models.CheckConstraint(
                condition=Q(freight_committed_fen__gte=0, freight_committed_fen__lte=F("freight_share_fen")),
                name="order_line_freight_refunds_within_share",
            ),
            models.CheckConstraint(
                condition=Q(shipped_qty__gte=0, shipped_qty__lte=F("qty")),
                name="order_line_ships_what_it_has",
            ),
        ]
        triggers = [
            pgtrigger.ReadOnly(
                name="order_line_shares_are_frozen",
                fields=[
                    "id",
                    "merchant",
                    "order",
                    "line_no",
                    "sku",
                    "kind",
                    "unit_price_fen",
                    "qty",
                    "line_discount_fen",
                    "base_fen",
                    "coupon_share_fen",
                    "subsidy_share_fen",
                    "points_share_fen",
                    "points_used",
                    "net_fen",
                    "freight_share_fen",
                    "algorithm_version",
                ],
            ),
            pgtrigger.Protect(name="order_line_is_never_deleted", operation=pgtrigger.Delete),
            pgtrigger.Trigger(
                name="order_line_units_are_its_own",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.AnyChange("shipped_ordinals", "held_ordinals", "refunded_ordinals", "shipped_qty"),
                func="""
                IF cardinality(NEW.shipped_ordinals) <> NEW.shipped_qty
                   OR NOT (NEW.shipped_ordinals || NEW.held_ordinals || NEW.refunded_ordinals)
                          <@ ARRAY(SELECT generate_series(1, NEW.qty))
                   OR (SELECT count(DISTINCT o) FROM unnest(NEW.shipped_ordinals) o) <> NEW.shipped_qty THEN
                    RAISE EXCEPTION 'the units of line % of order % do not add up', NEW.line_no, NEW.order_id
                        USING ERRCODE = 'check_violation';
                END IF;
                IF NOT NEW.shipped_ordinals @> OLD.shipped_ordinals
                   OR NOT NEW.refunded_ordinals @> OLD.refunded_ordinals THEN
                    RAISE EXCEPTION 'what was shipped or refunded of line % of order % stays so',
                        NEW.line_no, NEW.order_id USING ERRCODE = 'check_violation';
                END IF;
                RETURN NEW;
                """,
            ),
        ]

    def __str__(self) -> str:
        return f"{self.line_no} {self.title}"


class OrderCoupon(models.Model):
    """Evidence of the coupon an order was priced with: quote, lease, amounts. Never the token itself."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order = models.OneToOneField(Order, models.PROTECT, related_name="coupon")
    quote = models.ForeignKey(Quote, models.PROTECT, related_name="+")
    coupon_id = models.UUIDField(_("coupon"))
    lock_id = models.UUIDField(_("lease"))
    lock_token_hash = models.BinaryField(_("lease token, SHA-256"), max_length=32)
    coupon_version = models.IntegerField(_("coupon version"))
    discount_fen = models.BigIntegerField(_("discount"))
    eligible_lines = ArrayField(models.IntegerField(), default=list, verbose_name=_("lines it applies to"))
    lease_expires_at = models.DateTimeField(_("lease until"))
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        db_table = "order_coupon"
        verbose_name = _("coupon evidence")
        verbose_name_plural = _("coupon evidence")
        constraints = [
            models.CheckConstraint(condition=Q(discount_fen__gte=0), name="order_coupon_gives_not_takes"),
        ]
        indexes = [models.Index(fields=["coupon_id"], name="order_coupon_by_coupon")]
        triggers = [
            pgtrigger.ReadOnly(
                name="order_coupon_is_evidence",
                fields=["id", "merchant", "order", "quote", "coupon_id", "discount_fen", "eligible_lines"],
            ),
            pgtrigger.Protect(name="order_coupon_is_never_deleted", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{self.order_id} {self.coupon_id}"


class CouponDecision(models.Model):
    """Append-only: what was decided about the coupon of an order, and from which facts."""

    class Decision(models.TextChoices):
        LATE_REDEEM = "late_redeem", _("Redeemed late")
        REFUND_ORDER = "refund_order", _("Refund the order")
        HONOUR = "honour", _("Honoured without the coupon")
        REVIEW = "review", _("Manual review")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order = models.ForeignKey(Order, models.PROTECT, related_name="coupon_decisions")
    decision = models.CharField(_("decision"), max_length=16, choices=Decision.choices)
    cause = models.CharField(_("cause"), max_length=40)
    inputs = models.JSONField(_("facts"), default=dict)
    actor_kind = models.CharField(_("by"), max_length=12, choices=OrderStatusLog.ActorKind.choices)
    actor = models.CharField(_("who"), max_length=80, blank=True, default="")
    at = models.DateTimeField(_("when"))

    class Meta:
        db_table = "coupon_decision"
        verbose_name = _("coupon decision")
        verbose_name_plural = _("coupon decisions")
        ordering = ["order", "at"]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.order_id} {self.decision}"


class OrderBill(models.Model):
    """Append-only: what an order was paid with, written in the transaction that delivers it."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order = models.OneToOneField(Order, models.PROTECT, related_name="bill")
    order_no = models.CharField(_("order number"), max_length=20)
    out_trade_no = models.CharField(_("payment number"), max_length=32, blank=True, default="")
    trade_no = models.CharField(_("trade number"), max_length=64, blank=True, default="")
    channel = models.CharField(_("channel"), max_length=16)
    amount_fen = models.BigIntegerField(_("amount"))
    paid_at = models.DateTimeField(_("paid at"))
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        db_table = "order_bill"
        verbose_name = _("order bill")
        verbose_name_plural = _("order bills")
        constraints = [
            models.CheckConstraint(condition=Q(amount_fen__gte=0), name="order_bill_is_not_negative"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return self.order_no


class Shipment(models.Model):
    """One parcel of one order."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order = models.ForeignKey(Order, models.PROTECT, related_name="shipments")
    carrier = models.CharField(_("carrier"), max_length=40)
    tracking_no = models.CharField(_("tracking number"), max_length=64)
    shipped_at = models.DateTimeField(_("shipped at"))
    auto_sign_at = models.DateTimeField(_("signed automatically at"))
    signed_at = models.DateTimeField(_("signed at"), null=True)
    signed_by = models.CharField(_("signed by"), max_length=80, blank=True, default="")

    class Meta:
        db_table = "shipment"
        verbose_name = _("shipment")
        verbose_name_plural = _("shipments")
        ordering = ["order", "shipped_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["order", "carrier", "tracking_no"], name="shipment_is_named_once_per_order"
            ),
        ]
        indexes = [
            models.Index(fields=["auto_sign_at"], condition=Q(signed_at__isnull=True), name="shipment_due_to_sign"),
            models.Index(fields=["merchant", "tracking_no"], name="shipment_by_tracking_no"),
        ]
        triggers = [
            pgtrigger.ReadOnly(
                name="shipment_is_a_fact",
                fields=["id", "merchant", "order", "carrier", "tracking_no", "shipped_at"],
            ),
            pgtrigger.Protect(name="shipment_is_never_deleted", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{self.carrier} {self.tracking_no}"


class ShipmentLine(models.Model):
    """Append-only: which units of which line are in a parcel."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    shipment = models.ForeignKey(Shipment, models.PROTECT, related_name="lines")
    line = models.ForeignKey(OrderLine, models.PROTECT, related_name="shipments")
    qty = models.IntegerField(_("quantity"))
    ordinals = ArrayField(models.IntegerField(), verbose_name=_("units"))

    class Meta:
        db_table = "shipment_line"
        verbose_name = _("shipment line")
        verbose_name_plural = _("shipment lines")
        constraints = [
            models.UniqueConstraint(fields=["shipment", "line"], name="shipment_names_a_line_once"),
            models.CheckConstraint(
                condition=Q(qty__gte=1, ordinals__len=F("qty")), name="shipment_line_names_its_units"
            ),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.line_id} × {self.qty}"


class Entitlement(models.Model):
    """What a virtual line granted to its user. Granted once per line; taken back in part or whole by a refund."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    order = models.ForeignKey(Order, models.PROTECT, related_name="entitlements")
    line = models.OneToOneField(OrderLine, models.PROTECT, related_name="entitlement")
    user_id = models.CharField(_("user"), max_length=64)
    sku = models.CharField(_("SKU"), max_length=64)
    qty = models.IntegerField(_("quantity"))
    ordinals = ArrayField(models.IntegerField(), verbose_name=_("units"))
    revoked_ordinals = ArrayField(models.IntegerField(), default=list, verbose_name=_("units taken back"))
    granted_at = models.DateTimeField(_("granted at"))
    revoked_at = models.DateTimeField(_("taken back at"), null=True)

    class Meta:
        db_table = "entitlement"
        verbose_name = _("entitlement")
        verbose_name_plural = _("entitlements")
        constraints = [
            models.CheckConstraint(
                condition=Q(qty__gte=1, ordinals__len=F("qty")) & Q(revoked_ordinals__contained_by=F("ordinals")),
                name="entitlement_names_its_units",
            ),
        ]
        indexes = [models.Index(fields=["merchant", "user_id", "sku"], name="entitlement_by_user")]
        triggers = [pgtrigger.Protect(name="entitlement_is_never_deleted", operation=pgtrigger.Delete)]

    def __str__(self) -> str:
        return f"{self.user_id} {self.sku} × {self.qty}"


class Anomaly(models.Model):
    """Something that should not have happened, with its evidence, waiting for a person or for time to settle it.

    One row per fact (`key`), however often the fact is delivered again; `seen` counts.
    """

    class Kind(models.TextChoices):
        AMOUNT_MISMATCH = "amount_mismatch", _("Amount differs")
        TRADE_NO_MISMATCH = "trade_no_mismatch", _("Second charge")
        PAID_ON_CLOSED = "paid_on_closed", _("Paid after closing")
        PAID_ON_CANCELLED = "paid_on_cancelled", _("Paid after cancelling")
        ORDER_DISAPPEARED = "order_disappeared", _("Callback without an order")
        UNEXPECTED_STATUS = "unexpected_status", _("Unexpected status")
        DELIVERY_FAILED = "delivery_failed", _("Delivery failed")
        GATEWAY_QUERY_FAILED = "gateway_query_failed", _("Channel does not answer")
        MALFORMED_PAID_NOTIFY = "malformed_paid_notify", _("Callback that makes no sense")
        REFUND_DRIFT = "refund_drift", _("Refund differs from the channel")
        REFUND_FAILED = "refund_failed", _("Refund failed")
        SUPERSEDED_GATEWAY_CLOSE_FAILED = (
            "superseded_gateway_close_failed",
            _("Replaced order not closed at the channel"),
        )
        COUPON_CONFLICT = "coupon_conflict", _("Coupon belongs to someone else")

    class State(models.TextChoices):
        OPEN = "OPEN", _("Open")
        ASSIGNED = "ASSIGNED", _("Assigned")
        RESOLVED = "RESOLVED", _("Resolved")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", models.PROTECT, related_name="+")
    kind = models.CharField(_("kind"), max_length=40, choices=Kind.choices)
    key = models.CharField(max_length=160)
    state = FSMField(_("state"), max_length=12, choices=State.choices, default=State.OPEN)
    order_no = models.CharField(_("order number"), max_length=20, blank=True, default="")
    order = models.ForeignKey(Order, models.PROTECT, null=True, related_name="anomalies")
    out_trade_no = models.CharField(_("payment number"), max_length=64, blank=True, default="")
    trade_no = models.CharField(_("trade number"), max_length=64, blank=True, default="")
    evidence = models.JSONField(_("evidence"), default=dict)
    outcome = models.CharField(_("what the system did"), max_length=40, blank=True, default="")
    seen = models.IntegerField(_("times seen"), default=1)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+", verbose_name=_("owner")
    )
    resolution = models.CharField(_("resolution"), max_length=300, blank=True, default="")
    created_at = models.DateTimeField(_("first seen"))
    last_seen_at = models.DateTimeField(_("last seen"))
    resolved_at = models.DateTimeField(_("resolved at"), null=True)

    class Meta:
        db_table = "anomaly"
        verbose_name = _("anomaly")
        verbose_name_plural = _("anomalies")
        constraints = [
            models.UniqueConstraint(fields=["merchant", "kind", "key"], name="anomaly_is_one_row_per_fact"),
            models.CheckConstraint(
                condition=Q(state="RESOLVED", resolved_at__isnull=False)
                | Q(state__in=["OPEN", "ASSIGNED"], resolved_at__isnull=True),
                name="anomaly_resolved_has_time",
            ),
            models.CheckConstraint(
                condition=~Q(state="ASSIGNED") | Q(owner__isnull=False), name="anomaly_assigned_has_owner"
            ),
        ]
        indexes = [
            models.Index(
                fields=["merchant", "-created_at", "-id"],
                condition=~Q(state="RESOLVED"),
                name="anomaly_waiting",
            ),
            models.Index(fields=["-created_at", "-id"], name="anomaly_newest_first"),
            models.Index(fields=["order_no"], condition=~Q(order_no=""), name="anomaly_by_order_no"),
            models.Index(fields=["kind", "-created_at", "-id"], name="anomaly_by_kind"),
            models.Index(fields=["state", "-created_at", "-id"], name="anomaly_by_state"),
        ]
        triggers = [pgtrigger.Protect(name="anomaly_is_never_deleted", operation=pgtrigger.Delete)]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.order_no}"

    @transition(field=state, source=[State.OPEN, State.ASSIGNED], target=State.ASSIGNED)
    def assign(self) -> None:
        """Somebody looks into it."""

    @transition(field=state, source=[State.OPEN, State.ASSIGNED], target=State.RESOLVED)
    def resolve(self) -> None:
        """Done, with a reason."""
