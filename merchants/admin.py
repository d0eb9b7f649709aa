"""Back office pages of this floor: the shop's settings, merchants, staff, API clients, the audit trail."""

from datetime import datetime
from typing import Any, cast
from uuid import UUID
from zoneinfo import available_timezones

from django import forms
from django.contrib import admin
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Field, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kernel import admin as desk
from kernel import inbox, money
from kernel.admin.columns import badge
from kernel.admin.yuan import YuanField
from kernel.errors import IllegalTransition, Refusal
from kernel.idempotency import BusinessKey
from kernel.models import IdempotencyKey, InboxMessage, OutboxEvent
from merchants import roles, scoping, second_factor_pages  # noqa: F401 (its pages register themselves)
from merchants.commands.change_client import change_client
from merchants.commands.change_settings import CHANGEABLE, change_settings
from merchants.commands.change_staff import change_staff, set_password
from merchants.commands.create_client import KeyIssued, create_client
from merchants.commands.create_merchant import create_merchant
from merchants.commands.create_staff import LOGIN_LENGTH, create_staff
from merchants.commands.enter_desk import end_all_sessions
from merchants.commands.remove_second_factor import remove_second_factor
from merchants.commands.revoke_key import revoke_key
from merchants.commands.rotate_key import rotate_key
from merchants.commands.switch_merchant import switch_merchant
from merchants.commands.unlock_login import unlock_login
from merchants.models import (
    ApiClient,
    ApiKey,
    Merchant,
    RecoveryCode,
    SavedFilter,
    Scope,
    SecondFactor,
    Staff,
    StaffAction,
    StaffSession,
)
from merchants.roles import MERCHANT, PLATFORM, Role

ACCESS = gettext_lazy("Access")
SHOP = gettext_lazy("Shop")

scoping.register_page("dashboard", view=roles.EVERYBODY)
scoping.register_page("find", view=roles.READERS)
scoping.register(
    Merchant,
    path="pk",
    view=MERCHANT | roles.HOUSE | PLATFORM,
    actions={"settings": roles.OWNER, "create": PLATFORM, "switch_off": PLATFORM, "switch_on": PLATFORM},
)
scoping.register(
    Staff,
    view=PLATFORM | roles.AUDITOR | roles.OWNER,
    actions=dict.fromkeys(
        ["create", "change_role", "new_password", "switch_off", "switch_on", "unlock", "remove_factor"], PLATFORM
    ),
)
scoping.register(
    ApiClient,
    view=PLATFORM | roles.AUDITOR | roles.OWNER,
    actions=dict.fromkeys(["create", "rotate", "revoke", "change", "switch_off", "switch_on"], PLATFORM),
)
scoping.register(ApiKey, path="client__merchant")
scoping.register(StaffSession, path="staff__merchant")
scoping.register(SecondFactor, path="staff__merchant")
scoping.register(RecoveryCode, path="staff__merchant")
scoping.register(SavedFilter, path="staff__merchant")
scoping.register(IdempotencyKey, path="merchant_id")
scoping.register(OutboxEvent, path="merchant_id")
scoping.register(
    InboxMessage,
    path=None,
    reason="what a consumer made of an event; its merchant stands in the event",
    view=roles.OPERATIONS | roles.AUDITOR,
    actions={"revive": roles.OPERATIONS},
)
scoping.register(
    StaffAction,
    view=roles.AUDITOR | roles.OPERATIONS | PLATFORM | roles.OWNER,
    actions={"export": roles.AUDITOR | PLATFORM},
)

