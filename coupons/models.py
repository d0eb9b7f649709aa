"""Who owns a coupon, and the rows that prove every step of how it came to be so.

The state machine is the edges on UserCoupon (empty bodies: `kernel.statemachine.advance` reads the graph from them).
What the database itself keeps true stands in the constraints and triggers here and, where Django cannot say it
(composite keys between coupon and ledger), in migration 0002.
"""

import pgtrigger
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Coalesce
from django.db.models.lookups import In
from django.utils.translation import gettext_lazy as _
from django_fsm import RETURN_VALUE, FSMField, transition

from kernel import numbers
from kernel.append_only import append_only


class CouponKind(models.TextChoices):
    THRESHOLD = "THRESHOLD", _("Amount off from a threshold")
    PERCENT = "PERCENT", _("Percentage off with a cap")
    EXCHANGE = "EXCHANGE", _("Exchange for an article")
    LINE = "LINE", _("Off one line")


class CouponStatus(models.TextChoices):
    AVAILABLE = "AVAILABLE", _("Available")
    LOCKED = "LOCKED", _("Locked by an order")
    USED = "USED", _("Used")
    EXPIRED = "EXPIRED", _("Expired")
    VOID = "VOID", _("Void")


class CouponCommand(models.TextChoices):
    ISSUE = "ISSUE", _("Issue")
    LOCK = "LOCK", _("Lock")
    RENEW = "RENEW", _("Renew the lease")
    REDEEM = "REDEEM", _("Redeem")
    RELEASE = "RELEASE", _("Release")
    RETURN = "RETURN", _("Return to its holder")
    VOID = "VOID", _("Void")
    REVERSE = "REVERSE", _("Reverse")
    EXPIRE = "EXPIRE", _("Expire")


class ReturnDecision(models.TextChoices):
    RETURN = "RETURN", _("Return the coupon")
    KEEP = "KEEP", _("Keep it used")
    VOID = "VOID", _("Void it")
    REVIEW = "REVIEW", _("A person decides")


EDGES: list[tuple[str, str | None, str]] = [
    ("ISSUE", None, "AVAILABLE"),
    ("LOCK", "AVAILABLE", "LOCKED"),
    ("RENEW", "LOCKED", "LOCKED"),
    ("REDEEM", "LOCKED", "USED"),
    ("RELEASE", "LOCKED", "AVAILABLE"),
    ("RELEASE", "LOCKED", "EXPIRED"),
    ("RETURN", "USED", "AVAILABLE"),
    ("RETURN", "USED", "EXPIRED"),
    ("VOID", "AVAILABLE", "VOID"),
    ("VOID", "USED", "VOID"),
    ("EXPIRE", "AVAILABLE", "EXPIRED"),
    # A reverse undoes a redeem, a return, a void, or an earlier reverse of one of these.
    ("REVERSE", "USED", "AVAILABLE"),
    ("REVERSE", "USED", "EXPIRED"),
    ("REVERSE", "AVAILABLE", "USED"),
    ("REVERSE", "EXPIRED", "USED"),
    ("REVERSE", "VOID", "AVAILABLE"),
    ("REVERSE", "VOID", "USED"),
    ("REVERSE", "AVAILABLE", "VOID"),
    ("REVERSE", "USED", "VOID"),
]
"""The table of edges: what the ledger's CHECK allows. The edges on UserCoupon must say the same (tested)."""


def _edge_of_the_table() -> In:
    """(command, from, to) is one of EDGES, as a condition the database can check: one word in a list of words.

    PostgreSQL unpacks a CHECK anew for every statement; nineteen ORed comparisons took longer than the insert itself.
    """
    source = Coalesce(F("from_status"), Value(""), output_field=models.TextField())
    parts = (F("command"), Value(":"), source, Value(":"), F("to_status"))
    # In the order of the alphabet, as a migration writes them down: otherwise the two are not equal.
    word = Func(*parts, arg_joiner=" || ", output_field=models.TextField(), template="(%(expressions)s)")
    return In(word, [f"{command}:{before or ''}:{target}" for command, before, target in EDGES])


