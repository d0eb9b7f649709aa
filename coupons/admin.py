"""Back office pages of coupons. Every button calls exactly one command."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin as django_admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from coupons.commands.create_policy import create_policy, publish_policy
from coupons.commands.create_template import close_campaign, create_template, open_campaign
from coupons.commands.reverse_operation import REVERSIBLE, reverse_operation
from coupons.commands.settle_review import settle_review
from coupons.commands.void_coupon import void_coupon
from coupons.coupon_page import DECISION_TONES, TONES, actor_of, drawn, promise_of, reasons_of
from coupons.legends import CAMPAIGN_TONES, CAMPAIGNS, DECISIONS
from coupons.legends import COUPONS as STATUS_LINES
from coupons.models import (
    Campaign,
    CouponCommand,
    CouponKind,
    CouponLock,
    CouponOperation,
    CouponRedemption,
    CouponRefusal,
    CouponStatus,
    CouponTemplate,
    IssueCount,
    RefundCoupon,
    ReturnDecision,
    ReturnPolicy,
    UserCoupon,
)
from coupons.policy_replay import Change, replay_policy
from coupons.refusals import message_of
from coupons.return_policy import DEFAULT_RULES
from kernel import admin, money
from kernel.admin import Button, Hit, QuitsAdmin, Scope, reveal
from kernel.admin.buttons import ButtonForm, Reason
from kernel.errors import NotFound
from kernel.idempotency import BusinessKey
from merchants import scoping
from merchants.models import Merchant
from merchants.roles import OPERATIONS, OWNER, READERS

COUPONS = gettext_lazy("Coupons")
MAKERS = OWNER | OPERATIONS

scoping.register(UserCoupon, view=READERS, actions={"void": OPERATIONS, "undo": OPERATIONS})
reveal.declare(UserCoupon, "user_id")
scoping.register(RefundCoupon, view=READERS, actions={"settle": OPERATIONS})
scoping.register(CouponTemplate, view=READERS, actions={"create": MAKERS})
scoping.register(Campaign, view=READERS, actions={"create": MAKERS, "close": MAKERS})
scoping.register(ReturnPolicy, view=READERS, actions={"create": OPERATIONS, "publish": OPERATIONS})
scoping.register(CouponRefusal, path="merchant_id", view=READERS)
scoping.register(IssueCount)
for part in (CouponLock, CouponOperation, CouponRedemption):
    scoping.register(part, path="coupon__merchant")


def staff_actor(request: HttpRequest) -> str:
    """The person who presses a button, as the ledger names it."""
    return f"staff:{request.user.get_username()}"


class MerchantForm(ButtonForm):
    """A form that makes something for a merchant: one's own, or one that the house picks."""

    merchant = forms.ModelChoiceField(label=gettext_lazy("Merchant"), queryset=Merchant.objects.none())

    def prepare(self) -> None:
        assert self.request is not None
        own = admin.site.policy.merchant_of(self.request.user)
        merchants = Merchant.objects.filter(is_active=True)
        self.fields["merchant"].queryset = merchants.filter(pk=own) if own else merchants  # type: ignore[attr-defined]
        if own:
            self.fields["merchant"].initial = own


