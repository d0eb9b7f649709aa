"""What every end without money does: the units are free again. Joined by reject, cancel and their relatives."""

from aftersales.commands._transition import blaming_the_state
from aftersales.models import AfterSalesOrder, AfterSalesUnit, Hold
from kernel.statemachine import Edge
from orders.commands.hold_units import free_units


def free_claimed_units(edge: Edge, claim: AfterSalesOrder, *, expected_version: int) -> None:
    """Let the units of a dying claim be shipped and claimed again; the line's row is locked before the claim's."""
    rows = list(claim.units.filter(live=True))
    held = [row.ordinal for row in rows if row.hold == Hold.CONSUMES]
    if held:
        with blaming_the_state(edge, claim, expected_version=expected_version):
            free_units(line_id=claim.line_id, ordinals=sorted(held))
    AfterSalesUnit.objects.filter(pk__in=[row.pk for row in rows]).update(live=False, is_open=False)
