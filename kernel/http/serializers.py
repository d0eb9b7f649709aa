"""Strict request bodies."""

from typing import Any

from django.utils.translation import gettext_lazy as _
from rest_framework import serializers


class StrictSerializer(serializers.Serializer):
    """Refuses fields it does not know, so that a typing error is never silently ignored. Declares no writes:
    commands write."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict):
            unknown = sorted(set(data) - set(self.fields))
            if unknown:
                raise serializers.ValidationError(
                    {
                        str(name)[:100]: [serializers.ErrorDetail(str(_("Unknown field.")), code="unknown")]
                        for name in unknown
                    }
                )
        return super().to_internal_value(data)


class FenField(serializers.IntegerField):
    """An amount in fen: a JSON integer, not a string or float, from 0 to 10¹² unless said otherwise."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("min_value", 0)
        kwargs.setdefault("max_value", 10**12)
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictIntegerField(FenField):
    """A JSON integer (no string, float or boolean) between 1 and 100,000 unless said otherwise."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("min_value", 1)
        kwargs.setdefault("max_value", 100_000)
        super().__init__(**kwargs)


class TextField(serializers.CharField):
    """Text without NUL and other control characters; a JSON string, nothing else."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        text = super().to_internal_value(data)
        if any(ord(character) < 32 and character not in "\n\t" for character in text):
            self.fail("invalid")
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("invalid")
        return text


class KeyField(TextField):
    """A short identifier of the caller's (user id, SKU, reason code): printable, up to 64 characters."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("max_length", 64)
        super().__init__(**kwargs)
