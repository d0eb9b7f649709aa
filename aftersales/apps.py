from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AfterSalesConfig(AppConfig):
    name = "aftersales"
    verbose_name = _("After-sales")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from aftersales import consumers  # noqa: F401
