"""Merchants, the people who work for them or for the house, and the programs that call the API."""

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from kernel import numbers
from kernel.append_only import append_only
from merchants.roles import MERCHANT, Role


class FreightPolicy(models.TextChoices):
    BY_AMOUNT = "by_amount", _("By amount")
    EQUAL = "equal", _("Equally per line")


def bounded(low: int, high: int) -> list:
    """Form-side limits of a setting; the database repeats them as a CHECK."""
    return [MinValueValidator(low), MaxValueValidator(high)]


class Merchant(models.Model):
    """One shop. Every business row of the product belongs to exactly one. All windows are given in their unit."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    code = models.CharField(
        _("code"),
        max_length=32,
        unique=True,
        validators=[RegexValidator(r"^[a-z0-9][a-z0-9-]*$", _("Lower-case letters, digits and hyphens."))],
    )
    name = models.CharField(_("name"), max_length=80)
    timezone = models.CharField(_("time zone"), max_length=40, default="Asia/Shanghai")
    is_active = models.BooleanField(_("active"), default=True)

    freight_policy = models.CharField(
        _("freight split"), max_length=16, choices=FreightPolicy, default=FreightPolicy.BY_AMOUNT
    )
    lease_seconds = models.PositiveIntegerField(_("coupon lease (seconds)"), default=300, validators=bounded(30, 3600))
    payment_window_seconds = models.PositiveIntegerField(
        _("time to pay (seconds)"), default=1800, validators=bounded(60, 7 * 86400)
    )
    return_window_days = models.PositiveSmallIntegerField(
        _("return window after signing (days)"), default=15, validators=bounded(0, 365)
    )
    audit_hours = models.PositiveSmallIntegerField(_("time to audit (hours)"), default=48, validators=bounded(1, 720))
    auto_approve_unshipped = models.BooleanField(
        _("approve unshipped refunds when the audit time is over"), default=True
    )
    send_back_days = models.PositiveSmallIntegerField(
        _("time for the buyer to send back (days)"), default=7, validators=bounded(1, 90)
    )
    receive_days = models.PositiveSmallIntegerField(
        _("time to confirm a delivered return (days)"), default=10, validators=bounded(1, 90)
    )
    supplement_hours = models.PositiveSmallIntegerField(
        _("time to pay a supplement (hours)"), default=24, validators=bounded(1, 720)
    )
    buyer_confirm_days = models.PositiveSmallIntegerField(
        _("time for the buyer to confirm an exchange (days)"), default=7, validators=bounded(1, 90)
    )
    ship_exchange_hours = models.PositiveSmallIntegerField(
        _("time to ship a replacement (hours)"), default=72, validators=bounded(1, 720)
    )

    version = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        db_table = "merchant"
        verbose_name = _("merchant")
        verbose_name_plural = _("merchants")
        ordering = ["code"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(freight_policy__in=FreightPolicy.values),
                name="merchant_freight_policy_is_known",
            ),
            models.CheckConstraint(
                condition=models.Q(lease_seconds__range=(30, 3600)), name="merchant_lease_is_30s_to_1h"
            ),
            models.CheckConstraint(
                condition=models.Q(payment_window_seconds__range=(60, 7 * 86400)),
                name="merchant_payment_window_is_1min_to_7d",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Staff(models.Model):
    """A person of the back office. Merchant roles belong to one merchant; house roles to none and see all."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="staff", verbose_name=_("login")
    )
    role = models.CharField(_("role"), max_length=20, choices=Role)
    merchant = models.ForeignKey(
        Merchant,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="staff",
        verbose_name=_("merchant"),
    )
    must_change_password = models.BooleanField(_("must change the password"), default=False)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        db_table = "staff"
        verbose_name = _("staff member")
        verbose_name_plural = _("staff")
        ordering = ["-id"]
        constraints = [
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="staff_role_is_known"),
            models.CheckConstraint(
                condition=(
                    models.Q(role__in=sorted(MERCHANT), merchant__isnull=False)
                    | (~models.Q(role__in=sorted(MERCHANT)) & models.Q(merchant__isnull=True))
                ),
                name="staff_has_merchant_exactly_in_merchant_roles",
            ),
        ]

    def __str__(self) -> str:
        return self.user.get_username()


class StaffSession(models.Model):
    """One login of a person, from when to when, from where. The newest few are open, older ones are ended."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    staff = models.ForeignKey(Staff, on_delete=models.CASCADE, related_name="sessions", verbose_name=_("staff member"))
    session_key = models.CharField(max_length=40, unique=True, editable=False)
    entered_at = models.DateTimeField(_("since"))
    ended_at = models.DateTimeField(_("until"), null=True)
    address = models.CharField(_("address"), max_length=45)
    user_agent = models.CharField(_("browser"), max_length=200)

    class Meta:
        db_table = "staff_session"
        verbose_name = _("login session")
        verbose_name_plural = _("login sessions")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["staff", "-id"], condition=models.Q(ended_at__isnull=True), name="staff_session_open")
        ]

    def __str__(self) -> str:
        return f"{self.staff_id} {self.entered_at:%Y-%m-%d %H:%M}"


class SecondFactor(models.Model):
    """A person's authenticator app. Unconfirmed until its first code was entered."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    staff = models.OneToOneField(
        Staff, on_delete=models.CASCADE, related_name="second_factor", verbose_name=_("staff member")
    )
    secret_encrypted = models.TextField(editable=False)
    created_at = models.DateTimeField(_("created at"))
    confirmed_at = models.DateTimeField(_("confirmed at"), null=True)
    # The step of the last accepted code: a code counts once.
    last_step = models.BigIntegerField(default=0, editable=False)
    failures = models.PositiveSmallIntegerField(default=0, editable=False)
    locked_until = models.DateTimeField(null=True, editable=False)

    class Meta:
        db_table = "second_factor"
        verbose_name = _("second factor")
        verbose_name_plural = _("second factors")

    def __str__(self) -> str:
        return str(self.staff_id)