desk.register_navigation(
    "merchants.shop",
    group=SHOP,
    label=gettext_lazy("Shop and settings"),
    url="admin:merchants_merchant_changelist",
    page=Merchant,
    icon="storefront",
    order=800,
)
desk.register_navigation(
    "merchants.staff",
    group=ACCESS,
    label=gettext_lazy("Staff"),
    url="admin:merchants_staff_changelist",
    page=Staff,
    icon="badge",
    order=810,
)
desk.register_navigation(
    "merchants.clients",
    group=ACCESS,
    label=gettext_lazy("API clients"),
    url="admin:merchants_apiclient_changelist",
    page=ApiClient,
    icon="key",
    order=820,
)
desk.register_navigation(
    "merchants.trail",
    group=ACCESS,
    label=gettext_lazy("Audit trail"),
    url="admin:merchants_staffaction_changelist",
    page=StaffAction,
    icon="history",
    order=830,
)
desk.register_navigation(
    "kernel.messages",
    group=ACCESS,
    label=gettext_lazy("Messages"),
    url="admin:kernel_inboxmessage_changelist",
    page=InboxMessage,
    icon="mail",
    order=840,
)
desk.register_waiting(
    "kernel.dead_messages",
    gettext_lazy("Dead messages"),
    query=lambda scope: desk.capped(scope.of(InboxMessage).filter(state=InboxMessage.State.DEAD)),
    url="admin:kernel_inboxmessage_changelist",
    params={"state__exact": InboxMessage.State.DEAD},
    page=InboxMessage,
    action="revive",
    icon="mail_off",
    hint=gettext_lazy("Events whose effect failed too often. Look at the error, then try again."),
    order=90,
)


def _field_of(name: str) -> forms.Field:
    field = cast(Field, Merchant._meta.get_field(name)).formfield()
    assert field is not None
    if name == "timezone":
        zones = sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith("Etc"))
        return forms.ChoiceField(label=field.label, choices=[(zone, zone) for zone in zones])
    return field


class SettingsForm(desk.ButtonForm):
    """Every setting of a shop, with the bounds of the model."""

    def prepare(self) -> None:
        for name in CHANGEABLE:
            self.fields[name] = _field_of(name)


class MerchantForm(desk.ButtonForm):
    code = forms.SlugField(label=gettext_lazy("Code"), max_length=32)
    name = forms.CharField(label=gettext_lazy("Name"), max_length=80)

    def prepare(self) -> None:
        self.fields["timezone"] = _field_of("timezone")
        self.fields["timezone"].initial = "Asia/Shanghai"


