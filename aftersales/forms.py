"""What the buttons of the after-sales page ask. Amounts are typed in yuan and leave as fen."""

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from aftersales.algorithms import ALGORITHMS
from aftersales.models import AfterSalesOrder, AfterSalesSettings, ArbitrationCase, Liability, RiskRule, Type
from aftersales.risk import RULES, figures_of
from aftersales.settlement import Ask, settle
from kernel import money
from kernel.admin import ButtonForm, YuanField
from kernel.errors import Refusal
from merchants.models import Merchant


class DecisionForm(ButtonForm):
    """Who is at fault and how much is paid; what the rules give stands there already."""

    liability = forms.ChoiceField(
        label=gettext_lazy("Liability"),
        choices=Liability.choices,
        required=False,
        help_text=gettext_lazy("Freight of shipped goods goes back only at the merchant's fault."),
    )
    liability_reason = forms.CharField(label=gettext_lazy("Why"), max_length=200, required=False)
    goods_fen = YuanField(label=gettext_lazy("For the goods (yuan)"), required=False)
    freight_fen = YuanField(
        label=gettext_lazy("For the freight (yuan)"),
        required=False,
        help_text=gettext_lazy("Empty: what the rules give for this liability."),
    )
    reduction_reason = forms.CharField(
        label=gettext_lazy("Why less than the buyer is entitled to"), max_length=200, required=False
    )

    def prepare(self) -> None:
        """Many ticked rows keep what the rules give; only the liability is asked. A reason is needed to change it."""
        claim = self.obj
        if not isinstance(claim, AfterSalesOrder) or not pays_at_once(claim):
            for name in ("goods_fen", "freight_fen", "reduction_reason"):
                self.fields.pop(name, None)
        if not isinstance(claim, AfterSalesOrder):
            self.fields["liability"].choices = [("", _("as the buyer says")), *Liability.choices]  # type: ignore[attr-defined]
            return
        self.fields["liability"].initial = claim.liability or claim.liability_proposed
        if "goods_fen" in self.fields:
            self.fields["goods_fen"].widget.attrs["placeholder"] = money.fen_to_yuan(claim.applied_goods_fen)
            self.fields["goods_fen"].help_text = _("Empty: what the rules give. At most %(amount)s.") % {
                "amount": money.display(claim.entitled_goods_fen)
            }

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        claim = self.obj
        if isinstance(claim, AfterSalesOrder) and not self.errors:
            if data.get("liability") not in ("", claim.liability_proposed) and not data.get("liability_reason"):
                self.add_error("liability_reason", _("Another liability than the buyer's needs a reason."))
            elif pays_at_once(claim) and type(self) is DecisionForm:
                self.judge(claim, data)
        return data

    def judge(self, claim: AfterSalesOrder, data: dict[str, Any], accepted: list[int] | None = None) -> None:
        """Say beside the field what the command would refuse."""
        try:
            settle(claim, ask_of(data), accepted=accepted)
        except Refusal as refusal:
            self.add_error("reduction_reason" if refusal.code == "REASON_NEEDED" else None, str(refusal.message))


class InspectionForm(DecisionForm):
    """What was in the parcel, unit by unit, before who is at fault and how much is paid."""

    sellable = forms.IntegerField(label=gettext_lazy("Sellable"), min_value=0)
    defect = forms.IntegerField(label=gettext_lazy("Defective"), min_value=0)
    missing = forms.IntegerField(label=gettext_lazy("Not in the parcel"), min_value=0)
    note = forms.CharField(
        label=gettext_lazy("Finding"), max_length=400, required=False, widget=forms.Textarea(attrs={"rows": 2})
    )

    field_order = ["sellable", "defect", "missing", "note", "liability", "liability_reason"]

    def prepare(self) -> None:
        super().prepare()
        if isinstance(self.obj, AfterSalesOrder):
            self.fields["sellable"].initial = self.obj.qty
            self.fields["defect"].initial = self.fields["missing"].initial = 0

    def clean(self) -> dict[str, Any]:
        data = super().clean()
        if not self.errors and isinstance(self.obj, AfterSalesOrder):
            counted = sum(data[name] for name in ("sellable", "defect", "missing"))
            if counted != self.obj.qty:
                self.add_error("missing", _("The counts have to add up to %(qty)s.") % {"qty": self.obj.qty})
            elif data["missing"] == self.obj.qty:
                self.add_error("missing", _("Nothing arrived: refuse the return instead."))
        return data


class SendBackForm(ButtonForm):
    """The finding and the parcel that takes the goods back to the buyer; both are mandatory."""

    reason = forms.CharField(label=gettext_lazy("Finding"), max_length=400, widget=forms.Textarea(attrs={"rows": 3}))
    carrier = forms.CharField(label=gettext_lazy("Carrier"), max_length=32)
    tracking_no = forms.CharField(label=gettext_lazy("Tracking number"), max_length=64)


def pays_at_once(claim: AfterSalesOrder) -> bool:
    """Types whose amount is decided at the audit; a return's is decided at its inspection."""
    return claim.type in (Type.REFUND_ONLY, Type.PRICE_PROTECTION) or claim.status == "WAIT_MERCHANT_RECEIVE"


def ask_of(data: dict[str, Any]) -> Ask:
    """A form's answers as the command takes them."""
    return Ask(
        liability=data.get("liability") or "",
        liability_reason=data.get("liability_reason") or "",
        goods_fen=data.get("goods_fen"),
        freight_fen=data.get("freight_fen"),
        reduction_reason=data.get("reduction_reason") or "",
    )


