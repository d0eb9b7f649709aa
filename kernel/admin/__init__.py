"""The frame of the back office. Apps register their pages, buttons, waiting lists, figures and searches here.

Who may see and do what is asked of `site.policy`, which merchants.scoping fills; without it everything is denied.
"""

from django.utils.translation import gettext_lazy

from kernel.admin.buttons import Again, Button, ButtonForm
from kernel.admin.charts import Point, day_link, register_chart
from kernel.admin.columns import money, status, when, yes_no
from kernel.admin.desk import (
    Hit,
    Scope,
    capped,
    register_figure,
    register_navigation,
    register_search,
    register_waiting,
)
from kernel.admin.filters import MerchantFilter, exactly, one_of
from kernel.admin.legend import Legend
from kernel.admin.pages import QuitsAdmin, personal, register
from kernel.admin.site import site
from kernel.admin.yuan import YuanField

QUIET = gettext_lazy("Nothing waits here. That is good news, or a filter is set.")
"""What an empty queue says."""

__all__ = [
    "QUIET",
    "Again",
    "Button",
    "ButtonForm",
    "Hit",
    "Legend",
    "MerchantFilter",
    "Point",
    "QuitsAdmin",
    "Scope",
    "YuanField",
    "capped",
    "day_link",
    "exactly",
    "money",
    "one_of",
    "personal",
    "register",
    "register_chart",
    "register_figure",
    "register_navigation",
    "register_search",
    "register_waiting",
    "site",
    "status",
    "when",
    "yes_no",
]
