"""Names of fields that were given none: Django makes "created at" out of created_at, and these too are translated."""

from typing import Any

from django.contrib.admin import AdminSite
from django.db.models import Field, Model
from django.utils.translation import gettext_lazy


def speak(model: type[Model]) -> None:
    """Let the made-up names of a model's fields go through the catalogue. Migrations do not see it: they keep the
    name that was given, and none was."""
    for field in model._meta.concrete_fields:
        if isinstance(field.verbose_name, str):
            field.verbose_name = gettext_lazy(field.verbose_name)


def made_up(site: AdminSite) -> dict[str, str]:
    """The made-up names of the fields that pages show → the page that shows them."""
    found: dict[str, str] = {}
    for model, page in site._registry.items():
        for field in _shown(model, page):
            if field._verbose_name is None and field.name != "id":  # type: ignore[attr-defined]
                found[field.name.replace("_", " ")] = f"{model._meta.app_label}/admin.py"
    return found


def _shown(model: type[Model], page: Any) -> list[Field]:
    names = {name for name in page.list_display if isinstance(name, str)}
    if page.fieldsets is not None:
        given = [name for _title, options in page.fieldsets for name in options["fields"]]
    else:
        given = list(page.fields if page.fields is not None else page.get_fields(None))
    for name in given:
        names |= set(name) if isinstance(name, list | tuple) else {name}
    return [field for field in model._meta.concrete_fields if field.name in names]