class ParcelForm(ButtonForm):
    """The merchant's parcel to the buyer."""

    carrier = forms.CharField(label=gettext_lazy("Carrier"), max_length=32)
    tracking_no = forms.CharField(label=gettext_lazy("Tracking number"), max_length=64)


class VoucherForm(ButtonForm):
    """How the money was paid outside the channel."""

    voucher = forms.CharField(
        label=gettext_lazy("Voucher"),
        max_length=128,
        help_text=gettext_lazy("The bank's number of the transfer, for example. Another person approves it."),
    )


class WishForm(ButtonForm):
    """What a party asks the platform for."""

    wish = forms.CharField(label=gettext_lazy("What do you ask for?"), max_length=4000, widget=forms.Textarea)


class StatementForm(ButtonForm):
    """What a party has to say."""

    text = forms.CharField(label=gettext_lazy("Statement"), max_length=4000, widget=forms.Textarea)


class ImageForm(ButtonForm):
    """An image as evidence; it is judged by its content when it arrives."""

    file = forms.FileField(label=gettext_lazy("Image"), help_text=gettext_lazy("JPEG, PNG, WebP or GIF, up to 10 MiB."))
    note = forms.CharField(label=gettext_lazy("What it shows"), max_length=200, required=False)


class AwardForm(ButtonForm):
    """The platform's decision: an amount, who is responsible, and why."""

    goods_fen = YuanField(label=gettext_lazy("Award for the goods (yuan)"))
    freight_fen = YuanField(label=gettext_lazy("Award for the freight (yuan)"))
    responsible = forms.ChoiceField(label=gettext_lazy("Responsible"), choices=ArbitrationCase.Responsible.choices)
    decision = forms.CharField(
        label=gettext_lazy("Decision"),
        max_length=4000,
        widget=forms.Textarea,
        help_text=gettext_lazy("Both sides read it."),
    )

    def prepare(self) -> None:
        self.fields["goods_fen"].initial = self.fields["freight_fen"].initial = 0
        if isinstance(self.obj, ArbitrationCase):
            self.fields["goods_fen"].help_text = _("0 leaves things as they are. At most %(amount)s in all.") % {
                "amount": money.display(self.obj.entitled_fen)
            }


class RiskRuleForm(ButtonForm):
    """A rule's figures as name=value, one a line."""

    figures = forms.CharField(
        label=gettext_lazy("Figures"),
        required=False,
        widget=forms.Textarea,
        help_text=gettext_lazy("One a line, name = number."),
    )
    is_active = forms.BooleanField(label=gettext_lazy("Active"), required=False, initial=True)

    def prepare(self) -> None:
        if isinstance(self.obj, RiskRule):
            self.fields["figures"].initial = "\n".join(f"{name} = {value}" for name, value in self.obj.params.items())
            self.fields["is_active"].initial = self.obj.is_active

    def clean_figures(self) -> str:
        figures: dict[str, int] = {}
        for line in self.cleaned_data["figures"].splitlines():
            name, _equals, value = (part.strip() for part in line.partition("="))
            if not line.strip():
                continue
            if not value.isascii() or not value.isdigit():
                raise forms.ValidationError(_("“%(line)s” is not name = number.") % {"line": line})
            figures[name] = int(value)
        self.parsed = figures
        return str(self.cleaned_data["figures"])

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        kind = self.obj.kind if isinstance(self.obj, RiskRule) else data.get("kind", "")
        if not self.errors:
            try:
                data["params"] = figures_of(kind, self.parsed)
            except Refusal as refusal:
                self.add_error("figures", _("Unknown or senseless: %(names)s.") % {"names": ", ".join(refusal.data)})
        return data


class NewRiskRuleForm(RiskRuleForm):
    """A rule for all merchants, or for one of them."""

    kind = forms.ChoiceField(label=gettext_lazy("Rule"), choices=[(kind, rule.label) for kind, rule in RULES.items()])
    merchant = forms.ModelChoiceField(
        label=gettext_lazy("Merchant"),
        queryset=Merchant.objects.order_by("code"),
        required=False,
        empty_label=gettext_lazy("All merchants"),
    )
    field_order = ["kind", "merchant", "figures", "is_active"]


class ClaimSettingsForm(ButtonForm):
    """What a merchant sets beyond the windows of the shop."""

    instant_refund_up_to_fen = YuanField(
        label=gettext_lazy("Approve unshipped refunds at once up to (yuan)"),
        required=False,
        help_text=gettext_lazy("Empty: never."),
    )
    carrier_silence_days = forms.IntegerField(
        label=gettext_lazy("Escalate when the carrier is silent (days)"), min_value=1, max_value=90
    )
    points_per_yuan = forms.IntegerField(
        label=gettext_lazy("Points earned per yuan of goods"),
        min_value=0,
        max_value=100,
        help_text=gettext_lazy("Granted when the order completes."),
    )
    commission_hold_days = forms.IntegerField(
        label=gettext_lazy("Commission is held after completion (days)"), min_value=0, max_value=365
    )

    def prepare(self) -> None:
        settings = self.obj
        if isinstance(settings, AfterSalesSettings):
            for name in (
                "instant_refund_up_to_fen",
                "carrier_silence_days",
                "points_per_yuan",
                "commission_hold_days",
            ):
                self.fields[name].initial = getattr(settings, name)


class ShadowForm(ButtonForm):
    """Which algorithm runs beside the live one."""

    algorithm = forms.ChoiceField(label=gettext_lazy("Second algorithm"))

    def prepare(self) -> None:
        live = self.obj.algorithm if isinstance(self.obj, AfterSalesSettings) else ""
        self.fields["algorithm"].choices = [(name, name) for name in ALGORITHMS if name != live]  # type: ignore[attr-defined]
