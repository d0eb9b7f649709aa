from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LedgersConfig(AppConfig):
    name = "ledgers"
    verbose_name = _("Ledgers")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from ledgers import consumers  # noqa: F401  (registers the inbox consumers)
