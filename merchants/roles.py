"""The seven roles of the back office and the groups of them that pages name."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Role(models.TextChoices):
    MERCHANT_OWNER = "merchant_owner", _("Merchant owner")
    MERCHANT_STAFF = "merchant_staff", _("Merchant staff")
    CUSTOMER_SERVICE = "customer_service", _("Customer service")
    OPERATIONS = "operations", _("Operations")
    FINANCE = "finance", _("Finance")
    AUDITOR = "auditor", _("Auditor")
    PLATFORM_ADMIN = "platform_admin", _("Platform administrator")


OWNER = frozenset({Role.MERCHANT_OWNER})
MERCHANT = frozenset({Role.MERCHANT_OWNER, Role.MERCHANT_STAFF})
CUSTOMER_SERVICE = frozenset({Role.CUSTOMER_SERVICE})
OPERATIONS = frozenset({Role.OPERATIONS})
FINANCE = frozenset({Role.FINANCE})
AUDITOR = frozenset({Role.AUDITOR})
PLATFORM = frozenset({Role.PLATFORM_ADMIN})

# Roles that read business pages: everybody but the platform administrator, who keeps staff and clients only.
READERS = MERCHANT | CUSTOMER_SERVICE | OPERATIONS | FINANCE | AUDITOR
# Roles that read money pages.
MONEY_READERS = MERCHANT | OPERATIONS | FINANCE | AUDITOR
# Roles of the house itself; they see all merchants.
HOUSE = CUSTOMER_SERVICE | OPERATIONS | FINANCE | AUDITOR
EVERYBODY = READERS | PLATFORM
NOBODY: frozenset[Role] = frozenset()
