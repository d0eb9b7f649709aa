from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OrdersConfig(AppConfig):
    name = "orders"
    verbose_name = _("Orders")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the consumers, and answer coupons' questions about orders."""
        from coupons import facts
        from orders import consumers
        from orders.facts import LocalOrderFacts

        assert consumers
        facts.register(LocalOrderFacts())
