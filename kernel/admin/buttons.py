"""Buttons: a page that asks, a POST that calls one command, a line in the audit trail.

A button never writes by itself. It checks the role, finds the object among those the person may see, validates the
form, and hands over to the page's `do_<name>`, which calls one command. A one-time token in the form becomes the
command's business key, so that a double click and a reload do it once.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.db.models import Model
from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from unfold import widgets

from kernel import numbers
from kernel.admin.columns import mask
from kernel.errors import Refusal
from kernel.idempotency import BusinessKey, business_key

Text = str | Promise
NO_MERCHANT = UUID(int=0)
BULK_LIMIT = 200


def always(obj: Any) -> bool:
    """The button is offered in every state."""
    return True


@dataclass(frozen=True)
class Button:
    """One thing that can be done to an object (or, in `list_buttons`, without one)."""

    name: str
    label: Text
    form: type["ButtonForm"] | None = None
    icon: str = "bolt"
    variant: str = "default"
    confirm: Text | Callable[[Any], Text] = ""
    allowed: Callable[[Any], bool] = always
    hint: Text = ""

    def question(self, obj: Any) -> Text:
        """What is shown above the form: what will happen, with the amounts when money moves."""
        return self.confirm(obj) if callable(self.confirm) else self.confirm


WIDGETS: list[tuple[type[forms.Field], Callable[[forms.Field], forms.Widget]]] = [
    (forms.MultipleChoiceField, lambda field: widgets.UnfoldAdminCheckboxSelectMultipleWidget()),
    (forms.ChoiceField, lambda field: widgets.UnfoldAdminSelectWidget()),
    (forms.ModelChoiceField, lambda field: widgets.UnfoldAdminSelectWidget()),
    (forms.BooleanField, lambda field: widgets.UnfoldBooleanSwitchWidget()),
    (forms.SplitDateTimeField, lambda field: widgets.UnfoldAdminSplitDateTimeWidget()),
    (forms.DateField, lambda field: widgets.UnfoldAdminSingleDateWidget()),
    (forms.IntegerField, lambda field: widgets.UnfoldAdminIntegerFieldWidget()),
    (forms.EmailField, lambda field: widgets.UnfoldAdminEmailInputWidget()),
]


def dress(field: forms.Field) -> None:
    """Give a plain form field the theme's widget; one that has chosen its widget keeps it."""
    widget = field.widget
    if isinstance(widget, forms.HiddenInput | forms.FileInput) or type(widget).__module__.startswith("unfold"):
        return
    if isinstance(widget, forms.Textarea):
        field.widget = widgets.UnfoldAdminTextareaWidget(attrs={"rows": 3})
    elif isinstance(widget, forms.PasswordInput):
        field.widget = widgets.UnfoldAdminPasswordWidget()
    elif isinstance(widget, forms.RadioSelect):
        field.widget = widgets.UnfoldAdminRadioSelectWidget(radio_style=1)
    else:
        maker = next((make for kind, make in WIDGETS if isinstance(field, kind)), None)
        field.widget = maker(field) if maker else widgets.UnfoldAdminTextInputWidget()
    field.widget.is_required = field.required
    if isinstance(field, forms.ChoiceField | forms.ModelChoiceField):
        field.widget.choices = field.choices
    field.widget.attrs.update(field.widget_attrs(field.widget))


JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"
"""Unseen signs that some scripts and emoji need."""


def check_readable(text: str) -> None:
    """A text that others are to read: something to see, and no sign that hides or turns round what stands there.
    Raises ValidationError."""
    kinds = {unicodedata.category(sign) for sign in text if sign not in JOINERS}
    if "Cf" in kinds or (text and all(kind[0] in "CZ" for kind in kinds)):
        raise forms.ValidationError(_("There are signs in it that nobody can see. Type it again."))


class ButtonForm(forms.Form):
    """What a button asks. `obj` is the object (None in list buttons and in bulk), `request` the request."""

    personal: frozenset[str] = frozenset()
    """Fields that say who a buyer is: the audit trail keeps them masked."""

    def __init__(self, *args: Any, obj: Model | None = None, request: HttpRequest | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.obj = obj
        self.request = request
        self.prepare()
        for field in self.fields.values():
            dress(field)
            if isinstance(field, forms.CharField):
                field.validators.append(check_readable)

    def prepare(self) -> None:
        """Hook: adjust fields to the object, for example the highest amount."""


class Reason(ButtonForm):
    """Nothing but a reason, which the log keeps."""

    reason = forms.CharField(label=_("Reason"), max_length=200, widget=forms.Textarea, help_text=_("Kept in the log."))


class Again(str):
    """What a handler says when the very same had been done before: the trail then tells of one doing, not of two."""


def tell(form: forms.Form, refusal: Refusal) -> None:
    """Show a refusal where it belongs: at the fields it names, else above the form."""
    fields = refusal.data.get("fields")
    if isinstance(fields, dict) and fields:
        for name, errors in fields.items():
            form.add_error(name if name in form.fields else None, [str(error) for error in errors])
    else:
        form.add_error(None, str(refusal.message))


def new_once() -> str:
    """A fresh one-time token for a form."""
    return numbers.uuid7().hex


def once_of(request: HttpRequest) -> str:
    """The one-time token of a form that was sent; "" when there is none, or none of ours."""
    said = request.POST.get("once", "")
    return said if re.fullmatch(r"[0-9A-Za-z_-]{1,64}", said, re.ASCII) else ""


def key_of(*, once: str, merchant_id: UUID | None, button: str, subject: str, data: dict[str, Any]) -> BusinessKey:
    """The business key of one press of a button on one object."""
    said = {name: value for name, value in data.items() if name != "seen_version"}
    return business_key(
        merchant_id=merchant_id or NO_MERCHANT,
        key=f"desk:{once}:{button}:{subject}"[:200],
        button=button,
        subject=subject,
        data={name: value if _is_plain(value) else str(value) for name, value in said.items()},
    )


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | bool | float | datetime | list)


def loggable(data: dict[str, Any], *, personal: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What was entered, as the audit trail keeps it: secrets never, personal data masked, files by name."""
    kept: dict[str, Any] = {}
    for name, value in data.items():
        if value in (None, "", []) or "password" in name or "secret" in name:
            continue
        if name in personal:
            kept[name] = mask(str(value))
            continue
        kept[name] = value if _is_plain(value) and not isinstance(value, datetime) else str(value)
    return kept
