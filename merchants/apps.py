from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class MerchantsConfig(AppConfig):
    name = "merchants"
    verbose_name = _("Merchants and access")

    def ready(self) -> None:
        """Plug the one registry of access into the admin site of the kernel, which denies everything without it."""
        from kernel import admin
        from merchants import scoping

        admin.site.policy = scoping.Policy()
