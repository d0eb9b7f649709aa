"""The look of the back office: colours, sidebar, languages. Read by config/settings.py as UNFOLD."""

from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _


def _style(request: HttpRequest) -> str:
    return static("quits/desk.css")


def _script(request: HttpRequest) -> str:
    return static("quits/desk.js")


def _favicon(request: HttpRequest) -> str:
    return static("quits/mark.svg")


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": _("Quits back office"),
    "SITE_HEADER": _("Quits"),
    "SITE_SYMBOL": "balance",
    "SITE_URL": None,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": _favicon}],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_LANGUAGES": True,
    "SHOW_BACK_BUTTON": False,
    "ENVIRONMENT": "kernel.admin.site.environment",
    "STYLES": [_style],
    "SCRIPTS": [_script],
    "BORDER_RADIUS": "8px",
    "COLORS": {
        "base": {
            "50": "oklch(98.4% .003 220)",
            "100": "oklch(96.6% .005 220)",
            "200": "oklch(92.6% .008 220)",
            "300": "oklch(86.8% .012 220)",
            "400": "oklch(70.4% .020 220)",
            "500": "oklch(55.0% .024 220)",
            "600": "oklch(44.4% .026 220)",
            "700": "oklch(37.0% .026 220)",
            "800": "oklch(27.6% .024 220)",
            "900": "oklch(20.8% .022 220)",
            "950": "oklch(13.0% .018 220)",
        },
        "primary": {
            "50": "oklch(97.6% .018 190)",
            "100": "oklch(94.5% .040 190)",
            "200": "oklch(89.5% .070 190)",
            "300": "oklch(82.5% .095 190)",
            "400": "oklch(73.0% .110 190)",
            "500": "oklch(62.5% .108 190)",
            "600": "oklch(51.5% .092 190)",
            "700": "oklch(43.5% .078 190)",
            "800": "oklch(36.5% .064 190)",
            "900": "oklch(30.5% .052 190)",
            "950": "oklch(22.5% .040 190)",
        },
    },
    "COMMAND": {"search_models": False, "show_history": False},
    "SIDEBAR": {
        "show_search": False,
        "command_search": False,
        "show_all_applications": False,
        "navigation": "kernel.admin.site.navigation",
    },
    "ACCOUNT": {
        "navigation": [
            {"title": _("Change password"), "link": reverse_lazy("admin:password_change")},
            {"title": _("Second factor"), "link": reverse_lazy("admin:second_factor_setup")},
        ]
    },
    "LOGIN": {"image": None},
}