class RecoveryCode(models.Model):
    """A code for the day on which the phone is gone; its digest only, and it opens the door once."""

    id = models.BigAutoField(primary_key=True)
    staff = models.ForeignKey(Staff, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.CharField(max_length=64, editable=False)
    used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "recovery_code"
        constraints = [models.UniqueConstraint(fields=["staff", "digest"], name="recovery_code_is_one_per_person")]

    def __str__(self) -> str:
        return f"{self.staff_id} {'used' if self.used_at else 'unused'}"


class SavedFilter(models.Model):
    """A list as a person likes to see it: its filters, search and order under a name of their own."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    staff = models.ForeignKey(
        Staff, on_delete=models.CASCADE, related_name="saved_filters", verbose_name=_("staff member")
    )
    page = models.CharField(_("list"), max_length=80)
    label = models.CharField(_("name"), max_length=40)
    query = models.CharField(_("filters"), max_length=500)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        db_table = "saved_filter"
        verbose_name = _("saved filter")
        verbose_name_plural = _("saved filters")
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(fields=["staff", "page", "label"], name="saved_filter_name_once_per_list")
        ]

    def __str__(self) -> str:
        return self.label


class Scope(models.TextChoices):
    """What an API client may do. `read` covers every GET."""

    ORDERS = "orders", _("Orders")
    COUPONS = "coupons", _("Coupons")
    AFTER_SALES = "after_sales", _("After-sales")
    READ = "read", _("Read")


class ApiClient(models.Model):
    """A backend program of one merchant."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    merchant = models.ForeignKey(
        Merchant, on_delete=models.PROTECT, related_name="api_clients", verbose_name=_("merchant")
    )
    name = models.CharField(_("name"), max_length=80)
    scopes = ArrayField(models.CharField(max_length=20, choices=Scope), verbose_name=_("scopes"))
    is_active = models.BooleanField(_("active"), default=True)
    requests_per_minute = models.PositiveIntegerField(
        _("requests per minute"), default=30_000, validators=bounded(1, 10_000_000)
    )
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        db_table = "api_client"
        verbose_name = _("API client")
        verbose_name_plural = _("API clients")
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["merchant", "name"], name="api_client_name_once_per_merchant"),
            models.CheckConstraint(
                condition=models.Q(scopes__contained_by=Scope.values), name="api_client_scopes_are_known"
            ),
            models.CheckConstraint(condition=models.Q(requests_per_minute__gte=1), name="api_client_rate_is_positive"),
        ]

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """One secret of a client. Several may be active at a time, so that a rotation overlaps."""

    id = models.UUIDField(primary_key=True, default=numbers.uuid7, editable=False)
    client = models.ForeignKey(ApiClient, on_delete=models.PROTECT, related_name="keys", verbose_name=_("API client"))
    key_id = models.CharField(_("key id"), max_length=32, unique=True)
    # Encrypted, not hashed: a signature is verified with the secret itself.
    secret_encrypted = models.TextField(editable=False)
    created_at = models.DateTimeField(_("created at"))
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked at"), null=True, blank=True)

    class Meta:
        db_table = "api_key"
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.key_id


class StaffAction(models.Model):
    """Append-only: what a person did in the back office, from where, and what it changed."""

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(_("when"))
    username = models.CharField(_("login"), max_length=150)
    role = models.CharField(_("role"), max_length=20, choices=Role)
    merchant = models.ForeignKey(
        Merchant,
        null=True,
        on_delete=models.PROTECT,
        related_name="staff_actions",
        verbose_name=_("merchant"),
    )
    action = models.CharField(_("action"), max_length=64)
    subject_type = models.CharField(_("kind of object"), max_length=80)
    subject_id = models.CharField(_("object"), max_length=64)
    subject_label = models.CharField(_("name of the object"), max_length=200)
    outcome = models.CharField(_("result"), max_length=64, default="done")
    before = models.JSONField(_("before"), default=dict)
    after = models.JSONField(_("after"), default=dict)
    detail = models.JSONField(_("entered"), default=dict)
    address = models.CharField(_("address"), max_length=45)
    user_agent = models.CharField(_("browser"), max_length=200)

    class Meta:
        db_table = "staff_action"
        verbose_name = _("staff action")
        verbose_name_plural = _("audit trail")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["merchant", "-id"], name="staff_action_by_merchant"),
            models.Index(fields=["subject_type", "subject_id"], name="staff_action_by_subject"),
            models.Index(fields=["username", "-id"], name="staff_action_by_login"),
            models.Index(fields=["role", "-id"], name="staff_action_by_role"),
            models.Index(fields=["subject_label"], name="staff_action_by_label"),
        ]
        triggers = append_only()

    def __str__(self) -> str:
        return f"{self.username} {self.action} {self.subject_label}"