@desk.register(Merchant)
class MerchantAdmin(desk.QuitsAdmin):
    stays_short = True
    list_display = [
        "code",
        "name",
        "timezone",
        desk.yes_no("is_active", gettext_lazy("Active")),
        desk.when("created_at", gettext_lazy("Created")),
    ]
    search_fields = ["=code", "name"]
    ordering = ["code"]
    list_hint = gettext_lazy("How each shop works: windows, deadlines, the split of freight.")
    fieldsets = [
        (None, {"fields": ["code", "name", "timezone", "is_active"]}),
        (
            gettext_lazy("Orders"),
            {"fields": ["freight_policy", "lease_seconds", "payment_window_seconds"]},
        ),
        (
            gettext_lazy("After-sales"),
            {
                "fields": [
                    "return_window_days",
                    "audit_hours",
                    "auto_approve_unshipped",
                    "send_back_days",
                    "receive_days",
                    "supplement_hours",
                    "buyer_confirm_days",
                    "ship_exchange_hours",
                ]
            },
        ),
    ]
    audit_fields = [*CHANGEABLE, "is_active", "version"]
    list_buttons = [
        desk.Button("create", gettext_lazy("New merchant"), form=MerchantForm, icon="add_business", variant="primary")
    ]
    buttons = [
        desk.Button(
            "settings",
            gettext_lazy("Change settings"),
            form=SettingsForm,
            icon="tune",
            variant="primary",
            confirm=gettext_lazy("New values hold for what begins from now on; running deadlines stay as they are."),
        ),
        desk.Button(
            "switch_off",
            gettext_lazy("Switch off"),
            icon="block",
            variant="danger",
            confirm=gettext_lazy("The merchant's staff cannot log in and its API clients are refused, at once."),
            allowed=lambda obj: obj.is_active,
        ),
        desk.Button("switch_on", gettext_lazy("Switch on"), icon="check_circle", allowed=lambda obj: not obj.is_active),
    ]

    def form_initial(self, request: HttpRequest, obj: Any, button: desk.Button) -> dict[str, Any]:
        return {name: getattr(obj, name) for name in CHANGEABLE} if button.name == "settings" else {}

    def do_create(
        self, request: HttpRequest, obj: Any, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        create_merchant(code=data["code"], name=data["name"], timezone=data["timezone"], now=now)
        return _("The merchant exists. Give it staff and an API client next.")

    def do_settings(
        self, request: HttpRequest, obj: Merchant, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        changes = {name: data[name] for name in CHANGEABLE if data[name] != getattr(obj, name)}
        if not changes:
            return _("Nothing was changed.")
        change_settings(merchant_id=obj.pk, changes=changes, expected_version=data["seen_version"], now=now)
        return _("Settings saved.")

    def do_switch_off(
        self, request: HttpRequest, obj: Merchant, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        switch_merchant(merchant_id=obj.pk, is_active=False, now=now)
        return _("Switched off.")

    def do_switch_on(
        self, request: HttpRequest, obj: Merchant, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        switch_merchant(merchant_id=obj.pk, is_active=True, now=now)
        return _("Switched on.")


class RoleForm(desk.ButtonForm):
    role = forms.ChoiceField(label=gettext_lazy("Role"), choices=Role.choices)
    merchant = forms.ModelChoiceField(
        label=gettext_lazy("Merchant"),
        queryset=Merchant.objects.none(),
        required=False,
        help_text=gettext_lazy("For merchant roles only."),
    )

    def prepare(self) -> None:
        self.fields["merchant"].queryset = Merchant.objects.order_by("code")  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if "role" in data and (data["role"] in MERCHANT) != (data.get("merchant") is not None):
            self.add_error("merchant", _("Merchant roles belong to one merchant; the other roles to none."))
        return data


class PasswordForm(desk.ButtonForm):
    password = forms.CharField(
        label=gettext_lazy("First password"),
        widget=forms.PasswordInput,
        help_text=gettext_lazy(
            "At least 10 characters, not only digits, none of the common ones. The person changes it on first login."
        ),
    )


class StaffForm(RoleForm):
    username = forms.CharField(label=gettext_lazy("Login"), max_length=LOGIN_LENGTH)
    password = PasswordForm.base_fields["password"]
    field_order = ["username", "password", "role", "merchant"]


@desk.register(Staff)
class StaffAdmin(desk.QuitsAdmin):
    stays_short = True
    list_display = [
        "user",
        desk.status("role", gettext_lazy("Role"), dict.fromkeys(MERCHANT, "primary")),
        "merchant",
        desk.yes_no("user__is_active", gettext_lazy("Active")),
        desk.when("user__last_login", gettext_lazy("Last login")),
    ]
    list_select_related = ["user", "merchant"]
    list_filter = ["role", desk.MerchantFilter]
    search_fields = ["user__username"]
    _last_login = desk.when("user__last_login", gettext_lazy("Last login"))
    fields = ["user", "role", "merchant", "active", _last_login, "has_factor", "must_change_password", "created_at"]
    readonly_fields = ["active", _last_login, "has_factor"]
    change_form_template = "admin/merchants/staff/page.html"
    list_hint = gettext_lazy("Everybody who may enter the back office, and in which role.")
    audit_fields = ["role", "merchant_id", "must_change_password"]
    list_buttons = [
        desk.Button("create", gettext_lazy("New staff member"), form=StaffForm, icon="person_add", variant="primary")
    ]
    buttons = [
        desk.Button("change_role", gettext_lazy("Change role"), form=RoleForm, icon="badge"),
        desk.Button(
            "new_password",
            gettext_lazy("New password"),
            form=PasswordForm,
            icon="password",
            confirm=gettext_lazy("Every open session of this person ends."),
        ),
        desk.Button(
            "remove_factor",
            gettext_lazy("Remove second factor"),
            icon="phonelink_erase",
            variant="danger",
            confirm=gettext_lazy(
                "For a lost phone. Make sure that it is really this person who asks. They set up a new one at login "
                "where their role demands it; every open session ends."
            ),
            allowed=lambda obj: hasattr(obj, "second_factor") and obj.second_factor.confirmed_at is not None,
        ),
        desk.Button(
            "unlock",
            gettext_lazy("Unlock login"),
            icon="lock_open",
            confirm=gettext_lazy("Forgets the failed attempts of this login, so that the person may try again."),
        ),
        desk.Button(
            "switch_off",
            gettext_lazy("Switch off"),
            icon="block",
            variant="danger",
            confirm=gettext_lazy("The person is out with their next click."),
            allowed=lambda obj: obj.user.is_active,
        ),
        desk.Button(
            "switch_on", gettext_lazy("Switch on"), icon="check_circle", allowed=lambda obj: not obj.user.is_active
        ),
    ]

    @admin.display(description=gettext_lazy("Active"), boolean=True)
    def active(self, obj: Staff) -> bool:
        return obj.user.is_active

    @admin.display(description=gettext_lazy("Second factor"), boolean=True)
    def has_factor(self, obj: Staff) -> bool:
        return hasattr(obj, "second_factor") and obj.second_factor.confirmed_at is not None

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        return {"sessions": StaffSession.objects.filter(staff=obj).order_by("-id")[:10]}

    def form_initial(self, request: HttpRequest, obj: Any, button: desk.Button) -> dict[str, Any]:
        return {"role": obj.role, "merchant": obj.merchant_id} if button.name == "change_role" else {}

    def do_create(
        self, request: HttpRequest, obj: Any, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        made = create_staff(
            username=data["username"],
            password=data["password"],
            role=data["role"],
            merchant_id=data["merchant"].pk if data["merchant"] else None,
            now=now,
        )
        return _("%(login)s may log in now.") % {"login": made.username}

    def do_change_role(
        self, request: HttpRequest, obj: Staff, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        merchant = data["merchant"]
        change_staff(staff_id=obj.pk, role=data["role"], merchant_id=merchant.pk if merchant else None, now=now)
        return _("Role changed.")

    def do_new_password(
        self, request: HttpRequest, obj: Staff, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        set_password(staff_id=obj.pk, password=data["password"], must_change=True, now=now)
        return _("New password set. The person changes it on first login.")

    def do_remove_factor(
        self, request: HttpRequest, obj: Staff, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        remove_second_factor(staff_id=obj.pk, now=now)
        end_all_sessions(staff_id=obj.pk, now=now)
        return _("Second factor removed.")

    def do_unlock(
        self, request: HttpRequest, obj: Staff, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        unlock_login(staff_id=obj.pk, now=now)
        return _("Login unlocked.")

    def do_switch_off(
        self, request: HttpRequest, obj: Staff, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        change_staff(staff_id=obj.pk, is_active=False, now=now)
        return _("Switched off.")

    def do_switch_on(
        self, request: HttpRequest, obj: Staff, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        change_staff(staff_id=obj.pk, is_active=True, now=now)
        return _("Switched on.")


def _scopes_field() -> forms.MultipleChoiceField:
    return forms.MultipleChoiceField(label=gettext_lazy("Scopes"), choices=Scope.choices, initial=Scope.values)


def _rate_field() -> forms.IntegerField:
    return forms.IntegerField(
        label=gettext_lazy("Requests per minute"), min_value=1, max_value=10_000_000, initial=30_000
    )


class ClientForm(desk.ButtonForm):
    merchant = forms.ModelChoiceField(label=gettext_lazy("Merchant"), queryset=Merchant.objects.none())
    name = forms.CharField(
        label=gettext_lazy("Name"), max_length=80, help_text=gettext_lazy("For example: mini-program backend.")
    )
    scopes = _scopes_field()
    requests_per_minute = _rate_field()

    def prepare(self) -> None:
        self.fields["merchant"].queryset = Merchant.objects.order_by("code")  # type: ignore[attr-defined]


class ClientChangeForm(desk.ButtonForm):
    scopes = _scopes_field()
    requests_per_minute = _rate_field()


class RotateForm(desk.ButtonForm):
    overlap_hours = forms.IntegerField(
        label=gettext_lazy("Overlap (hours)"),
        min_value=0,
        max_value=90 * 24,
        initial=24,
        help_text=gettext_lazy("How long the present keys go on working beside the new one."),
    )


class RevokeForm(desk.ButtonForm):
    key_id = forms.ChoiceField(label=gettext_lazy("Key"))

    def prepare(self) -> None:
        keys = (
            ApiKey.objects.filter(client_id=self.obj.pk, revoked_at__isnull=True) if self.obj else ApiKey.objects.none()
        )
        self.fields["key_id"].choices = [(row.key_id, row.key_id) for row in keys]  # type: ignore[attr-defined]


@desk.register(ApiClient)
class ApiClientAdmin(desk.QuitsAdmin):
    stays_short = True
    list_display = [
        "name",
        "merchant",
        "scope_names",
        desk.yes_no("is_active", gettext_lazy("Active")),
        desk.when("created_at", gettext_lazy("Created")),
    ]
    list_select_related = ["merchant"]
    list_filter = [desk.MerchantFilter]
    search_fields = ["name", "=keys__key_id"]
    change_form_template = "admin/merchants/apiclient/page.html"
    fields = ["name", "merchant", "scope_names", "requests_per_minute", "is_active", "created_at"]
    readonly_fields = ["scope_names"]
    audit_fields = ["scopes", "requests_per_minute", "is_active"]
    list_hint = gettext_lazy("Programs that call the API for a merchant. A secret is shown once, when its key is made.")
    list_buttons = [
        desk.Button("create", gettext_lazy("New API client"), form=ClientForm, icon="add", variant="primary")
    ]
    buttons = [
        desk.Button("rotate", gettext_lazy("New key"), form=RotateForm, icon="autorenew", variant="primary"),
        desk.Button(
            "revoke",
            gettext_lazy("Revoke a key"),
            form=RevokeForm,
            icon="key_off",
            variant="danger",
            confirm=gettext_lazy("Requests signed with this key are refused at once."),
        ),
        desk.Button("change", gettext_lazy("Scopes and rate"), form=ClientChangeForm, icon="tune"),
        desk.Button(
            "switch_off",
            gettext_lazy("Switch off"),
            icon="block",
            variant="danger",
            confirm=gettext_lazy("Every request of this client is refused at once."),
            allowed=lambda obj: obj.is_active,
        ),
        desk.Button("switch_on", gettext_lazy("Switch on"), icon="check_circle", allowed=lambda obj: not obj.is_active),
    ]

    @admin.display(description=gettext_lazy("Scopes"))
    def scope_names(self, obj: ApiClient) -> str:
        return " · ".join(str(Scope(scope).label) for scope in obj.scopes)

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        return {"keys": ApiKey.objects.filter(client=obj).order_by("-id")[:20], "now": desk.site.scope_of(request).now}

    def form_initial(self, request: HttpRequest, obj: Any, button: desk.Button) -> dict[str, Any]:
        if button.name == "change":
            return {"scopes": obj.scopes, "requests_per_minute": obj.requests_per_minute}
        return {}

    def _show_key(self, request: HttpRequest, issued: KeyIssued) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("The new key"),
            "opts": self.opts,
            "issued": issued,
            "back": self.page_url(ApiClient(pk=issued.client_id)),
        }
        return TemplateResponse(request, "admin/merchants/apiclient/key.html", context)

    def do_create(
        self, request: HttpRequest, obj: Any, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> HttpResponse:
        issued = create_client(
            merchant_id=data["merchant"].pk,
            name=data["name"],
            scopes=data["scopes"],
            requests_per_minute=data["requests_per_minute"],
            now=now,
        )
        return self._show_key(request, issued)

    def do_rotate(
        self, request: HttpRequest, obj: ApiClient, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> HttpResponse:
        issued = rotate_key(client_id=obj.pk, overlap_seconds=data["overlap_hours"] * 3600, now=now)
        return self._show_key(request, issued)

    def do_revoke(
        self, request: HttpRequest, obj: ApiClient, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        revoke_key(key_id=data["key_id"], now=now)
        return _("Key revoked.")

    def do_change(
        self, request: HttpRequest, obj: ApiClient, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        change_client(client_id=obj.pk, scopes=data["scopes"], requests_per_minute=data["requests_per_minute"], now=now)
        return _("Changed.")

    def do_switch_off(
        self, request: HttpRequest, obj: ApiClient, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        change_client(client_id=obj.pk, is_active=False, now=now)
        return _("Switched off.")

    def do_switch_on(
        self, request: HttpRequest, obj: ApiClient, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        change_client(client_id=obj.pk, is_active=True, now=now)
        return _("Switched on.")


def sentence_of(code: str) -> str:
    """What the refusal of this code tells people; the code itself when there is none any more."""
    kinds: list[type[Refusal]] = [Refusal]
    for kind in kinds:  # grows while it is read: every subclass, the nearest first
        if kind.code == code:
            return str(kind.message)
        kinds += kind.__subclasses__()
    return code


@desk.register(StaffAction)
class StaffActionAdmin(desk.QuitsAdmin):
    list_display = [
        desk.when("at", gettext_lazy("When")),
        "username",
        "role",
        "action_label",
        "subject_label",
        "outcome_badge",
        "address",
    ]
    list_select_related = ["merchant"]
    list_filter = ["role", desk.MerchantFilter]
    search_fields = ["username__exact", "subject_id__exact", "subject_label__exact"]
    search_help_text = gettext_lazy("A whole login, number or id.")
    ordering = ["-id"]
    change_form_template = "admin/merchants/staffaction/page.html"
    export_columns = [
        (gettext_lazy("When"), "at"),
        (gettext_lazy("Login"), "username"),
        (gettext_lazy("Role"), "role"),
        (gettext_lazy("Action"), "action"),
        (gettext_lazy("Kind of object"), "subject_type"),
        (gettext_lazy("Object"), "subject_id"),
        (gettext_lazy("Name"), "subject_label"),
        (gettext_lazy("Result"), "outcome"),
        (gettext_lazy("Address"), "address"),
    ]
    list_hint = gettext_lazy(
        "Who did what, when, from where, before and after. Nothing here can be changed or deleted."
    )
    fields = [
        "at",
        "username",
        "role",
        "merchant",
        "action_label",
        "subject_kind",
        "subject_label",
        "subject_id",
        "outcome_said",
        "address",
        "user_agent",
    ]
    readonly_fields = ["action_label", "subject_kind", "outcome_said"]

    @admin.display(description=gettext_lazy("Action"))
    def action_label(self, obj: StaffAction) -> str:
        page = self._page_of(obj)
        buttons = [*page.buttons, *page.list_buttons] if page else []
        other = {
            "reveal": _("Personal data shown"),
            "password_changed": _("Own password changed"),
            "export": _("Export"),
            "second_factor_set_up": _("Second factor set up"),
            "recovery_code_used": _("Logged in with a recovery code"),
        }
        return next((str(row.label) for row in buttons if row.name == obj.action), other.get(obj.action, obj.action))

    @admin.display(description=gettext_lazy("Kind of object"))
    def subject_kind(self, obj: StaffAction) -> str:
        page = self._page_of(obj)
        return str(page.opts.verbose_name) if page else obj.subject_type

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        names = sorted(set(obj.before) | set(obj.after))
        return {
            "changes": [
                (self._label(obj, name), *(self._words(obj, name, side.get(name)) for side in (obj.before, obj.after)))
                for name in names
                if obj.before.get(name) != obj.after.get(name)
            ],
            "entered": [
                (self._label(obj, name), self._words(obj, name, value))
                for name, value in obj.detail.items()
                if name != "seen_version" and name not in names
            ],
        }

    def _label(self, obj: StaffAction, name: str) -> str:
        """The words of a field: the model's, else the form's of the button, else the frame's, else the name itself."""
        field = self._field(obj, name)
        words = getattr(field, "verbose_name", None) or getattr(field, "label", None)
        return str(words or {"filters": _("Filters")}.get(name, name))

    def _words(self, obj: StaffAction, name: str, value: Any) -> Any:
        """A value as its page shows it: choices by their names, amounts in yuan, yes and no, lists as words."""
        field = self._field(obj, name)
        if isinstance(value, list):
            return _(", ").join(str(self._words(obj, name, each)) for each in value)
        if isinstance(value, bool):
            return _("Yes") if value else _("No")
        if isinstance(value, int) and (name.endswith("_fen") or isinstance(field, YuanField)):
            return money.display(value)
        choices: Any = field.flatchoices if isinstance(field, Field) else ()
        asked = None if choices else self._form_field(obj, name)
        if isinstance(asked, forms.ChoiceField) and not isinstance(asked, forms.ModelChoiceField):
            choices = asked.choices
        return dict(choices).get(value, value) if isinstance(value, str | int) else value

    def _field(self, obj: StaffAction, name: str) -> Any:
        """The model's field of that name, else that of the button's form, else None."""
        page = self._page_of(obj)
        if page is None:
            return None
        try:
            return page.model._meta.get_field(name)
        except FieldDoesNotExist:
            return self._form_field(obj, name)

    def _form_field(self, obj: StaffAction, name: str) -> Any:
        """The field of that name of the button's form, else None."""
        page = self._page_of(obj)
        buttons = [*page.buttons, *page.list_buttons] if page else []
        forms_of_it = [row.form for row in buttons if row.name == obj.action]
        return next((form.base_fields[name] for form in forms_of_it if form and name in form.base_fields), None)

    def _page_of(self, obj: StaffAction) -> desk.QuitsAdmin | None:
        page = next(
            (page for model, page in desk.site._registry.items() if model._meta.label_lower == obj.subject_type), None
        )
        return page if isinstance(page, desk.QuitsAdmin) else None

    @admin.display(description=gettext_lazy("Result"))
    def outcome_badge(self, obj: StaffAction) -> SafeString:
        if obj.outcome == "done":
            return badge(_("done"), "success")
        if obj.outcome == "repeated":
            return badge(_("Had been done before"))
        return format_html('<span title="{}">{}</span>', sentence_of(obj.outcome), badge(_("Refused"), "danger"))

    @admin.display(description=gettext_lazy("Result"))
    def outcome_said(self, obj: StaffAction) -> SafeString:
        """The result on the entry's own page: a refusal with its sentence beside it."""
        if obj.outcome in ("done", "repeated"):
            return self.outcome_badge(obj)
        return format_html("{} {}", self.outcome_badge(obj), sentence_of(obj.outcome))

    def get_queryset(self, request: HttpRequest) -> QuerySet[StaffAction]:
        return super().get_queryset(request).select_related("merchant")


def _seen(name: str, label: Any) -> Any:
    """A column of a kernel table, whose fields have no names for people."""

    @admin.display(description=label)
    def column(obj: Any) -> Any:
        return getattr(obj, name)

    column.__name__ = f"seen_{name}"
    return column


MESSAGE_TONES = {"DONE": "success", "FAILED": "warning", "DEAD": "danger", "RUNNING": "info"}
MESSAGE_LINES = {
    InboxMessage.State.RUNNING: gettext_lazy("A consumer works on it now."),
    InboxMessage.State.DONE: gettext_lazy("Its effect is there."),
    InboxMessage.State.FAILED: gettext_lazy("It failed and is tried again by itself."),
    InboxMessage.State.DEAD: gettext_lazy("Its tries are used up. Mend the cause, then give it its tries back."),
}


@desk.register(InboxMessage)
class InboxMessageAdmin(desk.QuitsAdmin):
    list_display = [
        desk.when("created_at", gettext_lazy("When")),
        _seen("event_name", gettext_lazy("Event")),
        _seen("consumer", gettext_lazy("Consumer")),
        desk.status("state", gettext_lazy("State"), MESSAGE_TONES),
        _seen("attempts", gettext_lazy("Attempts")),
    ]
    readonly_fields = [
        _seen("event_name", gettext_lazy("Event")),
        _seen("event_id", gettext_lazy("Event id")),
        _seen("consumer", gettext_lazy("Consumer")),
        _seen("state", gettext_lazy("State")),
        _seen("attempts", gettext_lazy("Attempts")),
        desk.when("created_at", gettext_lazy("When")),
        desk.when("available_at", gettext_lazy("Next attempt")),
        desk.when("done_at", gettext_lazy("Done at")),
        _seen("last_error", gettext_lazy("Last error")),
    ]
    fields = readonly_fields
    list_filter = ["state"]
    search_fields = ["event_id"]
    search_help_text = gettext_lazy("An event's id, or the whole name of an event or a consumer.")
    ordering = ["-id"]
    list_hint = gettext_lazy("What became of each event in each consumer. Failed ones are tried again by themselves.")
    empty_hint = desk.QUIET
    legends = [desk.Legend("state", MESSAGE_LINES, MESSAGE_TONES)]
    audit_fields = ["state", "attempts"]
    bulk = ["revive"]
    buttons = [
        desk.Button(
            "revive",
            gettext_lazy("Try again"),
            icon="replay",
            variant="primary",
            confirm=gettext_lazy("The consumer takes the event once more. It is safe: an effect happens at most once."),
            allowed=lambda obj: obj.state == InboxMessage.State.DEAD,
        )
    ]

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        """By the event's id, which is indexed, or by a name that exists: nothing else is looked for in all rows."""
        term = search_term.strip()
        known = [name for each in inbox.all_consumers() for name in (each.name, each.event_name)]
        if not term:
            return queryset, False
        if term in known:
            return queryset.filter(Q(consumer=term) | Q(event_name=term)), False
        try:
            return queryset.filter(event_id=UUID(term)), False
        except ValueError:
            return queryset.none(), False

    def do_revive(
        self, request: HttpRequest, obj: InboxMessage, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        if not inbox.revive(obj.pk, now=now):
            raise IllegalTransition(state=obj.state)
        return _("It will be tried again within seconds.")
