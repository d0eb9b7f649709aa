"""Amounts in forms: typed in yuan, fen to the program."""

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from unfold.widgets import UnfoldAdminTextInputWidget

from kernel import money


class YuanField(forms.CharField):
    """An amount in yuan with at most two decimals; its value is fen, at least `least_fen`."""

    def __init__(self, *, least_fen: int = 0, **kwargs: Any) -> None:
        self.least_fen = least_fen
        super().__init__(
            **{"max_length": 16, "widget": UnfoldAdminTextInputWidget(attrs={"inputmode": "decimal"}), **kwargs}
        )

    def prepare_value(self, value: Any) -> Any:
        return money.fen_to_yuan(value) if isinstance(value, int) else value

    def clean(self, value: Any) -> Any:
        text = super().clean(value).strip().removeprefix("¥")
        if not text:
            return None
        try:
            fen = money.yuan_to_fen(text)
        except ValueError as error:
            raise forms.ValidationError(_("An amount like 166.67 is needed.")) from error
        if fen < 0:
            raise forms.ValidationError(_("The amount must not be negative."))
        if fen < self.least_fen:
            raise forms.ValidationError(_("The amount must be more than zero."))
        return fen
