"""Who acts on an after-sales order."""

from dataclasses import dataclass

from aftersales.models import Actor


@dataclass(frozen=True, slots=True)
class By:
    """Buyer, merchant, platform, system or channel (`kind`), and which one (`id`)."""

    kind: str
    id: str = ""


SYSTEM = By(Actor.SYSTEM)
CHANNEL = By(Actor.CHANNEL)