class StatusFilter(django_admin.SimpleListFilter):
    """By status, without an index on it: locking and redeeming change a coupon's status all the time, and an index
    (or a condition of one) would make each of these updates write to every index of the table. The few that are locked
    are found by their open leases; the rest are common enough to be met soon. Void ones are found by their number."""

    title = gettext_lazy("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(str(value), label) for value, label in CouponStatus.choices if value != CouponStatus.VOID]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == CouponStatus.LOCKED:
            open_leases = CouponLock.objects.filter(ended_by__isnull=True)
            return queryset.filter(status=CouponStatus.LOCKED, pk__in=open_leases.values("coupon_id"))
        return queryset.filter(status=self.value()) if self.value() else queryset


@admin.register(UserCoupon)
class CouponAdmin(QuitsAdmin):
    """All coupons, newest first; the page draws the coupon's life."""

    list_display = [
        "number",
        "promise",
        admin.status("status", gettext_lazy("Status"), TONES),
        "state_version",
        "held_by",
        admin.when("valid_until", gettext_lazy("Valid until")),
    ]
    list_filter = [StatusFilter, admin.MerchantFilter]
    list_hint = gettext_lazy("Search by coupon id, user or order.")
    legends = STATUS_LINES
    search_fields = ["id"]
    search_help_text = gettext_lazy("Coupon id, user or order")
    ordering = ["-id"]
    fields = ["id", "merchant", "template", "campaign", "valid_from", "created_at"]
    change_form_template = "coupons/coupon.html"
    audit_fields = ["status", "state_version"]
    buttons = [
        Button(
            "void",
            gettext_lazy("Void"),
            form=Reason,
            icon="block",
            variant="danger",
            confirm=gettext_lazy("Nobody can use this coupon any more. A reverse can undo it."),
            allowed=lambda coupon: coupon.status in (CouponStatus.AVAILABLE, CouponStatus.USED),
        ),
        Button(
            "undo",
            gettext_lazy("Undo the newest operation"),
            form=Reason,
            icon="history",
            confirm=lambda coupon: _undo_question(coupon),
            allowed=lambda coupon: _can_undo(coupon),
        ),
    ]

    class Media:
        css = {"all": ["coupons/coupon.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[UserCoupon]:
        return super().get_queryset(request).defer("policy_snapshot")

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = search_term.strip()
        return (queryset.filter(pk__in=find_coupons(queryset, term)), False) if term else (queryset, False)

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        @django_admin.display(description=gettext_lazy("User"))
        def user(coupon: UserCoupon) -> Any:
            return self.masked(request, coupon, "user_id")

        number, promise, *rest = super().get_list_display(request)
        return [number, promise, user, *rest]

    @django_admin.display(description=gettext_lazy("Coupon"), ordering="id")
    def number(self, coupon: UserCoupon) -> SafeString:
        return format_html('<span class="q-mono" title="{}">…{}</span>', coupon.pk, str(coupon.pk)[-12:])

    @django_admin.display(description=gettext_lazy("Promise"))
    def promise(self, coupon: UserCoupon) -> str:
        return promise_of(coupon.template_snapshot)

    @django_admin.display(description=gettext_lazy("Held by order"))
    def held_by(self, coupon: UserCoupon) -> str:
        return coupon.locked_order_no or "–"

    def page_context(self, request: HttpRequest, obj: UserCoupon) -> dict[str, Any]:
        timeline, rows = drawn(obj)
        return {
            "coupon": obj,
            "holder": self.masked(request, obj, "user_id"),
            "promise": promise_of(obj.template_snapshot),
            "tone": TONES[CouponStatus(obj.status)],
            "timeline": timeline,
            "rows": rows,
            "redemption": CouponRedemption.objects.filter(coupon=obj, ended_by=None).first(),
        }

    def do_void(
        self, request: HttpRequest, obj: UserCoupon, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        void_coupon(
            merchant_id=obj.merchant_id,
            coupon_id=obj.pk,
            expected_version=obj.state_version,
            reason=data["reason"],
            actor=staff_actor(request),
            key=key,
            now=now,
        )
        return _("The coupon is void.")

    def do_undo(
        self, request: HttpRequest, obj: UserCoupon, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        last = _newest(obj)
        if last is None:
            raise NotFound()
        done = reverse_operation(
            merchant_id=obj.merchant_id,
            operation_id=last.pk,
            expected_version=obj.state_version,
            reason=data["reason"],
            actor=staff_actor(request),
            key=key,
            now=now,
        )
        return _("Undone. The coupon is now: %(status)s") % {"status": CouponStatus(done.status).label}


def find_coupons(queryset: QuerySet[Any], term: str) -> list[UUID]:
    """Coupons by id, user or order, each by an index; at most 100."""
    try:
        return [UUID(term)]
    except ValueError:
        pass
    orders = CouponLock.objects.filter(merchant_id__in=Merchant.objects.values("pk"), order_no=term)
    by_order = list(orders.values_list("coupon_id", flat=True)[:100])
    users = queryset.filter(merchant__in=Merchant.objects.values("pk"), user_id=term)
    return by_order or list(users.values_list("pk", flat=True)[:100])


def _newest(coupon: UserCoupon) -> CouponOperation | None:
    return CouponOperation.objects.filter(coupon=coupon, to_version=coupon.state_version).first()


def _can_undo(coupon: UserCoupon) -> bool:
    last = _newest(coupon)
    return last is not None and last.command in REVERSIBLE


def _undo_question(coupon: UserCoupon) -> str:
    last = _newest(coupon)
    return _("Undoes: %(operation)s (version %(version)s). Nothing is deleted; the opposite is appended.") % {
        "operation": CouponCommand(last.command).label if last else "–",
        "version": coupon.state_version,
    }


class SettleForm(ButtonForm):
    """What to do with the coupon, and why."""

    decision = forms.ChoiceField(
        label=gettext_lazy("Decision"),
        choices=[
            (each.value, each.label) for each in (ReturnDecision.RETURN, ReturnDecision.KEEP, ReturnDecision.VOID)
        ],
    )
    reason = forms.CharField(label=gettext_lazy("Reason"), max_length=200, widget=forms.Textarea)


class ReviewFilter(django_admin.SimpleListFilter):
    """Decisions that wait for a person."""

    title = gettext_lazy("waiting")
    parameter_name = "waiting"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("1", _("Waiting for a person"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return waiting_reviews(queryset) if self.value() == "1" else queryset


def waiting_reviews(queryset: QuerySet[Any]) -> QuerySet[Any]:
    """REVIEW decisions that nobody has settled."""
    return queryset.filter(decision=ReturnDecision.REVIEW, reviews__isnull=True)


@admin.register(RefundCoupon)
class ReturnDecisionAdmin(QuitsAdmin):
    """What became of coupons after refunds, and why; the queue of those that a person has to decide."""

    list_display = [
        admin.when("decided_at", gettext_lazy("When")),
        "order_no",
        admin.status("decision", gettext_lazy("Decision"), DECISION_TONES),
        "why",
        "cause_no",
        "decided_by",
    ]
    list_filter = [ReviewFilter, "decision", admin.MerchantFilter]
    list_hint = gettext_lazy("What became of coupons after refunds, and why. Some wait for a person.")
    legends = DECISIONS
    list_select_related = ["policy"]
    search_fields = ["order_no__exact", "cause_no__exact"]
    search_help_text = gettext_lazy("A whole order or after-sales number.")
    ordering = ["-id"]
    fields = ["coupon_link", "order_no", "cause_no", "decision", "why", "policy", "decided_by", "decided_at"]
    readonly_fields = ["coupon_link", "why"]
    audit_fields = ["decision"]
    buttons = [
        Button(
            "settle",
            gettext_lazy("Decide"),
            form=SettleForm,
            icon="gavel",
            variant="primary",
            confirm=gettext_lazy("The money has gone back already. This is only about the coupon."),
            allowed=lambda row: row.decision == ReturnDecision.REVIEW and not row.reviews.exists(),
        )
    ]

    @django_admin.display(description=gettext_lazy("Reason"))
    def why(self, row: RefundCoupon) -> str:
        return reasons_of(row.reasons)

    @django_admin.display(description=gettext_lazy("Coupon"))
    def coupon_link(self, row: RefundCoupon) -> SafeString:
        url = reverse("admin:coupons_usercoupon_change", args=[row.coupon_id])
        return format_html('<a class="q-mono" href="{}">{}</a>', url, row.coupon_id)

    def do_settle(
        self, request: HttpRequest, obj: RefundCoupon, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        settled = settle_review(
            merchant_id=obj.merchant_id,
            decision_id=obj.pk,
            decision=data["decision"],
            reason=data["reason"],
            actor=staff_actor(request),
            key=key,
            now=now,
        )
        return _("Decided. The coupon is now: %(status)s") % {"status": CouponStatus(settled.status).label}


class TemplateForm(MerchantForm):
    """A new version of a template. Amounts in yuan, rate in percent."""

    code = forms.SlugField(label=gettext_lazy("Code"), max_length=64)
    name = forms.CharField(label=gettext_lazy("Name"), max_length=120)
    kind = forms.ChoiceField(label=gettext_lazy("Kind"), choices=CouponKind.choices)
    threshold = forms.CharField(label=gettext_lazy("From (yuan)"), initial="0", required=False)
    off = forms.CharField(label=gettext_lazy("Off (yuan)"), required=False)
    rate = forms.DecimalField(
        label=gettext_lazy("Off (percent)"), min_value=0, max_value=100, decimal_places=2, required=False
    )
    cap = forms.CharField(label=gettext_lazy("At most (yuan)"), required=False)
    exchange_sku = forms.CharField(label=gettext_lazy("Exchange for SKU"), max_length=64, required=False)
    eligible = forms.CharField(label=gettext_lazy("Only these SKUs, separated by blanks"), required=False)
    excluded = forms.CharField(label=gettext_lazy("Not these SKUs, separated by blanks"), required=False)
    valid_from_on = forms.DateField(label=gettext_lazy("Valid from"), required=False)
    valid_until_on = forms.DateField(label=gettext_lazy("Valid until the end of"), required=False)
    valid_days = forms.IntegerField(label=gettext_lazy("Or days from issue"), min_value=0, required=False)
    per_user_limit = forms.IntegerField(label=gettext_lazy("Limit per user"), min_value=1, required=False)
    total_limit = forms.IntegerField(label=gettext_lazy("Limit in total"), min_value=0, required=False)
    policy_code = forms.SlugField(label=gettext_lazy("Return policy"), initial="standard")

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        for name in ("threshold", "off", "cap"):
            try:
                data[name] = money.yuan_to_fen(data[name]) if data.get(name) else None
            except ValueError:
                self.add_error(name, _("An amount in yuan, like 19.90."))
        return data


@admin.register(CouponTemplate)
class TemplateAdmin(QuitsAdmin):
    """Every version of every template. A change is a new version; coupons in wallets keep theirs."""

    stays_short = True
    list_display = [
        "code",
        "version",
        "name",
        "promise",
        "per_user_limit",
        "total_limit",
        "policy_code",
        admin.when("created_at", gettext_lazy("Created at")),
    ]
    list_filter = ["kind", admin.MerchantFilter]
    list_hint = gettext_lazy(
        "Every version of every template. A change is a new version; coupons in wallets keep theirs."
    )
    search_fields = ["code", "name"]
    ordering = ["-id"]
    fields = [
        "merchant",
        "code",
        "version",
        "name",
        "kind",
        "promise",
        admin.money("threshold_fen", gettext_lazy("Threshold")),
        admin.money("off_fen", gettext_lazy("Off")),
        "rate",
        admin.money("cap_fen", gettext_lazy("Cap")),
        "exchange_sku",
        "eligible",
        "excluded",
        "validity",
        "valid_from_on",
        "valid_until_on",
        "valid_days",
        "per_user_limit",
        "total_limit",
        "policy_code",
        "created_by",
        "created_at",
        "retired_at",
    ]
    readonly_fields = fields
    list_buttons = [Button("create", gettext_lazy("New version"), form=TemplateForm, icon="add", variant="primary")]

    @django_admin.display(description=gettext_lazy("Promise"))
    def promise(self, template: CouponTemplate) -> str:
        return promise_of(vars(template))

    @django_admin.display(description=gettext_lazy("Rate off"))
    def rate(self, template: CouponTemplate) -> str:
        return f"{template.rate_bp / 100:g} %" if template.rate_bp else "–"

    @django_admin.display(description=gettext_lazy("Eligible SKUs"))
    def eligible(self, template: CouponTemplate) -> str:
        return ", ".join(template.eligible_skus) or _("All")

    @django_admin.display(description=gettext_lazy("Excluded SKUs"))
    def excluded(self, template: CouponTemplate) -> str:
        return ", ".join(template.excluded_skus) or "–"

    def do_create(
        self, request: HttpRequest, obj: None, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        made = create_template(
            merchant_id=data["merchant"].pk,
            code=data["code"],
            name=data["name"],
            kind=data["kind"],
            policy_code=data["policy_code"],
            threshold_fen=data["threshold"] or 0,
            off_fen=data["off"] or 0,
            rate_bp=int((data["rate"] or 0) * 100),
            cap_fen=data["cap"],
            exchange_sku=data["exchange_sku"],
            eligible_skus=data["eligible"].split(),
            excluded_skus=data["excluded"].split(),
            valid_from_on=data["valid_from_on"],
            valid_until_on=data["valid_until_on"],
            valid_days=data["valid_days"],
            per_user_limit=data["per_user_limit"],
            total_limit=data["total_limit"],
            actor=staff_actor(request),
            now=now,
        )
        return _("Version %(version)s of %(code)s.") % {"version": made.version, "code": made.code}


class CampaignForm(MerchantForm):
    """A new campaign of one template."""

    code = forms.SlugField(label=gettext_lazy("Code"), max_length=64)
    name = forms.CharField(label=gettext_lazy("Name"), max_length=120)
    template_code = forms.SlugField(label=gettext_lazy("Template"), max_length=64)
    per_user_limit = forms.IntegerField(label=gettext_lazy("Limit per user"), min_value=1, required=False)
    total_limit = forms.IntegerField(label=gettext_lazy("Limit in total"), min_value=0, required=False)


@admin.register(Campaign)
class CampaignAdmin(QuitsAdmin):
    """Campaigns; a closed one issues no more, and return decisions know it."""

    stays_short = True
    list_display = [
        "code",
        "name",
        "template_code",
        admin.status("state", gettext_lazy("State"), CAMPAIGN_TONES),
        "per_user_limit",
        "total_limit",
        admin.when("starts_at", gettext_lazy("Starts at")),
    ]
    list_filter = ["state", admin.MerchantFilter]
    list_hint = gettext_lazy("Who may take which coupon, and how many. A closed campaign issues no more.")
    legends = CAMPAIGNS
    search_fields = ["code", "name"]
    ordering = ["-id"]
    audit_fields = ["state"]
    list_buttons = [Button("create", gettext_lazy("New campaign"), form=CampaignForm, icon="add", variant="primary")]
    buttons = [
        Button(
            "close",
            gettext_lazy("Close"),
            icon="event_busy",
            variant="danger",
            confirm=gettext_lazy("No more coupons are issued from it. Coupons in wallets stay valid."),
            allowed=lambda campaign: campaign.state == Campaign.State.OPEN,
        )
    ]

    def do_create(
        self, request: HttpRequest, obj: None, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        made = open_campaign(
            merchant_id=data["merchant"].pk,
            starts_at=now,
            now=now,
            **{name: data[name] for name in ("code", "name", "template_code", "per_user_limit", "total_limit")},
        )
        return _("Campaign %(code)s is open.") % {"code": made.code}

    def do_close(
        self, request: HttpRequest, obj: Campaign, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        close_campaign(merchant_id=obj.merchant_id, code=obj.code, now=now)
        return _("The campaign is closed.")


class PolicyForm(MerchantForm):
    """A draft of the next version of a return policy."""

    code = forms.SlugField(label=gettext_lazy("Code"), max_length=64, initial="standard")
    on_full_refund = forms.ChoiceField(
        label=gettext_lazy("The order is wholly refunded"), choices=ReturnDecision.choices
    )
    when_expired = forms.ChoiceField(
        label=gettext_lazy("… but the coupon's validity is over"),
        choices=[each for each in ReturnDecision.choices if each[0] != ReturnDecision.RETURN],
    )
    when_campaign_closed = forms.ChoiceField(
        label=gettext_lazy("… but the campaign is closed"), choices=ReturnDecision.choices
    )
    when_risk_flagged = forms.ChoiceField(
        label=gettext_lazy("… but the refund is flagged as a risk"), choices=ReturnDecision.choices
    )


@admin.register(ReturnPolicy)
class ReturnPolicyAdmin(QuitsAdmin):
    """Versions of return policies: drafts, looked at against past decisions, then published for good."""

    stays_short = True
    list_display = ["code", "version", "state", "rules_in_words", "created_by"]
    list_hint = gettext_lazy("What becomes of a coupon when its order is refunded. A published version never changes.")
    list_filter = [admin.MerchantFilter]
    search_fields = ["code"]
    ordering = ["-id"]
    fields = ["merchant", "code", "version", "rules_in_words", "created_by", "created_at", "published_at"]
    readonly_fields = ["rules_in_words"]
    change_form_template = "coupons/policy.html"
    audit_fields = ["version", "published_at"]
    list_buttons = [Button("create", gettext_lazy("New draft"), form=PolicyForm, icon="add", variant="primary")]
    buttons = [
        Button(
            "publish",
            gettext_lazy("Publish"),
            icon="publish",
            variant="primary",
            confirm=gettext_lazy("Coupons issued from now on carry this version. No earlier decision changes."),
            allowed=lambda policy: policy.published_at is None,
        )
    ]

    class Media:
        css = {"all": ["coupons/coupon.css"]}

    def page_context(self, request: HttpRequest, obj: ReturnPolicy) -> dict[str, Any]:
        replay = replay_policy(obj)
        return {"replay": replay, "changes": [_told(change) for change in replay.changes]}

    @django_admin.display(description=gettext_lazy("State"))
    def state(self, policy: ReturnPolicy) -> str:
        return _("Published") if policy.published_at else _("Draft")

    @django_admin.display(description=gettext_lazy("Rules"))
    def rules_in_words(self, policy: ReturnPolicy) -> str:
        rules = {**DEFAULT_RULES, **policy.rules}
        labels = [str(ReturnDecision(rules[name]).label) for name in DEFAULT_RULES]
        return _("refunded: %(full)s; expired: %(expired)s; campaign closed: %(closed)s; risk: %(risk)s") % dict(
            zip(("full", "expired", "closed", "risk"), labels, strict=True)
        )

    def form_initial(self, request: HttpRequest, obj: Any, button: Button) -> dict[str, Any]:
        return dict(DEFAULT_RULES) if button.name == "create" else {}

    def do_create(
        self, request: HttpRequest, obj: None, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        made = create_policy(
            merchant_id=data["merchant"].pk,
            code=data["code"],
            rules={name: data[name] for name in DEFAULT_RULES},
            actor=staff_actor(request),
            now=now,
        )
        return _("Draft: version %(version)s.") % {"version": made.version}

    def do_publish(
        self, request: HttpRequest, obj: ReturnPolicy, data: dict[str, Any], *, key: BusinessKey, now: datetime
    ) -> str:
        publish_policy(merchant_id=obj.merchant_id, policy_id=obj.pk, now=now)
        return _("Published.")


def _told(change: Change) -> dict[str, Any]:
    then, now = ReturnDecision(change.then), ReturnDecision(change.now)
    return {
        "then": then.label,
        "then_tone": DECISION_TONES[then],
        "now": now.label,
        "now_tone": DECISION_TONES[now],
        "count": change.count,
        "reasons": reasons_of(list(change.reasons)),
        "order_nos": change.order_nos[:5],
    }


@admin.register(CouponRefusal)
class RefusalAdmin(QuitsAdmin):
    """Commands that were refused: what they asked and what they met."""

    list_display = [
        admin.when("at", gettext_lazy("When")),
        "command",
        "why",
        "order_no",
        "expected_version",
        "actual_version",
        "met",
        admin.yes_no("token_matched", gettext_lazy("Token")),
        "who",
    ]
    list_hint = gettext_lazy("Coupon commands that were refused: what they asked, and what they met.")
    list_filter = ["command"]
    search_fields = ["coupon_id"]
    search_help_text = gettext_lazy("A coupon's id, or the code of a refusal.")
    ordering = ["-id"]
    fields = [
        "coupon_link",
        "command",
        "why",
        "code",
        "order_no",
        "expected_version",
        "actual_version",
        "met",
        "token_matched",
        "business_key",
        "who",
        "at",
    ]
    readonly_fields = ["coupon_link", "why", "met", "who"]

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = search_term.strip()
        try:
            return queryset.filter(coupon_id=UUID(term)), False
        except ValueError:
            return (queryset.filter(code=term.upper()) if term else queryset), False

    @django_admin.display(description=gettext_lazy("Reason"))
    def why(self, row: CouponRefusal) -> str:
        return message_of(row.code)

    @django_admin.display(description=gettext_lazy("It was"))
    def met(self, row: CouponRefusal) -> str:
        known = row.actual_status in CouponStatus.values
        return str(CouponStatus(row.actual_status).label) if known else row.actual_status or "–"

    @django_admin.display(description=gettext_lazy("Who"))
    def who(self, row: CouponRefusal) -> str:
        return actor_of(row.actor)

    @django_admin.display(description=gettext_lazy("Coupon"))
    def coupon_link(self, row: CouponRefusal) -> SafeString | str:
        if row.coupon_id is None:
            return "–"
        url = reverse("admin:coupons_usercoupon_change", args=[row.coupon_id])
        return format_html('<a class="q-mono" href="{}">{}</a>', url, row.coupon_id)


def _hits(scope: Scope, term: str) -> list[Hit]:
    coupons = scope.of(UserCoupon)
    return [
        Hit(
            f"{promise_of(coupon.template_snapshot)} · {CouponStatus(coupon.status).label}",
            str(coupon.pk),
            reverse("admin:coupons_usercoupon_change", args=[coupon.pk]),
        )
        for coupon in coupons.filter(pk__in=find_coupons(coupons, term))[:10]
    ]


admin.register_search("coupons", _hits, page=UserCoupon)
admin.register_waiting(
    "coupons.reviews",
    gettext_lazy("Coupons to decide"),
    lambda scope: admin.capped(waiting_reviews(scope.of(RefundCoupon))),
    "admin:coupons_refundcoupon_changelist",
    page=RefundCoupon,
    action="settle",
    params={"waiting": "1"},
    icon="gavel",
    hint=gettext_lazy("Refunded orders whose coupon a person has to decide about"),
    order=60,
)
for _order, (_name, _label, _model, _icon) in enumerate(
    [
        ("coupons.coupons", COUPONS, UserCoupon, "confirmation_number"),
        ("coupons.decisions", gettext_lazy("Return decisions"), RefundCoupon, "gavel"),
        ("coupons.templates", gettext_lazy("Templates"), CouponTemplate, "style"),
        ("coupons.campaigns", gettext_lazy("Campaigns"), Campaign, "campaign"),
        ("coupons.policies", gettext_lazy("Return policies"), ReturnPolicy, "policy"),
        ("coupons.refusals", gettext_lazy("Refused commands"), CouponRefusal, "front_hand"),
    ]
):
    admin.register_navigation(
        _name,
        group=COUPONS,
        label=_label,
        url=f"admin:coupons_{_model._meta.model_name}_changelist",
        page=_model,
        icon=_icon,
        order=400 + _order,
    )
