from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ReconciliationConfig(AppConfig):
    name = "reconciliation"
    verbose_name = _("Reconciliation")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the repairs that rules name, the alarm's consumer and the metrics."""
        from reconciliation import consumers, metrics, repair_commands  # noqa: F401

        metrics.register()
