"""The path above a page: the place in the sidebar, the object, what is being done to it."""

from typing import Any

from django import template
from django.db.models.options import Options
from django.urls import NoReverseMatch, reverse
from django.utils.text import capfirst

register = template.Library()


@register.simple_tag(takes_context=True)
def crumbs(context: template.Context) -> list[dict[str, Any]]:
    """Steps with a title and, but for the last, an address."""
    # Not at the top: the theme renders a template while it is imported, and that loads all tag libraries.
    from kernel.admin.desk import place_of

    steps: list[dict[str, Any]] = []
    opts: Options | None = context.get("opts")
    obj = context.get("original") or context.get("obj")
    if opts is not None:
        base = f"admin:{opts.app_label}_{opts.model_name}"
        steps.append(
            {
                "title": str(place_of(opts.model) or capfirst(str(opts.verbose_name_plural))),
                "url": _url(f"{base}_changelist"),
            }
        )
        if obj is not None and not isinstance(obj, str):
            steps.append({"title": context.get("shown_name") or str(obj), "url": _url(f"{base}_change", obj.pk)})
        if context.get("button") is not None:
            steps.append({"title": str(context["button"].label), "url": ""})
    elif context.get("title"):
        steps.append({"title": str(context["title"]), "url": ""})
    if steps:
        steps[-1] = {**steps[-1], "url": ""}
    return steps


def _url(name: str, *args: Any) -> str:
    try:
        return reverse(name, args=args)
    except NoReverseMatch:
        return ""
