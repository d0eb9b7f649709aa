from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class OrdersConfig(AppConfig):
    name = "orders"
    verbose_name = _("Orders")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the consumers, answer coupons' questions about orders, and give the balance channel its wallets."""
        from coupons import facts
        from orders import consumers
        from orders.facts import LocalOrderFacts
        from orders.wallets import LedgerWallet
        from payments.registry import register_wallet

        assert consumers
        facts.register(LocalOrderFacts())
        register_wallet(LedgerWallet)