class ReturnPolicy(models.Model):
    """One version of a merchant's rules for giving coupons back. A published version never changes again."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, verbose_name=_("merchant"))
    code = models.CharField(_("code"), max_length=64)
    version = models.PositiveIntegerField(_("version"))
    rules = models.JSONField(_("rules"))
    created_by = models.CharField(_("created by"), max_length=120, blank=True, default="")
    created_at = models.DateTimeField(_("created at"))
    published_at = models.DateTimeField(_("published at"), null=True)

    class Meta:
        db_table = "return_policy"
        verbose_name = _("return policy")
        verbose_name_plural = _("return policies")
        ordering = ["merchant", "code", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["merchant", "code", "version"], name="return_policy_version_is_one_row"),
            models.CheckConstraint(condition=Q(version__gte=1), name="return_policy_version_from_1"),
        ]
        triggers = [
            *append_only(may_change=["published_at"]),
            pgtrigger.Protect(
                name="published_is_final",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__published_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.code} v{self.version}"


class CouponTemplate(models.Model):
    """One version of what a coupon promises. A change is a new row; an issued coupon carries its own copy."""

    class Validity(models.TextChoices):
        DATES = "DATES", _("Between two dates")
        DAYS = "DAYS", _("Some days from the day of issue")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, verbose_name=_("merchant"))
    code = models.CharField(_("code"), max_length=64)
    version = models.PositiveIntegerField(_("version"))
    name = models.CharField(_("name"), max_length=120)
    kind = models.CharField(_("kind"), max_length=16, choices=CouponKind.choices)
    threshold_fen = models.BigIntegerField(_("threshold (fen)"), default=0)
    off_fen = models.BigIntegerField(_("off (fen)"), default=0)
    rate_bp = models.PositiveIntegerField(_("rate off (1/10000)"), default=0)
    cap_fen = models.BigIntegerField(_("cap (fen)"), null=True)
    exchange_sku = models.CharField(_("exchange SKU"), max_length=64, blank=True, default="")
    eligible_skus = models.JSONField(_("eligible SKUs"), default=list, blank=True)
    excluded_skus = models.JSONField(_("excluded SKUs"), default=list, blank=True)
    validity = models.CharField(_("validity"), max_length=8, choices=Validity.choices)
    valid_from_on = models.DateField(_("valid from"), null=True)
    valid_until_on = models.DateField(_("valid until"), null=True)
    valid_days = models.PositiveIntegerField(_("valid days"), null=True)
    per_user_limit = models.PositiveIntegerField(_("limit per user"), null=True)
    total_limit = models.PositiveIntegerField(_("total limit"), null=True)
    policy_code = models.CharField(_("return policy"), max_length=64)
    created_by = models.CharField(_("created by"), max_length=120, blank=True, default="")
    created_at = models.DateTimeField(_("created at"))
    retired_at = models.DateTimeField(_("retired at"), null=True)

    class Meta:
        db_table = "coupon_template"
        verbose_name = _("coupon template")
        verbose_name_plural = _("coupon templates")
        ordering = ["merchant", "code", "-version"]
        constraints = [
            models.UniqueConstraint(fields=["merchant", "code", "version"], name="coupon_template_version_is_one_row"),
            models.CheckConstraint(condition=Q(version__gte=1), name="coupon_template_version_from_1"),
            models.CheckConstraint(
                condition=Q(kind="THRESHOLD", threshold_fen__gte=0, off_fen__gt=0, rate_bp=0, exchange_sku="")
                | Q(kind="PERCENT", rate_bp__range=(1, 10_000), cap_fen__gt=0, off_fen=0, exchange_sku="")
                | Q(kind="PERCENT", rate_bp__range=(1, 10_000), cap_fen__isnull=True, off_fen=0, exchange_sku="")
                | (Q(kind="EXCHANGE", off_fen=0, rate_bp=0) & ~Q(exchange_sku=""))
                | Q(kind="LINE", off_fen__gt=0, rate_bp=0, exchange_sku=""),
                name="coupon_template_kind_has_its_amounts",
            ),
            models.CheckConstraint(condition=Q(threshold_fen__gte=0), name="coupon_template_threshold_not_negative"),
            models.CheckConstraint(
                condition=Q(
                    validity="DATES",
                    valid_from_on__isnull=False,
                    valid_until_on__gte=F("valid_from_on"),
                    valid_days__isnull=True,
                )
                | Q(validity="DAYS", valid_days__gte=0, valid_from_on__isnull=True, valid_until_on__isnull=True),
                name="coupon_template_validity_is_complete",
            ),
            models.CheckConstraint(
                condition=Q(per_user_limit__isnull=True) | Q(per_user_limit__gte=1),
                name="coupon_template_user_limit_from_1",
            ),
        ]
        triggers = append_only(may_change=["retired_at"])

    def __str__(self) -> str:
        return f"{self.name} ({self.code} v{self.version})"


class Campaign(models.Model):
    """A reason to issue coupons of one template, with limits of its own. Closing it is a fact for return decisions."""

    class State(models.TextChoices):
        OPEN = "OPEN", _("Open")
        CLOSED = "CLOSED", _("Closed")

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, verbose_name=_("merchant"))
    code = models.CharField(_("code"), max_length=64)
    name = models.CharField(_("name"), max_length=120)
    template_code = models.CharField(_("template"), max_length=64)
    per_user_limit = models.PositiveIntegerField(_("limit per user"), null=True)
    total_limit = models.PositiveIntegerField(_("total limit"), null=True)
    starts_at = models.DateTimeField(_("starts at"))
    ends_at = models.DateTimeField(_("ends at"), null=True)
    state = models.CharField(_("state"), max_length=8, choices=State.choices, default=State.OPEN)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        db_table = "coupon_campaign"
        verbose_name = _("campaign")
        verbose_name_plural = _("campaigns")
        ordering = ["merchant", "code"]
        constraints = [
            models.UniqueConstraint(fields=["merchant", "code"], name="campaign_code_is_one_row"),
            models.CheckConstraint(
                condition=Q(ends_at__isnull=True) | Q(ends_at__gt=F("starts_at")), name="campaign_ends_after_start"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"


class IssueCount(models.Model):
    """How many coupons of a template code or a campaign went out: to one user, or (user_id "") to everybody.

    The row that limits lock on: made by the same upsert that counts, so a user's very first coupon is safe too.
    """

    class Owner(models.TextChoices):
        TEMPLATE = "TEMPLATE"
        CAMPAIGN = "CAMPAIGN"

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT)
    owner_kind = models.CharField(max_length=8, choices=Owner.choices)
    owner_code = models.CharField(max_length=64)
    user_id = models.CharField(max_length=64, blank=True, default="")
    issued = models.PositiveBigIntegerField()

    class Meta:
        db_table = "coupon_issue_count"
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "owner_kind", "owner_code", "user_id"], name="issue_count_is_one_row"
            ),
        ]


class UserCoupon(models.Model):
    """A coupon in somebody's wallet. Only the commands move it, each proving who acts, under which lease, from
    which version; the database refuses a change without a version and a version without its ledger row."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey(
        "merchants.Merchant", on_delete=models.PROTECT, db_index=False, verbose_name=_("merchant")
    )
    user_id = models.CharField(_("user"), max_length=64)
    template = models.ForeignKey(CouponTemplate, on_delete=models.PROTECT, verbose_name=_("template"))
    template_snapshot = models.JSONField(_("template as issued"))
    policy = models.ForeignKey(ReturnPolicy, on_delete=models.PROTECT, db_index=False, verbose_name=_("return policy"))
    policy_snapshot = models.JSONField(_("return policy as issued"))
    campaign = models.ForeignKey(
        Campaign, on_delete=models.PROTECT, null=True, db_index=False, verbose_name=_("campaign")
    )
    valid_from = models.DateTimeField(_("valid from"))
    valid_until = models.DateTimeField(
        _("valid until"), help_text=_("The first instant at which it is no longer valid.")
    )
    created_at = models.DateTimeField(_("issued at"))

    status = FSMField(_("status"), max_length=16, choices=CouponStatus.choices, default=CouponStatus.AVAILABLE)
    state_version = models.PositiveIntegerField(_("version"), default=1)
    locked_order_no = models.CharField(_("locked by order"), max_length=64, null=True)
    lock_id = models.UUIDField(_("lease"), null=True)
    lock_token_hash = models.BinaryField(_("token hash"), max_length=32, null=True, editable=False)
    lease_expires_at = models.DateTimeField(_("lease may be released from"), null=True)
    updated_at = models.DateTimeField(_("updated at"))

    class Meta:
        db_table = "user_coupon"
        verbose_name = _("coupon")
        verbose_name_plural = _("coupons")
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    status="LOCKED",
                    locked_order_no__isnull=False,
                    lock_id__isnull=False,
                    lock_token_hash__isnull=False,
                    lease_expires_at__isnull=False,
                )
                | (
                    ~Q(status="LOCKED")
                    & Q(
                        locked_order_no__isnull=True,
                        lock_id__isnull=True,
                        lock_token_hash__isnull=True,
                        lease_expires_at__isnull=True,
                    )
                ),
                name="coupon_locked_has_order_token_expiry",
            ),
            models.CheckConstraint(condition=Q(status__in=CouponStatus.values), name="coupon_status_is_known"),
            models.CheckConstraint(condition=Q(valid_until__gt=F("valid_from")), name="coupon_validity_is_a_span"),
        ]
        # No index may name a column that commands change: an update then stays on its page (HOT).
        indexes = [
            models.Index(fields=["merchant", "user_id", "-id"], name="coupon_by_user"),
            models.Index(fields=["merchant", "-id"], name="coupon_by_merchant"),
            models.Index(fields=["valid_until", "id"], name="coupon_by_validity"),
        ]
        triggers = [
            pgtrigger.Protect(
                name="moves_with_its_version",
                operation=pgtrigger.Update,
                condition=pgtrigger.Condition(
                    "NEW.state_version <> OLD.state_version + 1 AND ("
                    "NEW.state_version <> OLD.state_version"
                    " OR NEW.status IS DISTINCT FROM OLD.status"
                    " OR NEW.locked_order_no IS DISTINCT FROM OLD.locked_order_no"
                    " OR NEW.lock_id IS DISTINCT FROM OLD.lock_id"
                    " OR NEW.lock_token_hash IS DISTINCT FROM OLD.lock_token_hash"
                    " OR NEW.lease_expires_at IS DISTINCT FROM OLD.lease_expires_at)"
                ),
            ),
            pgtrigger.Trigger(
                name="promise_is_fixed",
                when=pgtrigger.Before,
                operation=pgtrigger.UpdateOf(
                    "id",
                    "merchant_id",
                    "user_id",
                    "template_id",
                    "template_snapshot",
                    "policy_id",
                    "policy_snapshot",
                    "campaign_id",
                    "valid_from",
                    "valid_until",
                    "created_at",
                ),
                func="RAISE EXCEPTION 'pgtrigger: Cannot change what coupon % promises', OLD.id;",
            ),
            pgtrigger.Protect(name="never_deleted", operation=pgtrigger.Delete),
            pgtrigger.Trigger(
                name="never_truncated",
                level=pgtrigger.Statement,
                when=pgtrigger.Before,
                operation=pgtrigger.Truncate,
                func="RAISE EXCEPTION 'pgtrigger: Cannot truncate table %', TG_TABLE_NAME;",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @transition(field=status, source="AVAILABLE", target="LOCKED")
    def lock(self) -> None: ...

    @transition(field=status, source="LOCKED", target="LOCKED")
    def renew(self) -> None: ...

    @transition(field=status, source="LOCKED", target="USED")
    def redeem(self) -> None: ...

    @transition(field=status, source="LOCKED", target=RETURN_VALUE("AVAILABLE", "EXPIRED"))
    def release(self) -> None: ...

    @transition(field=status, source="USED", target=RETURN_VALUE("AVAILABLE", "EXPIRED"))
    def give_back(self) -> None: ...

    @transition(field=status, source=["AVAILABLE", "USED"], target="VOID")
    def void(self) -> None: ...

    @transition(field=status, source="AVAILABLE", target="EXPIRED")
    def expire(self) -> None: ...

    @transition(
        field=status,
        source=["AVAILABLE", "EXPIRED", "USED", "VOID"],
        target=RETURN_VALUE("AVAILABLE", "EXPIRED", "USED", "VOID"),
    )
    def reverse(self) -> None: ...


class CouponLock(models.Model):
    """A lease: one order's claim on one coupon. It is in force until an operation ended it, not until it expires."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant_id = models.UUIDField()
    coupon = models.ForeignKey(UserCoupon, on_delete=models.PROTECT, verbose_name=_("coupon"))
    order_no = models.CharField(_("order"), max_length=64)
    acquired_version = models.PositiveIntegerField(_("acquired at version"))
    token_hash = models.BinaryField(max_length=32, editable=False)
    key_version = models.PositiveSmallIntegerField()
    locked_at = models.DateTimeField(_("locked at"))
    expires_at = models.DateTimeField(_("may be released from"))
    ended_by = models.ForeignKey(
        "CouponOperation",
        on_delete=models.PROTECT,
        null=True,
        related_name="ended_locks",
        db_index=False,
        verbose_name=_("ended by"),
    )
    coordinated_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "coupon_lock"
        verbose_name = _("coupon lease")
        verbose_name_plural = _("coupon leases")
        constraints = [
            models.UniqueConstraint(
                fields=["coupon"], condition=Q(ended_by__isnull=True), name="coupon_has_one_active_lease"
            ),
        ]
        indexes = [
            models.Index(fields=["expires_at", "id"], condition=Q(ended_by__isnull=True), name="lease_by_expiry"),
            models.Index(fields=["merchant_id", "order_no"], name="lease_by_order"),
        ]
        triggers = [
            *append_only(may_change=["expires_at", "ended_by", "coordinated_at"]),
            pgtrigger.Protect(
                name="ended_is_final",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__ended_by__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.order_no} ({self.id})"


class CouponRedemption(models.Model):
    """The fact that an order used a coupon. Never deleted; its only legal change is `ended_by`, once."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant_id = models.UUIDField()
    coupon = models.ForeignKey(UserCoupon, on_delete=models.PROTECT, verbose_name=_("coupon"))
    order_no = models.CharField(_("order"), max_length=64)
    payment_no = models.CharField(_("payment"), max_length=64)
    lock_id = models.UUIDField(_("lease"))
    redeemed_at = models.DateTimeField(_("redeemed at"))
    replaces = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, db_index=False, verbose_name=_("replaces")
    )
    ended_by = models.ForeignKey(
        "CouponOperation",
        on_delete=models.PROTECT,
        null=True,
        related_name="ended_redemptions",
        db_index=False,
        verbose_name=_("ended by"),
    )

    class Meta:
        db_table = "coupon_redemption"
        verbose_name = _("coupon redemption")
        verbose_name_plural = _("coupon redemptions")
        constraints = [
            models.UniqueConstraint(
                fields=["coupon"], condition=Q(ended_by__isnull=True), name="coupon_has_one_redemption_in_force"
            ),
        ]
        indexes = [models.Index(fields=["merchant_id", "order_no"], name="redemption_by_order")]
        triggers = [
            *append_only(may_change=["ended_by"]),
            pgtrigger.Protect(
                name="ended_is_final",
                operation=pgtrigger.Update,
                condition=pgtrigger.Q(old__ended_by__isnull=False) | pgtrigger.Q(new__ended_by__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.order_no} ({self.id})"


class RefundCoupon(models.Model):
    """A return decision: what became of the coupon when its order was refunded, by which policy and why."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey("merchants.Merchant", on_delete=models.PROTECT, verbose_name=_("merchant"))
    coupon = models.ForeignKey(UserCoupon, on_delete=models.PROTECT, verbose_name=_("coupon"))
    redemption = models.ForeignKey(CouponRedemption, on_delete=models.PROTECT, verbose_name=_("redemption"))
    order_no = models.CharField(_("order"), max_length=64)
    cause_no = models.CharField(_("because of"), max_length=64, help_text=_("After-sales order or refund."))
    decision = models.CharField(_("decision"), max_length=8, choices=ReturnDecision.choices)
    reasons = models.JSONField(_("reasons"))
    facts = models.JSONField(_("facts"))
    policy = models.ForeignKey(ReturnPolicy, on_delete=models.PROTECT, verbose_name=_("return policy"))
    review_of = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, verbose_name=_("review of"), related_name="reviews"
    )
    decided_by = models.CharField(_("decided by"), max_length=120)
    decided_at = models.DateTimeField(_("decided at"))

    class Meta:
        db_table = "refund_coupon"
        verbose_name = _("return decision")
        verbose_name_plural = _("return decisions")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["merchant", "redemption", "cause_no"], name="return_decision_once_per_cause"
            ),
            models.UniqueConstraint(
                fields=["redemption"], condition=Q(decision="RETURN"), name="redemption_is_returned_once"
            ),
            models.UniqueConstraint(
                fields=["review_of"], condition=Q(review_of__isnull=False), name="review_is_decided_once"
            ),
            models.CheckConstraint(condition=Q(decision__in=ReturnDecision.values), name="return_decision_is_known"),
        ]
        indexes = [
            models.Index(fields=["merchant", "-id"], name="return_decision_by_merchant"),
            models.Index(fields=["decision", "-id"], name="return_decision_by_outcome"),
            models.Index(fields=["order_no"], name="return_decision_by_order"),
            models.Index(fields=["cause_no"], name="return_decision_by_cause"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.decision} {self.order_no}"


class CouponOperation(models.Model):
    """The ledger: one row per change of one coupon, each bound to the row before it."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant_id = models.UUIDField()
    coupon = models.ForeignKey(UserCoupon, on_delete=models.PROTECT, db_index=False, verbose_name=_("coupon"))
    command = models.CharField(_("command"), max_length=8, choices=CouponCommand.choices)
    from_version = models.PositiveIntegerField(_("from version"), null=True)
    from_status = models.CharField(_("from"), max_length=16, choices=CouponStatus.choices, null=True)
    to_version = models.PositiveIntegerField(_("to version"))
    to_status = models.CharField(_("to"), max_length=16, choices=CouponStatus.choices)
    order_no = models.CharField(_("order"), max_length=64, blank=True, default="")
    lock_id = models.UUIDField(_("lease"), null=True)
    lease_expires_at = models.DateTimeField(_("lease may be released from"), null=True)
    redemption_id = models.UUIDField(_("redemption"), null=True)
    original = models.ForeignKey("self", on_delete=models.PROTECT, null=True, db_index=False, verbose_name=_("undoes"))
    decision = models.ForeignKey(
        RefundCoupon, on_delete=models.PROTECT, null=True, db_index=False, verbose_name=_("return decision")
    )
    actor = models.CharField(_("who"), max_length=120)
    reason = models.CharField(_("reason"), max_length=200, blank=True, default="")
    business_key = models.CharField(_("business key"), max_length=200)
    at = models.DateTimeField(_("at"))

    class Meta:
        db_table = "coupon_operation"
        verbose_name = _("coupon operation")
        verbose_name_plural = _("coupon operations")
        constraints = [
            models.UniqueConstraint(
                fields=["coupon", "to_version"],
                include=["command", "from_version", "from_status", "to_status"],
                name="ledger_has_one_row_per_version",
            ),
            # What the chain's and the coupon's composite foreign keys point at.
            models.UniqueConstraint(fields=["coupon", "to_version", "to_status"], name="ledger_version_and_status"),
            models.CheckConstraint(
                condition=Q(to_version=1, from_version__isnull=True, from_status__isnull=True)
                | Q(
                    from_version__isnull=False,
                    from_status__isnull=False,
                    to_version__gt=1,
                    from_version=F("to_version") - 1,
                ),
                name="ledger_starts_at_1_and_has_no_gap",
            ),
            models.CheckConstraint(condition=_edge_of_the_table(), name="ledger_row_is_an_edge"),
            models.UniqueConstraint(
                fields=["original"], condition=Q(original__isnull=False), name="operation_is_reversed_once"
            ),
            models.CheckConstraint(
                condition=Q(command="REVERSE", original__isnull=False)
                | (~Q(command="REVERSE") & Q(original__isnull=True)),
                name="reverse_names_its_original",
            ),
            models.UniqueConstraint(
                fields=["decision"], condition=Q(decision__isnull=False), name="decision_is_carried_out_once"
            ),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.command} v{self.to_version}"


class CouponRefusal(models.Model):
    """A command that was refused: what it asked, what it met. Written after its rollback; never holds a token."""

    merchant_id = models.UUIDField(null=True)
    coupon_id = models.UUIDField(null=True)
    command = models.CharField(_("command"), max_length=8, choices=CouponCommand.choices)
    code = models.CharField(_("code"), max_length=40)
    business_key = models.CharField(_("business key"), max_length=200, blank=True, default="")
    request_hash = models.CharField(max_length=64, blank=True, default="")
    order_no = models.CharField(_("order"), max_length=64, blank=True, default="")
    expected_version = models.PositiveIntegerField(_("expected version"), null=True)
    actual_version = models.PositiveIntegerField(_("actual version"), null=True)
    actual_status = models.CharField(_("actual status"), max_length=16, blank=True, default="")
    token_matched = models.BooleanField(_("token matched"), null=True)
    actor = models.CharField(_("who"), max_length=120)
    at = models.DateTimeField(_("at"))

    class Meta:
        db_table = "coupon_refusal"
        verbose_name = _("refused command")
        verbose_name_plural = _("refused commands")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["coupon_id", "at"], name="refusal_by_coupon"),
            models.Index(fields=["merchant_id", "-id"], name="refusal_by_merchant"),
            models.Index(fields=["command", "-id"], name="refusal_by_command"),
            models.Index(fields=["code", "-id"], name="refusal_by_code"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.command} {self.code}"
